#include "fovea/nn/transformer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fovea/attention/masks.h"

namespace fovea::nn {

FeedForward::FeedForward(ParameterSet& set, const std::string& name, std::int64_t dim, std::int64_t inner)
    : first(set, name + ".fc1", dim, inner), second(set, name + ".fc2", inner, dim) {}

Var FeedForward::operator()(Context& context, const Var& x) const {
  return second(context, autograd::relu(first(context, x)));
}

TransformerStack::TransformerStack(ParameterSet& set, const std::string& name, const StackOptions& options)
    : options_(options) {
  const auto attention = [&](const std::string& part) {
    return MultiHeadAttention(set, part, options.dim, options.heads, options.attention_dropout);
  };
  const auto norm = [&](const std::string& part) { return LayerNorm(set, part, options.dim); };
  std::optional<RopeTable> rope;  // of all layers: copies share the table
  if (options.rotary_positions > 0 && options.heads > 0)
    rope.emplace(Rope{.rotary_dim = options.dim / options.heads}, options.rotary_positions, DType::f32);
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string layer = name + ".layers." + std::to_string(i);
    Layer made;
    const bool reads_memory = options.reads == StackOptions::Reads::memory;
    made.self = attention(layer + ".self_attn");
    made.self.rope = rope;
    if (reads_memory) made.memory = attention(layer + ".encoder_attn");
    made.self_norm = norm(layer + ".self_attn_layer_norm");
    if (reads_memory) made.memory_norm = norm(layer + ".encoder_attn_layer_norm");
    made.final_norm = norm(layer + ".final_layer_norm");
    made.feed_forward = FeedForward(set, layer, options.dim, options.feed_forward);
    layers_.push_back(std::move(made));
  }
  if (options.norm == NormPlace::pre) norm_ = norm(name + ".layer_norm");
}

template <class Sublayer>
Var TransformerStack::residual(Context& context, const LayerNorm& norm, const Var& x,
                               Sublayer&& sublayer) const {
  if (options_.norm == NormPlace::post)
    return norm(context, add(x, context.dropout(sublayer(x), options_.dropout)));
  return add(x, context.dropout(sublayer(norm(context, x)), options_.dropout));
}

template <class Self, class Memory>
Var TransformerStack::run(Context& context, Var x, Self&& self, Memory&& memory) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    x = residual(context, layer.self_norm, x, [&](const Var& y) { return self(layer, i, y); });
    if (layer.memory)
      x = residual(context, layer.memory_norm, x, [&](const Var& y) { return memory(layer, i, y); });
    x = residual(context, layer.final_norm, x, [&](const Var& y) { return layer.feed_forward(context, y); });
  }
  return options_.norm == NormPlace::pre ? norm_(context, x) : x;
}

namespace {

Tensor* slot(const TransformerStack::Call& call, std::string_view place, std::size_t layer) {
  return call.weights ? call.weights(place, layer) : nullptr;
}

}  // namespace

Var TransformerStack::operator()(Context& context, const Var& x, const Call& call) const {
  if (options_.reads == StackOptions::Reads::memory && call.memory.empty())
    throw InvalidArgument("TransformerStack", "memory", "[B, M, dim]", "none");
  return run(
      context, x,
      [&](const Layer& layer, std::size_t i, const Var& y) {
        return layer.self(context, y, y,
                          {.mask = call.mask, .key_lengths = call.lengths, .weights = slot(call, "self", i)});
      },
      [&](const Layer& layer, std::size_t i, const Var& y) {
        return (*layer.memory)(context, y, call.memory,
                               {.mask = call.memory_mask,
                                .key_lengths = call.memory_lengths,
                                .weights = slot(call, "memory", i)});
      });
}

std::int64_t TransformerStack::Cache::bytes() const {
  std::int64_t total = 0;
  for (const auto* layers : {&self, &memory}) {
    for (const ProjectedKeys& keys : *layers) {
      if (keys.length == 0) continue;
      total += keys.key.size(0) * keys.length * (keys.key.size(2) + keys.value.size(2)) *
               static_cast<std::int64_t>(sizeof(float));
    }
  }
  return total;
}

TransformerStack::Cache TransformerStack::start(Context& context, const Var& memory) const {
  Cache cache;
  cache.self.resize(layers_.size());
  if (options_.reads == StackOptions::Reads::itself) return cache;
  if (memory.empty()) throw InvalidArgument("TransformerStack::start", "memory", "[B, M, dim]", "none");
  cache.memory.resize(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i)
    layers_[i].memory->append(context, memory, cache.memory[i], memory.size(1));
  return cache;
}

namespace {

void refuse_uneven(const Mask& mask) {
  if (mask.node().needs_key_lengths() || mask.node().by_head())
    throw InvalidArgument(
        "TransformerStack", "mask",
        "one that is the same for all heads and knows its lengths, where rows are forgotten",
        to_string(mask));
}

// The rows of the sequence that the cache holds when `length` rows are read, in order.
KeySpans kept_of(const TransformerStack::Cache& cache, std::int64_t length) {
  return complement(cache.forgotten, length);
}

std::int64_t size_of(const KeySpans& spans) {
  std::int64_t total = 0;
  for (const KeySpan& span : spans) total += span.end - span.begin;
  return total;
}

// The elements of `held` that lie in `part`, by their places in `held`.
KeySpans counted_among(const KeySpans& held, const KeySpans& part) {
  KeySpans places;
  std::int64_t before = 0;
  for (const KeySpan& span : held) {
    for (const KeySpan& common : intersect(part, {span})) {
      const std::int64_t begin = before + common.begin - span.begin, end = before + common.end - span.begin;
      if (!places.empty() && places.back().end == begin)
        places.back().end = end;
      else
        places.push_back({begin, end});
    }
    before += span.end - span.begin;
  }
  return places;
}

// `mask` for rows [cache.length, length) over the keys that are left, which moved together.
Mask among_kept(const Mask& mask, const TransformerStack::Cache& cache, std::int64_t length) {
  refuse_uneven(mask);
  const KeySpans kept = kept_of(cache, length);
  const std::int64_t batch = cache.self[0].key.size(0);
  std::vector<KeySpans> rows;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t row = cache.length; row < length; ++row) {
      // Spans of a single query are exact.
      const QueryBlock query{.batch = b, .query_begin = row, .query_end = row + 1, .key_len = length};
      const KeySpans seen = mask.node().spans(query).some;
      if (!intersect(seen, cache.forgotten).empty())
        throw InvalidArgument("TransformerStack::extend", "call.mask",
                              "one that hides the rows that were forgotten", to_string(mask));
      rows.push_back(counted_among(kept, seen));
    }
  }
  return Predicate(
      "kept", {.batch = batch, .query_begin = cache.length, .query_end = length, .key_len = size_of(kept)},
      std::move(rows));
}

// Moves the rows of `spans`, which count among those in use, together at the front.
void keep(Tensor& rows, const KeySpans& spans) {
  const std::int64_t capacity = rows.size(1), dim = rows.size(2);
  for (std::int64_t b = 0; b < rows.size(0); ++b) {
    float* entry = rows.data<float>() + b * capacity * dim;
    float* end = entry;
    for (const KeySpan& span : spans) {
      const std::int64_t count = (span.end - span.begin) * dim;
      std::memmove(end, entry + span.begin * dim, static_cast<std::size_t>(count) * sizeof(float));
      end += count;
    }
  }
}

}  // namespace

void TransformerStack::forget(Cache& cache, const Mask& mask, std::int64_t until) const {
  if (until <= cache.length) return;
  refuse_uneven(mask);
  const KeySpans held = kept_of(cache, cache.length);
  if (held.empty()) return;
  KeySpans seen;
  for (std::int64_t b = 0; b < cache.self[0].key.size(0); ++b) {
    const QueryBlock rest{
        .batch = b, .query_begin = cache.length, .query_end = until, .key_len = cache.length};
    seen = unite(seen, mask.node().spans(rest).some);
  }
  if (intersect(held, seen) == held) return;
  const KeySpans left = counted_among(held, seen);
  for (ProjectedKeys& keys : cache.self) {
    keep(keys.key, left);
    keep(keys.value, left);
    keys.length = size_of(left);
  }
  cache.forgotten = unite(cache.forgotten, complement(seen, cache.length));
}

Var TransformerStack::extend(Context& context, const Var& x, Cache& cache, const Call& call,
                             std::int64_t room) const {
  if (cache.self.size() != layers_.size()) {
    throw InvalidArgument("TransformerStack::extend", "cache",
                          "one made by start, of " + std::to_string(layers_.size()) + " layers",
                          std::to_string(cache.self.size()) + " layers");
  }
  const Mask mask =
      cache.forgotten.empty() ? call.mask : among_kept(call.mask, cache, cache.length + x.size(1));
  const Var y = run(
      context, x,
      [&](const Layer& layer, std::size_t i, const Var& rows) {
        layer.self.append(context, rows, cache.self[i], room);
        return layer.self.attend_projected(context, rows, cache.self[i],
                                           {.mask = mask,
                                            .key_lengths = call.lengths,
                                            .query_offset = cache.length,
                                            .weights = slot(call, "self", i)});
      },
      [&](const Layer& layer, std::size_t i, const Var& rows) {
        return layer.memory->attend_projected(context, rows, cache.memory[i],
                                              {.mask = call.memory_mask,
                                               .key_lengths = call.memory_lengths,
                                               .weights = slot(call, "memory", i)});
      });
  cache.length += x.size(1);
  return y;
}

AttentionPooling::AttentionPooling(ParameterSet& set, const std::string& name, std::int64_t dim,
                                   std::int64_t num_heads, std::int64_t queries)
    : query(&set.normal(name + ".query", {queries, dim}, 1.0f)), attention(set, name, dim, num_heads, 0.0f) {}

Var AttentionPooling::operator()(Context& context, const Var& x, std::span<const std::int64_t> lengths,
                                 Tensor* weights) const {
  const std::int64_t batch = x.size(0), queries = query->value.size(0), dim = query->value.size(1);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(batch * queries));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % queries);
  const Var asked = reshape(autograd::embedding(context.use(*query), rows), {batch, queries, dim});
  MultiHeadAttention::Call call;
  call.weights = weights;
  if (!lengths.empty()) {
    call.mask = KeyLengths{};
    call.key_lengths = lengths;
  }
  return attention(context, asked, x, call);
}

}  // namespace fovea::nn

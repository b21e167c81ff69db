#include "fovea/nn/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "fovea/attention/masks.h"

namespace fovea::nn {

FeedForward::FeedForward(ParameterSet& set, const std::string& name, std::int64_t dim, const Mlp& mlp) {
  std::visit(
      [&]<class M>(const M& spec) {
        activation = spec.activation;
        if constexpr (std::is_same_v<M, GatedMlp>)
          gate = Linear(set, name + ".gate", dim, spec.inner, spec.bias);
        first = Linear(set, name + ".fc1", dim, spec.inner, spec.bias);
        second = Linear(set, name + ".fc2", spec.inner, dim, spec.bias);
      },
      mlp);
}

Var FeedForward::operator()(Context& context, const Var& x) const {
  const Var inner = first(context, x);
  return second(context, gate.weight ? autograd::gated(activation, gate(context, x), inner)
                                     : autograd::activate(activation, inner));
}

StackSpec stack_of(std::int64_t dim, std::int64_t count, const BlockSpec& block) {
  if (count < 0) throw InvalidArgument("stack_of", "count", "at least 0", std::to_string(count));
  StackSpec spec{.dim = dim, .blocks = std::vector<BlockSpec>(static_cast<std::size_t>(count), block)};
  if (block.mlp_norm != NormPlace::post) spec.final_norm = block.norm;
  return spec;
}

StackSpec stack_of(const TransformerOptions& options) {
  AttentionOptions attention{.num_query_heads = options.heads};
  attention.spec.dropout.rate = static_cast<double>(options.attention_dropout);
  BlockSpec block{.mixer = attention,
                  .mlp = PlainMlp{.inner = options.feed_forward},
                  .mixer_norm = options.norm,
                  .cross_norm = options.norm,
                  .mlp_norm = options.norm,
                  .dropout = options.dropout};
  if (options.cross_attention == TransformerOptions::CrossAttention::with) block.cross = attention;
  StackSpec spec = stack_of(options.dim, options.layers, block);
  spec.dropout = options.dropout;
  return spec;
}

namespace {

template <class Change>
void for_mixers(StackSpec& stack, Change&& change) {
  for (BlockSpec& block : stack.blocks) std::visit(change, block.mixer);
}

}  // namespace

void add_alibi(StackSpec& stack, Sees sees) {
  if (sees == Sees::the_past) {
    for_mixers(stack, [](AttentionOptions& attention) { attention.spec.mods.push_back(AlibiBias{}); });
    return;
  }
  const Mod distance = make_mod("alibi-both-sides", {"slope"}, [](auto score, Site at, auto slope) {
    using T = elementwise::Scalar<decltype(score)>;
    return score - slope * elementwise::abs(T(at.query - at.key));
  });
  for_mixers(stack, [&](AttentionOptions& attention) {
    const std::vector<double> slopes = alibi_slopes(attention.num_query_heads);
    const std::vector<float> start(slopes.begin(), slopes.end());
    attention.learned.push_back({"mods[" + std::to_string(attention.spec.mods.size()) + "].slope",
                                 Tensor::from<float>(start, {1, attention.num_query_heads, 1, 1})});
    attention.spec.mods.push_back(distance);
  });
}

void add_relative_bias(StackSpec& stack, const RelativeBias& bias) {
  for_mixers(stack, [&](AttentionOptions& attention) { attention.spec.mods.push_back(bias); });
  stack.arguments = StackSpec::Arguments::of_the_first;
}

void add_rotary(StackSpec& stack, std::int64_t positions, double base) {
  std::optional<RopeTable> table;  // of all blocks: copies share it
  for_mixers(stack, [&](AttentionOptions& attention) {
    const std::int64_t dim = attention.head_dim > 0
                                 ? attention.head_dim
                                 : stack.dim / std::max<std::int64_t>(attention.num_query_heads, 1);
    if (!table) table.emplace(Rope{.rotary_dim = dim, .base = base}, positions, DType::f32);
    attention.rope = table;
  });
}

TransformerStack::TransformerStack(ParameterSet& set, const std::string& name, const StackSpec& spec)
    : spec_(spec) {
  layers_.reserve(spec.blocks.size());  // blocks read the arguments of the first while others are made
  for (std::size_t i = 0; i < spec.blocks.size(); ++i) {
    const BlockSpec& block = spec.blocks[i];
    const std::string layer = name + ".layers." + std::to_string(i);
    const auto branch = [&](const std::string& part, NormPlace place) {
      Branch made{.place = place, .norm = {}, .end = {}};
      if (place != NormPlace::none) made.norm = Norm(set, layer + part + "_layer_norm", spec.dim, block.norm);
      if (place == NormPlace::sandwich)
        made.end = Norm(set, layer + part + "_end_norm", spec.dim, block.norm);
      return made;
    };
    const bool shares = i > 0 && spec.arguments == StackSpec::Arguments::of_the_first;
    Layer made;
    made.self =
        MultiHeadAttention(set, layer + ".self_attn", spec.dim, std::get<AttentionOptions>(block.mixer),
                           shares ? &layers_.front().self : nullptr);
    if (block.cross) made.memory.emplace(set, layer + ".encoder_attn", spec.dim, *block.cross);
    made.self_branch = branch(".self_attn", block.mixer_norm);
    if (block.cross) made.memory_branch = branch(".encoder_attn", block.cross_norm);
    made.final_branch = branch(".final", block.mlp_norm);
    made.feed_forward = FeedForward(set, layer, spec.dim, block.mlp);
    made.dropout = block.dropout;
    layers_.push_back(std::move(made));
  }
  if (const auto* learned = std::get_if<LearnedPositions>(&spec.positions))
    positions_ =
        &set.normal(name + ".embed_positions.weight", {learned->count + learned->first_row, spec.dim},
                    1.0f / std::sqrt(static_cast<float>(spec.dim)));
  if (spec.embedding_norm)
    embedding_norm_.emplace(set, name + ".layernorm_embedding", spec.dim, *spec.embedding_norm);
  if (spec.final_norm) norm_.emplace(set, name + ".layer_norm", spec.dim, *spec.final_norm);
}

bool TransformerStack::reads_memory() const {
  return std::any_of(layers_.begin(), layers_.end(),
                     [](const Layer& layer) { return layer.memory.has_value(); });
}

Var TransformerStack::enter(Context& context, const Var& x, std::int64_t first) const {
  if (x.shape().rank() != 3 || x.size(2) != spec_.dim)
    throw InvalidArgument("TransformerStack::enter", "x", "[B, L, " + std::to_string(spec_.dim) + "]",
                          to_string(x.shape()));
  const std::int64_t batch = x.size(0), length = x.size(1);
  Var rows = x;
  if (const auto* sines = std::get_if<SinusoidalPositions>(&spec_.positions))
    rows = add_positions(x, sinusoidal_positions(first, length, spec_.dim, sines->base));
  if (const auto* learned = std::get_if<LearnedPositions>(&spec_.positions)) {
    if (first < 0 || length > learned->count - first)
      throw InvalidArgument("TransformerStack::enter", "first",
                            "positions in [0, " + std::to_string(learned->count) + ")",
                            std::to_string(length) + " from " + std::to_string(first));
    std::vector<std::int32_t> ids;
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < length; ++i)
        ids.push_back(static_cast<std::int32_t>(learned->first_row + first + i));
    }
    rows = add(x, reshape(autograd::embedding(context.use(*positions_), ids), x.shape()));
  }
  if (embedding_norm_) rows = (*embedding_norm_)(context, rows);
  return context.dropout(rows, spec_.dropout);
}

template <class Sublayer>
Var TransformerStack::residual(Context& context, const Branch& branch, float dropout, const Var& x,
                               Sublayer&& sublayer) const {
  const auto dropped = [&](const Var& y) { return context.dropout(y, dropout); };
  switch (branch.place) {
    case NormPlace::pre:
      return add(x, dropped(sublayer(branch.norm(context, x))));
    case NormPlace::post:
      return branch.norm(context, add(x, dropped(sublayer(x))));
    case NormPlace::sandwich:
      return add(x, dropped(branch.end(context, sublayer(branch.norm(context, x)))));
    case NormPlace::end:
      return add(x, dropped(branch.norm(context, sublayer(x))));
    case NormPlace::none:
      break;
  }
  return add(x, dropped(sublayer(x)));
}

template <class Self, class Memory>
Var TransformerStack::run(Context& context, Var x, Self&& self, Memory&& memory) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    x = residual(context, layer.self_branch, layer.dropout, x,
                 [&](const Var& y) { return self(layer, i, y); });
    if (layer.memory)
      x = residual(context, layer.memory_branch, layer.dropout, x,
                   [&](const Var& y) { return memory(layer, i, y); });
    x = residual(context, layer.final_branch, layer.dropout, x,
                 [&](const Var& y) { return layer.feed_forward(context, y); });
  }
  return norm_ ? (*norm_)(context, x) : x;
}

namespace {

Tensor* slot(const TransformerStack::Call& call, std::string_view place, std::size_t layer) {
  return call.weights ? call.weights(place, layer) : nullptr;
}

}  // namespace

Var TransformerStack::operator()(Context& context, const Var& x, const Call& call) const {
  if (reads_memory() && call.memory.empty())
    throw InvalidArgument("TransformerStack", "memory", "[B, M, dim]", "none");
  return run(
      context, x,
      [&](const Layer& layer, std::size_t i, const Var& y) {
        return layer.self(context, y, y,
                          {.mask = call.mask,
                           .key_lengths = call.lengths,
                           .weights = slot(call, "self", i),
                           .arguments = call.arguments});
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
  if (!reads_memory()) return cache;
  if (memory.empty()) throw InvalidArgument("TransformerStack::start", "memory", "[B, M, dim]", "none");
  cache.memory.resize(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].memory) layers_[i].memory->append(context, memory, cache.memory[i], memory.size(1));
  }
  return cache;
}

namespace {

void refuse_uneven(const Mask& mask) {
  if (mask.node().needs_key_lengths() || mask.node().by_head())
    throw InvalidArgument(
        "TransformerStack", "mask",
        "a mask that is the same for all heads and contains its lengths, because rows are forgotten",
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

// The indices within `held` of the rows that are also in `part`.
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

// `mask` for rows [cache.length, length), with keys counted among those that are left in the cache.
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
                              "a mask that hides the rows that were forgotten", to_string(mask));
      rows.push_back(counted_among(kept, seen));
    }
  }
  return Predicate(
      "kept", {.batch = batch, .query_begin = cache.length, .query_end = length, .key_len = size_of(kept)},
      std::move(rows));
}

// Moves the rows of `spans` to the front of the buffer; spans count the rows in use.
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
                                            .weights = slot(call, "self", i),
                                            .arguments = call.arguments});
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
    : query(&set.normal(name + ".query", {queries, dim}, 1.0f)),
      attention(set, name, dim, {.num_query_heads = num_heads}) {}

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

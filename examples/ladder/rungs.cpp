#include "rungs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fovea/attention/masks.h"
#include "fovea/text/words.h"

namespace ladder {

using namespace fovea;
using autograd::Direction;
using nn::Context;
using nn::Var;

namespace {

constexpr std::int64_t num_heads = 4;
constexpr std::int64_t longest_position = 4096;  // that rotary positions are made for

bool recurrent(Kind kind) {
  return kind == Kind::rnn || kind == Kind::rnn_attention || kind == Kind::rnn_self_attention;
}

// Row t of `rows` [B, T, D] becomes `row` [B, 1, D]. The memory of `rows` is written and not copied: a copy
// for each step would take 13 GiB for a sentence of 4,096 words. An attention that was computed earlier reads
// fewer than t keys, in its backward pass too, so it does not see the change.
Var write_row(const Var& rows, std::int64_t t, const Var& row) {
  const std::int64_t size = rows.size(0), dim = rows.size(2), stride = rows.size(1) * dim;
  Tensor written = rows.value();
  for (std::int64_t b = 0; b < size; ++b)
    std::copy_n(row.value().data<float>() + b * dim, dim, written.data<float>() + b * stride + t * dim);
  if (!row.recorded()) return written;
  return {written, row.node()->tape->record([=](const Tensor& gradient) {
            // What was in row t before has no part in the loss. The rest goes on as it is.
            Tensor of_row(DType::f32, row.shape()), of_rows = gradient;
            for (std::int64_t b = 0; b < size; ++b) {
              float* from = of_rows.data<float>() + b * stride + t * dim;
              std::copy_n(from, dim, of_row.data<float>() + b * dim);
              std::fill_n(from, dim, 0.0f);
            }
            accumulate(row, of_row);
            accumulate(rows, of_rows);
          })};
}

// A GRU whose step starts not from its last state but from what attention reads of all earlier ones (Cheng et
// al. 2016, arXiv 1601.06733, equations 5 to 9, with a GRU in place of the LSTM).
struct SelfAttentive {
  nn::RnnLayer cell;
  nn::Linear query, key;
  SelfAttentive() = default;
  SelfAttentive(nn::ParameterSet& set, const std::string& name, std::int64_t dim)
      : cell(set, name, autograd::Cell::gru, dim, dim),
        query(set, name + ".query", 2 * dim, dim),
        key(set, name + ".key", dim, dim) {}

  // x [B, T, D], first [B, D], which is attended to as the states are -> [B, T, D].
  Var operator()(Context& context, const Var& x, const Var& first) const {
    const std::int64_t size = x.value().size(0), steps = x.value().size(1), dim = x.value().size(2);
    const Var gates = cell.input(context, x);
    const Shape all{size, steps + 1, dim};
    const Var start = reshape(first, {size, 1, dim});
    Var values = write_row(Tensor::zeros(DType::f32, all), 0, start), read = first,
        keys = write_row(Tensor::zeros(DType::f32, all), 0, key(context, start));
    for (std::int64_t t = 0; t < steps; ++t) {
      const std::array<Var, 2> asks{reshape(slice(x, 1, t, 1), {size, dim}), read};
      const Var asked = reshape(query(context, concat(asks, 1)), {size, 1, dim});
      const std::vector<std::int64_t> so_far(static_cast<std::size_t>(size), t + 1);
      const autograd::AttentionCall call{.spec = {.mask = KeyLengths{}}, .key_lengths = so_far};
      read = reshape(attention(call, asked, keys, values), {size, dim});
      const Var gate = reshape(slice(gates, 1, t, 1), {size, gates.value().size(2)});
      const Var state = reshape(
          cell_step(autograd::Cell::gru, gate, read, context.use(*cell.weight), context.use(*cell.bias)),
          {size, 1, dim});
      values = write_row(values, t + 1, state);
      keys = write_row(keys, t + 1, key(context, state));
    }
    return slice(values, 1, 1, steps);
  }
};

// Row t of entry b becomes row length[b] - 1 - t; padding stays.
Var reversed(const Var& x, const std::vector<std::int64_t>& lengths) {
  const std::int64_t steps = x.value().size(1);
  std::vector<std::int64_t> index;
  for (const std::int64_t length : lengths)
    for (std::int64_t t = 0; t < steps; ++t) index.push_back(t < length ? length - 1 - t : t);
  return gather_rows(x, index, steps);
}

Var last_rows(const Var& x, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> index;
  for (const std::int64_t length : lengths) index.push_back(length - 1);
  return gather_rows(x, index);
}

// Mean of the heads: [B, heads, T, S] -> [B, T, S].
Tensor mean_of_heads(const Tensor& weights) {
  const std::int64_t size = weights.size(0), heads = weights.size(1),
                     pairs = weights.size(2) * weights.size(3);
  Tensor mean = Tensor::zeros(DType::f32, {size, weights.size(2), weights.size(3)});
  for (std::int64_t b = 0; b < size; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < pairs; ++i)
        mean.data<float>()[b * pairs + i] +=
            weights.data<float>()[(b * heads + h) * pairs + i] / static_cast<float>(heads);
  return mean;
}

}  // namespace

struct Rung::Layers {
  nn::Embedding words;
  nn::Parameter* output_bias = nullptr;
  // with recurrence
  nn::RnnLayer forward, backward, decoder;
  SelfAttentive forward_reads, backward_reads, decoder_reads;
  nn::Linear bridge, fixed, key, readout;
  // without
  nn::MultiHeadAttention itself, before, across;
  nn::Norm itself_norm, before_norm, across_norm;
  nn::TransformerStack encoder_stack, decoder_stack;
};

Rung::Rung(const Options& o, std::uint64_t seed)
    : options_(o), set_(seed), layers_(std::make_unique<Layers>()) {
  Layers& l = *layers_;
  const std::int64_t d = o.dim;
  l.words = nn::Embedding(set_, "words", o.vocabulary, d);
  l.output_bias = &set_.constant("output.bias", {o.vocabulary}, 0.0f);
  const auto gru = [&](const std::string& name) {
    return nn::RnnLayer(set_, name, autograd::Cell::gru, d, d);
  };
  switch (o.kind) {
    case Kind::rnn:
      l.fixed = nn::Linear(set_, "fixed", 2 * d, 3 * d, nn::Linear::Bias::without);
      [[fallthrough]];
    case Kind::rnn_attention:
      l.forward = gru("encoder.forward");
      l.backward = gru("encoder.backward");
      l.decoder = gru("decoder");
      break;
    case Kind::rnn_self_attention:
      l.forward_reads = SelfAttentive(set_, "encoder.forward", d);
      l.backward_reads = SelfAttentive(set_, "encoder.backward", d);
      l.decoder_reads = SelfAttentive(set_, "decoder", d);
      break;
    case Kind::one_layer:
      l.itself = nn::MultiHeadAttention(set_, "encoder", d, {.num_query_heads = num_heads});
      l.before = nn::MultiHeadAttention(set_, "decoder.self", d, {.num_query_heads = num_heads});
      l.across = nn::MultiHeadAttention(set_, "decoder.cross", d, {.num_query_heads = num_heads});
      l.itself_norm = nn::Norm(set_, "encoder.norm", d);
      l.before_norm = nn::Norm(set_, "decoder.self.norm", d);
      l.across_norm = nn::Norm(set_, "decoder.cross.norm", d);
      break;
    case Kind::transformer: {
      const auto stack = [&](const std::string& name,
                             nn::TransformerOptions::CrossAttention cross_attention) {
        nn::StackSpec spec = nn::stack_of({.layers = o.layers,
                                           .dim = d,
                                           .feed_forward = o.feed_forward,
                                           .heads = num_heads,
                                           .cross_attention = cross_attention});
        if (o.positions != Positions::added) nn::add_rotary(spec, longest_position);
        return nn::TransformerStack(set_, name, spec);
      };
      l.encoder_stack = stack("encoder", nn::TransformerOptions::CrossAttention::without);
      l.decoder_stack = stack("decoder", nn::TransformerOptions::CrossAttention::with);
      break;
    }
  }
  if (!recurrent(o.kind)) return;
  l.bridge = nn::Linear(set_, "bridge", 2 * d, d);
  if (o.kind != Kind::rnn) l.key = nn::Linear(set_, "attention.key", 2 * d, d, nn::Linear::Bias::without);
  l.readout = nn::Linear(set_, "readout", 4 * d, d);  // state, context, word
}

Rung::~Rung() = default;

Var Rung::embed(Context& context, const std::vector<std::int32_t>& ids, std::int64_t size) const {
  const auto length = static_cast<std::int64_t>(ids.size()) / size, d = options_.dim;
  const float factor = recurrent(options_.kind) ? 1.0f : std::sqrt(static_cast<float>(d));
  const Var words = reshape(layers_->words(context, ids, factor), {size, length, d});
  const bool added = options_.kind == Kind::one_layer ||
                     (options_.kind == Kind::transformer && options_.positions != Positions::turned);
  return added ? nn::add_positions(words, nn::sinusoidal_positions(0, length, d)) : words;
}

Rung::Memory Rung::encode(Context& context, const models::Batch& batch) const {
  const Layers& l = *layers_;
  const Var x = embed(context, batch.source, batch.size);
  const auto& lengths = batch.source_lengths;
  if (options_.kind == Kind::transformer)
    return {l.encoder_stack(context, x, {.mask = KeyLengths{}, .lengths = lengths}), {}};
  if (options_.kind == Kind::one_layer)
    return {l.itself_norm(context,
                          add(x, l.itself(context, x, x, {.mask = KeyLengths{}, .key_lengths = lengths}))),
            {}};

  std::array<Var, 2> directions, ends;
  if (options_.kind == Kind::rnn_self_attention) {
    const Var zero(Tensor::zeros(DType::f32, {batch.size, options_.dim}));
    directions[0] = l.forward_reads(context, x, zero);
    const Var from_behind = l.backward_reads(context, reversed(x, lengths), zero);
    directions[1] = reversed(from_behind, lengths);
    ends = {last_rows(directions[0], lengths), last_rows(from_behind, lengths)};
  } else {
    directions = {l.forward.sequence(context, x, Direction::forward, {}, lengths),
                  l.backward.sequence(context, x, Direction::backward, {}, lengths)};
    ends = {last_rows(directions[0], lengths),
            reshape(slice(directions[1], 1, 0, 1), {batch.size, options_.dim})};
  }
  return {concat(directions, 2), concat(ends, 1)};
}

Var Rung::decode(Context& context, const Memory& memory, const models::Batch& batch, Tensor* weights) const {
  const Layers& l = *layers_;
  const std::int64_t size = batch.size, steps = batch.target_len, d = options_.dim;
  const auto& lengths = batch.source_lengths;
  const Var words = embed(context, batch.target_input, size);
  if (options_.kind == Kind::transformer) {
    const std::size_t asked = l.decoder_stack.size() >= 2 ? l.decoder_stack.size() - 2 : 0;
    return l.decoder_stack(context, words,
                           {.mask = Causal{},
                            .memory = memory.states,
                            .memory_mask = KeyLengths{},
                            .memory_lengths = lengths,
                            .weights = [&](std::string_view place, std::size_t layer) {
                              return place == "memory" && layer == asked ? weights : nullptr;
                            }});
  }
  if (options_.kind == Kind::one_layer) {
    const Var y = l.before_norm(context, add(words, l.before(context, words, words, {.mask = Causal{}})));
    const nn::MultiHeadAttention::Call call{.mask = KeyLengths{}, .key_lengths = lengths, .weights = weights};
    return l.across_norm(context, add(y, l.across(context, y, memory.states, call)));
  }

  const Var first = autograd::tanh(l.bridge(context, memory.first));
  Var states, contexts;
  if (options_.kind == Kind::rnn) {
    // All that is known of the sentence, again at every step.
    const std::vector<std::int64_t> again(static_cast<std::size_t>(size * steps), 0);
    contexts = gather_rows(reshape(memory.first, {size, 1, 2 * d}), again, steps);
    const Var gates = add(l.decoder.input(context, words), l.fixed(context, contexts));
    states =
        cell_sequence(autograd::Cell::gru, Direction::forward, gates, first, context.use(*l.decoder.weight),
                      context.use(*l.decoder.bias), batch.target_lengths);
  } else {
    states = options_.kind == Kind::rnn_attention
                 ? l.decoder.sequence(context, words, Direction::forward, first, batch.target_lengths)
                 : l.decoder_reads(context, words, first);
    const autograd::AttentionCall call{
        .spec = {.mask = KeyLengths{}}, .key_lengths = lengths, .weights = weights};
    contexts = attention(call, states, l.key(context, memory.states), memory.states);
  }
  const std::array<Var, 3> seen{states, contexts, words};
  return autograd::tanh(l.readout(context, concat(seen, 2)));
}

Var Rung::loss(Context& context, const models::Batch& batch, float scale) const {
  const Var read = decode(context, encode(context, batch), batch, nullptr);
  return linear_cross_entropy(reshape(read, {batch.size * batch.target_len, options_.dim}),
                              context.use(*layers_->words.table), context.use(*layers_->output_bias),
                              batch.target_output, 0.0f, {.scale = scale});
}

std::vector<std::vector<std::int32_t>> Rung::translate(const models::Batch& sources,
                                                       std::int64_t longest) const {
  Context context;
  const Memory memory = encode(context, sources);
  models::Batch batch = sources;
  std::vector<std::vector<std::int32_t>> written(static_cast<std::size_t>(batch.size));
  std::vector<bool> ended(written.size(), false);
  for (std::int64_t step = 0; step < longest && std::find(ended.begin(), ended.end(), false) != ended.end();
       ++step) {
    batch.target_len = step + 1;
    batch.target_lengths.assign(written.size(), step + 1);
    batch.target_input.clear();
    for (const auto& words : written) {
      batch.target_input.push_back(text::kBosId);
      batch.target_input.insert(batch.target_input.end(), words.begin(), words.end());
    }
    const Var read = slice(decode(context, memory, batch, nullptr), 1, step, 1);
    const Tensor logits = linear(reshape(read, {batch.size, options_.dim}),
                                 context.use(*layers_->words.table), context.use(*layers_->output_bias))
                              .value();
    const std::vector<std::int32_t> next = autograd::argmax_rows(logits);
    for (std::size_t i = 0; i < written.size(); ++i) {
      ended[i] = ended[i] || next[i] == text::kEosId;
      written[i].push_back(ended[i] ? text::kEosId : next[i]);
    }
  }
  for (auto& words : written) words.erase(std::find(words.begin(), words.end(), text::kEosId), words.end());
  return written;
}

Tensor Rung::align(const models::Batch& batch) const {
  if (options_.kind == Kind::rnn) return {};
  Context context;
  Tensor weights;
  (void)decode(context, encode(context, batch), batch, &weights);
  return mean_of_heads(weights);
}

std::int64_t Rung::critical_path(const Options& o, std::int64_t n) {
  switch (o.kind) {
    case Kind::rnn:
      return 2 * n;  // encoder, whose directions run side by side, then decoder
    case Kind::rnn_attention:
      return 2 * n + 1;
    case Kind::rnn_self_attention:
      return 4 * n + 1;
    case Kind::one_layer:
      return 2;  // the two self-attentions run side by side, then the third reads both
    case Kind::transformer:
      return 2 * o.layers + 3 * o.layers;
  }
  return 0;
}

}  // namespace ladder

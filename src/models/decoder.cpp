#include "fovea/models/decoder.h"

#include <algorithm>
#include <cmath>

#include "fovea/core/philox.h"
#include "models/stack.h"

namespace fovea::models {

using nn::Context;
using nn::Var;

namespace {

nn::StackSpec spec_of(const DecoderConfig& config) {
  nn::StackSpec spec = stack_spec(config, config.layers, CrossAttention::with);
  spec.positions = nn::SinusoidalPositions{};
  return spec;
}

}  // namespace

Decoder::Decoder(nn::ParameterSet& set, const std::string& name, const DecoderConfig& config)
    : config_(config),
      embedding_(set, name + ".embed_tokens", config.vocabulary, config.dim),
      stack_(set, name, spec_of(config)),
      output_(set, name + ".output", config.dim, config.vocabulary) {}

Var Decoder::embed(Context& context, std::span<const std::int32_t> ids, std::int64_t size,
                   std::int64_t first) const {
  const std::int64_t length = static_cast<std::int64_t>(ids.size()) / size;
  const Var words = embedding_(context, ids, std::sqrt(static_cast<float>(config_.dim)));
  return stack_.enter(context, reshape(words, {size, length, config_.dim}), first);
}

// Rows of padding come after an entry's end, so Causal{} hides them from all real rows.
nn::TransformerStack::Call Decoder::call(const DecoderMemory& memory) const {
  nn::TransformerStack::Call call{.mask = Causal{}, .memory = memory.rows};
  if (!memory.lengths.empty()) {
    call.memory_mask = KeyLengths{};
    call.memory_lengths = memory.lengths;
  }
  return call;
}

namespace {

void hide_words(Padded& inputs, const DecoderConfig& config, std::uint64_t seed, std::uint64_t stream) {
  PhiloxStream random(seed ^ (0x9E3779B97F4A7C15u * stream));
  for (std::int32_t& id : inputs.ids) {
    if (random.next_uniform() < config.word_dropout && id != config.begin) id = config.unknown;
  }
}

}  // namespace

Var Decoder::loss(Context& context, std::span<const std::vector<std::int32_t>> sequences,
                  const DecoderMemory& memory, const LossOptions& options,
                  autograd::CrossEntropyStats* stats) const {
  if (static_cast<std::int64_t>(sequences.size()) != memory.rows.size(0)) {
    throw InvalidArgument("Decoder::loss", "sequences",
                          std::to_string(memory.rows.size(0)) + ", one for each entry of the memory",
                          std::to_string(sequences.size()));
  }
  std::vector<std::vector<std::int32_t>> shifted;
  for (const auto& sequence : sequences) {
    shifted.push_back({config_.begin});
    shifted.back().insert(shifted.back().end(), sequence.begin(), sequence.end());
  }
  Padded inputs = pad(shifted);
  if (context.training() && config_.word_dropout > 0.0f)
    hide_words(inputs, config_, context.dropout_seed, ++context.dropout_stream);
  std::vector<std::int32_t> targets(inputs.ids.size(), -1);
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    const auto row = targets.begin() + static_cast<std::ptrdiff_t>(b) * inputs.length;
    *std::copy(sequences[b].begin(), sequences[b].end(), row) = config_.end;
  }
  const Var hidden = stack_(context, embed(context, inputs.ids, inputs.size, 0), call(memory));
  return autograd::linear_cross_entropy(reshape(hidden, {inputs.size * inputs.length, config_.dim}),
                                        context.use(*output_.weight), context.use(*output_.bias), targets,
                                        options.smoothing, options.reduction, stats);
}

float Decoder::mean_scale(std::span<const std::vector<std::int32_t>> sequences) {
  std::size_t terms = sequences.size();
  for (const auto& sequence : sequences) terms += sequence.size();
  return 1.0f / static_cast<float>(terms);
}

namespace {

// The last row of [B, heads, L, M], mean of the heads, into row `step` of [B, steps, M].
void keep_last_row(const Tensor& weights, Tensor& read, std::int64_t step) {
  const std::int64_t heads = weights.size(1), length = weights.size(2), keys = weights.size(3);
  for (std::int64_t b = 0; b < weights.size(0); ++b) {
    float* to = read.data<float>() + (b * read.size(1) + step) * keys;
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* from = weights.data<float>() + ((b * heads + h) * length + length - 1) * keys;
      for (std::int64_t j = 0; j < keys; ++j) to[j] += from[j] / static_cast<float>(heads);
    }
  }
}

}  // namespace

std::span<const float> Written::row(std::size_t layer, std::size_t entry, std::size_t step) const {
  if (layer >= read.size() || entry >= ids.size() || step > ids[entry].size()) {
    throw InvalidArgument("Written::row", "layer, entry, step", "what was written",
                          std::to_string(layer) + ", " + std::to_string(entry) + ", " + std::to_string(step));
  }
  const auto steps = static_cast<std::size_t>(read[layer].size(1));
  const auto keys = static_cast<std::size_t>(read[layer].size(2));
  return {read[layer].data<float>() + (entry * steps + step) * keys, keys};
}

Written Decoder::greedy(const DecoderMemory& memory, std::int64_t longest, Reuse reuse) const {
  const std::int64_t size = memory.rows.size(0), keys = memory.rows.size(1);
  const auto entries = static_cast<std::size_t>(size);
  Context context;
  std::vector<Tensor> weights(stack_.size());
  nn::TransformerStack::Call how = call(memory);
  how.weights = [&](std::string_view place, std::size_t layer) {
    return place == "memory" ? &weights[layer] : nullptr;
  };
  Written written;
  written.ids.resize(entries);
  for (std::size_t layer = 0; layer < stack_.size(); ++layer)
    written.read.push_back(Tensor::zeros(DType::f32, {size, longest + 1, keys}));
  nn::TransformerStack::Cache cache;
  if (reuse == Reuse::on) cache = stack_.start(context, memory.rows);

  std::vector<std::vector<std::int32_t>> rows(entries, {config_.begin});
  std::vector<char> ended(entries, 0);
  for (std::int64_t step = 0; step <= longest; ++step) {
    Var hidden;
    if (reuse == Reuse::on) {
      std::vector<std::int32_t> last;
      for (const auto& row : rows) last.push_back(row.back());
      hidden = stack_.extend(context, embed(context, last, size, step), cache, how);
    } else {
      const Var all = stack_(context, embed(context, pad(rows).ids, size, 0), how);
      hidden = autograd::slice(all, 1, step, 1);
    }
    for (std::size_t layer = 0; layer < stack_.size(); ++layer)
      keep_last_row(weights[layer], written.read[layer], step);
    const Tensor logits = output_(context, hidden).value();
    bool all_ended = true;
    for (std::size_t b = 0; b < entries; ++b) {
      const float* row = logits.data<float>() + static_cast<std::int64_t>(b) * config_.vocabulary;
      const auto best = static_cast<std::int32_t>(std::max_element(row, row + config_.vocabulary) - row);
      ended[b] = ended[b] || best == config_.end || step == longest;
      if (!ended[b]) written.ids[b].push_back(best);
      rows[b].push_back(best);
      all_ended = all_ended && ended[b];
    }
    if (all_ended) break;
  }
  return written;
}

}  // namespace fovea::models

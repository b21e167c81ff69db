#include "fovea/models/sequence_to_sequence.h"

#include <algorithm>
#include <iterator>

#include "fovea/core/kept_vector.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "models/configs.h"

namespace fovea::models {

namespace {

bool has_padding(std::span<const std::int64_t> lengths, std::int64_t length) {
  return std::ranges::any_of(lengths, [&](std::int64_t n) { return n < length; });
}

// The first target_lengths[n] of every sequence n.
template <class T>
KeptVector<T> of_words(std::span<const T> padded, const Batch& batch) {
  KeptVector<T> kept;
  kept.reserve(padded.size());
  for (std::size_t n = 0; n < batch.target_lengths.size(); ++n) {
    const auto sequence = padded.subspan(n * static_cast<std::size_t>(batch.target_len),
                                         static_cast<std::size_t>(batch.target_lengths[n]));
    kept.insert(kept.end(), sequence.begin(), sequence.end());
  }
  return kept;
}

}  // namespace

nn::Var SequenceToSequence::hidden_of_words(nn::Context& /*context*/, const Batch& /*batch*/) {
  return {};
}

nn::Var SequenceToSequence::loss(nn::Context& context, const Batch& batch, const LossOptions& options,
                                 autograd::CrossEntropyStats* stats) {
  const auto of = [&](const nn::Var& rows, std::span<const std::int32_t> targets,
                      const autograd::Reduction& reduction) {
    return autograd::linear_cross_entropy(rows, output_weight(context), output_bias(context), targets,
                                          options.smoothing, reduction, stats);
  };
  const std::span<const float> weights = options.reduction.weights;
  if ((has_padding(batch.source_lengths, batch.source_len) ||
       has_padding(batch.target_lengths, batch.target_len)) &&
      (weights.empty() || weights.size() == batch.target_output.size())) {
    const nn::Var words = hidden_of_words(context, batch);
    const KeptVector<float> of_targets = weights.empty() ? KeptVector<float>() : of_words(weights, batch);
    autograd::Reduction reduction = options.reduction;
    reduction.weights = of_targets;
    if (!words.empty())
      return of(words, of_words(std::span<const std::int32_t>(batch.target_output), batch), reduction);
  }
  return of(hidden(context, batch, nullptr, nullptr), batch.target_output, options.reduction);
}

namespace {

// How many logits are computed before they are looked through. A megabyte of them stays in the second-level
// cache, but each piece reads all weights. A matrix of 20 MB comes from memory each time, and then pieces of
// 16 MB cost less: beams of 5 of a base model took 0.95 of the time. With int8 weights of 1.2 MB they took
// 1.06. Sizes between 5 and 20 MB were not measured.
std::int64_t logits_of_piece(const nn::Var& weight) {
  constexpr std::int64_t large = std::int64_t{8} << 20;
  const std::int64_t bytes =
      weight.packed() ? weight.packed()->bytes() : weight.value().count() * std::int64_t{sizeof(float)};
  return bytes > large ? 1 << 22 : 1 << 18;
}

}  // namespace

std::vector<std::vector<autograd::Probable>> SequenceToSequence::most_probable(
    const nn::Var& hidden, std::size_t count, std::span<const std::int32_t> without,
    autograd::LogProbabilities numbers) {
  nn::Context inference;
  const nn::Var weight = output_weight(inference), bias = output_bias(inference);
  const std::int64_t rows = hidden.size(0),
                     piece = std::max<std::int64_t>(12, logits_of_piece(weight) / vocabulary() / 12 * 12);
  std::vector<std::vector<autograd::Probable>> all;
  for (std::int64_t begin = 0; begin < rows; begin += piece) {
    const nn::Var some =
        piece >= rows ? hidden : autograd::slice(hidden, 0, begin, std::min(piece, rows - begin));
    const Tensor logits = autograd::linear(some.value(), weight, bias).value();
    auto best = autograd::most_probable(logits, count, without, numbers);
    std::move(best.begin(), best.end(), std::back_inserter(all));
  }
  return all;
}

Tensor SequenceToSequence::logits(const nn::Var& hidden) {
  nn::Context inference;
  return autograd::linear(hidden.value(), output_weight(inference), output_bias(inference)).value();
}

Tensor SequenceToSequence::log_probabilities(const nn::Var& hidden) {
  Tensor rows = logits(hidden);
  autograd::log_softmax_rows(rows);
  return rows;
}

std::unique_ptr<SequenceToSequence> make_model(const std::string& config, std::uint64_t seed) {
  return make_model(config, nn::ParameterSet(seed));
}

std::unique_ptr<SequenceToSequence> make_model(const std::string& config, nn::ParameterSet parameters) {
  const ModelConfig read = read_config(config);
  if (const auto* rnn = std::get_if<RnnConfig>(&read)) return make_rnn(*rnn, std::move(parameters));
  return make_transformer(std::get<TransformerConfig>(read), std::move(parameters));
}

Tensor alignment_of(const Capture& capture, const SequenceToSequence& model) {
  std::vector<const CapturedWeights*> cross;
  for (const CapturedWeights& captured : capture) {
    if (captured.name.starts_with("decoder.cross")) cross.push_back(&captured);
  }
  if (cross.empty() || !model.attends()) return {};
  // A capture of the alignment alone holds one; of all layers, the last but one aligns best in a Transformer
  // (Garg et al. 2019, arXiv 1909.02074, section 4.1).
  const Tensor& weights = cross[cross.size() >= 2 ? cross.size() - 2 : 0]->weights;
  const std::int64_t batch = weights.size(0), heads = weights.size(1),
                     block = weights.size(2) * weights.size(3);
  Tensor mean = Tensor::zeros(DType::f32, {batch, weights.size(2), weights.size(3)});
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* from = weights.data<float>() + (b * heads + h) * block;
      float* to = mean.data<float>() + b * block;
      for (std::int64_t i = 0; i < block; ++i) to[i] += from[i] / static_cast<float>(heads);
    }
  }
  return mean;
}

}  // namespace fovea::models

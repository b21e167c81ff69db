#include "network.h"

#include <algorithm>

namespace point {

using fovea::nn::Context;
using fovea::nn::Linear;
using fovea::nn::TransformerOptions;
using fovea::nn::Var;
using Output = NetworkConfig::Output;

Network::Network(fovea::nn::ParameterSet& set, const NetworkConfig& config)
    : config_(config), embed_(set, "embed", 3, config.dim) {
  TransformerOptions stack{.layers = config.encoder_layers,
                           .dim = config.dim,
                           .feed_forward = config.feed_forward,
                           .heads = config.heads};
  encoder_ = fovea::nn::TransformerStack(set, "encoder", stack_of(stack));
  stack.layers = config.decoder_layers;
  stack.cross_attention = TransformerOptions::CrossAttention::with;
  decoder_ = fovea::nn::TransformerStack(set, "decoder", stack_of(stack));
  if (config.output == Output::pointer) {
    query_ = Linear(set, "pointer.query", config.dim, config.dim);
    key_ = Linear(set, "pointer.key", config.dim, config.dim);
  } else {
    classes_ = Linear(set, "classes", config.dim, config.classes);
  }
}

Var Network::encode(Context& context, const Sets& sets) const {
  Var rows = embed_(context, sets.features);
  if (config_.output == Output::classes)
    rows = fovea::nn::add_positions(rows, fovea::nn::sinusoidal_positions(0, rows.size(1), config_.dim));
  return encoder_(context, rows, {});
}

Var Network::output(Context& context, const Var& decoded, const Var& memory) const {
  const std::int64_t rows = decoded.size(0) * decoded.size(1);
  if (config_.output == Output::classes) return reshape(classes_(context, decoded), {rows, config_.classes});
  // The mechanism: no values are aggregated, the weights themselves are the answer.
  const Var weights = fovea::autograd::attention_weights({}, query_(context, decoded), key_(context, memory));
  return reshape(weights, {rows, memory.size(1)});
}

Var Network::loss(Context& context, const Sets& sets) const {
  // Each step reads the row that the step before should have chosen; the first step reads the end's row.
  std::vector<std::int64_t> chosen(sets.targets.size(), 0);
  float steps = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const bool first = static_cast<std::int64_t>(i) % sets.steps == 0;
    if (!first) chosen[i] = std::max(0, sets.targets[i - 1]);
    if (sets.targets[i] >= 0) ++steps;
  }
  const Var memory = encode(context, sets);
  const Var decoded =
      decoder_(context, gather_rows(memory, chosen, sets.steps), {.mask = fovea::Causal{}, .memory = memory});
  const Var likely = output(context, decoded, memory);
  const Var sum = config_.output == Output::classes
                      ? fovea::autograd::cross_entropy(likely, sets.targets)
                      : fovea::autograd::negative_log_likelihood(likely, sets.targets);
  return scale(sum, 1.0f / steps);
}

std::vector<std::vector<std::int32_t>> Network::answer(const Sets& sets,
                                                       std::vector<fovea::Tensor>* weights) const {
  Context context;
  const Var memory = encode(context, sets);
  auto cache = decoder_.start(context, memory);
  std::vector<std::vector<std::int32_t>> answers(static_cast<std::size_t>(sets.size));
  std::vector<std::int64_t> chosen(answers.size(), 0);
  std::vector<bool> ended(answers.size(), false);
  // An answer is never longer than all inputs and the end.
  for (std::int64_t step = 0; step <= sets.points; ++step) {
    const Var rows = gather_rows(memory, chosen, 1);
    const Var decoded = decoder_.extend(context, rows, cache, {.mask = fovea::Causal{}});
    const Var likely = output(context, decoded, memory);
    if (weights) weights->push_back(likely.value());
    // Classes beyond the set are left out: the classifier is told how many inputs there are.
    const std::int64_t width = likely.size(1), rows_there = std::min(width, sets.points + 1);
    for (std::size_t b = 0; b < answers.size(); ++b) {
      const float* first = likely.value().data<float>() + static_cast<std::int64_t>(b) * width;
      chosen[b] = std::max_element(first, first + rows_there) - first;
      if (chosen[b] == 0) ended[b] = true;
      if (!ended[b]) answers[b].push_back(static_cast<std::int32_t>(chosen[b]));
    }
    if (std::find(ended.begin(), ended.end(), false) == ended.end()) break;
  }
  return answers;
}

}  // namespace point

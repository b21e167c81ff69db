#include "fovea/models/word_encoder.h"

#include <algorithm>
#include <cmath>

#include "fovea/core/philox.h"
#include "models/stack.h"

namespace fovea::models {

PaddedWords pad(std::span<const FeatureSentence> sentences, std::span<const std::size_t> index) {
  const auto refuse = [](const char* argument, const std::string& expected, const std::string& got) {
    throw InvalidArgument("pad", argument, expected, got);
  };
  if (index.empty()) refuse("index", "at least one", "none");
  PaddedWords padded;
  padded.size = static_cast<std::int64_t>(index.size());
  for (const std::size_t i : index) {
    if (i >= sentences.size())
      refuse("index", "below " + std::to_string(sentences.size()), std::to_string(i));
    if (sentences[i].empty()) refuse("sentences", "at least one word in each", "an empty one");
    padded.lengths.push_back(static_cast<std::int64_t>(sentences[i].size()));
    padded.length = std::max(padded.length, padded.lengths.back());
  }
  for (const std::size_t i : index) {
    for (const std::vector<std::int32_t>& word : sentences[i]) {
      if (word.empty()) refuse("sentences", "at least one feature a word", "a word of none");
      padded.ids.insert(padded.ids.end(), word.begin(), word.end());
      padded.counts.push_back(static_cast<std::int64_t>(word.size()));
    }
    padded.counts.resize(padded.counts.size() + static_cast<std::size_t>(padded.length) -
                         sentences[i].size());
  }
  return padded;
}

namespace {

// A third of Embedding's: a feature that never occurs in training keeps its initial values, which should have
// little effect.
constexpr float first_deviation = 0.3f;

}  // namespace

WordEncoder::WordEncoder(nn::ParameterSet& set, const std::string& name, const WordEncoderConfig& config)
    : config_(config),
      table_(&set.normal(name + ".embed_features.weight", {config.features, config.dim},
                         first_deviation / std::sqrt(static_cast<float>(config.dim)))),
      stack_(set, name, stack_spec(config, config.layers, CrossAttention::without)) {}

nn::Var WordEncoder::embed(nn::Context& context, const PaddedWords& words) const {
  // 1 / sqrt(n) for a word of n features: at the start a long word's embedding is no larger than a short
  // one's.
  std::vector<float> weights(words.ids.size());
  // A stream of its own, so that it does not move with the number of dropouts before it.
  PhiloxStream random(context.dropout_seed ^ 0xD1B54A32D192ED03u);
  std::size_t id = 0;
  for (const std::int64_t count : words.counts) {
    if (count == 0) continue;
    const bool unknown = context.training() && random.next_uniform() < config_.word_dropout;
    const float weight = std::sqrt(static_cast<float>(config_.dim) / static_cast<float>(count));
    for (std::int64_t i = 0; i < count; ++i) weights[id++] = unknown && i > 0 ? 0.0f : weight;
  }
  return reshape(autograd::embedding_sums(context.use(*table_), words.ids, words.counts, weights),
                 {words.size, words.length, config_.dim});
}

nn::Var WordEncoder::operator()(nn::Context& context, const PaddedWords& words, const Mask& mask,
                                const std::function<Tensor*(std::string_view, std::size_t)>& weights) const {
  const nn::Var placed =
      nn::add_positions(embed(context, words), nn::sinusoidal_positions(0, words.length, config_.dim));
  return stack_(context, context.dropout(placed, config_.dropout),
                {.mask = mask, .lengths = words.lengths, .weights = weights});
}

}  // namespace fovea::models

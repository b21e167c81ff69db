#include "fovea/models/encoder.h"

#include <algorithm>
#include <cmath>

#include "models/batch_checks.h"
#include "models/stack.h"

namespace fovea::models {

Padded pad(std::span<const std::vector<std::int32_t>> sequences, std::int32_t pad_id) {
  if (sequences.empty()) throw InvalidArgument("pad", "sequences", "at least one", "none");
  Padded padded;
  padded.size = static_cast<std::int64_t>(sequences.size());
  for (const auto& sequence : sequences) {
    if (sequence.empty())
      throw InvalidArgument("pad", "sequences", "at least one id in each", "an empty one");
    padded.lengths.push_back(static_cast<std::int64_t>(sequence.size()));
    padded.length = std::max(padded.length, padded.lengths.back());
  }
  padded.ids.assign(static_cast<std::size_t>(padded.size * padded.length), pad_id);
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    std::copy(sequences[b].begin(), sequences[b].end(),
              padded.ids.begin() + static_cast<std::ptrdiff_t>(b) * padded.length);
  }
  return padded;
}

namespace {

nn::StackSpec spec_of(const EncoderConfig& config) {
  nn::StackSpec spec = stack_spec(config, config.layers, CrossAttention::without);
  spec.positions = nn::SinusoidalPositions{};
  return spec;
}

}  // namespace

Encoder::Encoder(nn::ParameterSet& set, const std::string& name, const EncoderConfig& config)
    : config_(config),
      embedding_(set, name + ".embed_tokens", config.vocabulary, config.dim),
      stack_(set, name, spec_of(config)) {}

nn::Var Encoder::embed(nn::Context& context, const Padded& tokens) const {
  check("Encoder", tokens);
  const nn::Var words = embedding_(context, tokens.ids, std::sqrt(static_cast<float>(config_.dim)));
  return stack_.enter(context, reshape(words, {tokens.size, tokens.length, config_.dim}));
}

nn::Var Encoder::operator()(nn::Context& context, const Padded& tokens,
                            const std::function<Tensor*(std::string_view, std::size_t)>& weights) const {
  return stack_(context, embed(context, tokens),
                {.mask = KeyLengths{}, .lengths = tokens.lengths, .weights = weights});
}

}  // namespace fovea::models

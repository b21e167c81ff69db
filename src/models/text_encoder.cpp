#include "fovea/models/text_encoder.h"

#include <string>
#include <utility>

#include "fovea/core/error.h"

namespace fovea::models {

TextEncoder::TextEncoder(const TextEncoderSpec& spec, nn::ParameterSet::Source source)
    : spec_(spec),
      parameters_(std::make_unique<nn::ParameterSet>(std::move(source))),
      embedding_(*parameters_, "embed_tokens", spec.vocabulary, spec.stack.dim) {
  if (spec.token_types > 0)
    types_ = nn::Embedding(*parameters_, "embed_types", spec.token_types, spec.stack.dim);
  stack_ = nn::TransformerStack(*parameters_, "encoder", spec.stack);
  if (!spec.head) return;
  const std::int64_t dim = spec.stack.dim;
  dense_ = nn::Linear(*parameters_, "head.dense", dim, dim, spec.head->dense_bias);
  norm_.emplace(*parameters_, "head.norm", dim, spec.head->norm);
  output_ = spec.head->output == MaskedHeadSpec::Output::tied
                ? embedding_.table
                : &parameters_->xavier("head.decoder.weight", {spec.vocabulary, dim});
  if (spec.head->output_bias == nn::Linear::Bias::with)
    output_bias_ = &parameters_->constant("head.decoder.bias", {spec.vocabulary}, 0.0f);
}

nn::Var TextEncoder::hidden(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
                            std::span<const std::int32_t> types) const {
  const auto refuse = [](const char* argument, std::string expected, std::string got) {
    throw InvalidArgument("TextEncoder::hidden", argument, std::move(expected), std::move(got));
  };
  if (sequences.empty()) refuse("sequences", "at least one", "none");
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> starts{0};
  for (const std::vector<std::int32_t>& sequence : sequences) {
    if (sequence.empty()) refuse("sequences", "at least one id in each", "none");
    for (const std::int32_t id : sequence) {
      if (spec_.pad_id && id == *spec_.pad_id)
        refuse("sequences", "ids other than the padding, which has no position", std::to_string(id));
    }
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    starts.push_back(std::ssize(ids));
  }
  if (!types.empty() && types.size() != ids.size())
    refuse("types", "one for each of " + std::to_string(ids.size()) + " ids", std::to_string(types.size()));
  nn::Var rows = embedding_(context, ids);
  if (types_.table) {
    const std::vector<std::int32_t> zeros(types.empty() ? ids.size() : 0);
    rows = add(rows, types_(context, types.empty() ? zeros : types));
  } else if (!types.empty()) {
    refuse("types", "none: the model has no table of them", std::to_string(types.size()));
  }
  const std::vector<std::int64_t> first(sequences.size(), 0);
  rows = stack_.enter(context, reshape(rows, {1, std::ssize(ids), spec_.stack.dim}), starts, first);
  return stack_(context, rows, {.starts = starts});
}

Tensor TextEncoder::logits(const nn::Var& hidden) const {
  if (!output_)
    throw InvalidArgument("TextEncoder::logits", "model", "one with the head of a masked language model",
                          "one without");
  nn::Context inference;
  const Tensor rows = hidden.value().reshape({hidden.value().count() / spec_.stack.dim, spec_.stack.dim});
  const nn::Var x = (*norm_)(inference, activate(spec_.head->activation, dense_(inference, rows)));
  return autograd::linear(x, output_->value, output_bias_ ? nn::Var(output_bias_->value) : nn::Var()).value();
}

}  // namespace fovea::models

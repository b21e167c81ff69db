#include "fovea/nn/resampler.h"

#include <utility>

#include "nn/made.h"

namespace fovea::nn {

Resampler::Resampler(ParameterSet& set, const std::string& name, std::int64_t dim,
                     const ResamplerOptions& options) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"latents", options.latents}, {"layers", options.layers}, {"feed_forward", options.feed_forward}};
  for (const auto& [argument, size] : sizes) {
    if (size < 1)
      throw InvalidArgument("Resampler", std::string("options.") + argument, "at least 1",
                            std::to_string(size));
  }
  latents_ = &set.normal(name + ".latents", {options.latents, dim}, 1.0f);
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string layer = name + ".layers." + std::to_string(i);
    const PlainMlp mlp{.inner = options.feed_forward, .activation = autograd::Activation::gelu};
    layers_.push_back(
        {.attention = {set, layer + ".encoder_attn", dim, {.num_query_heads = options.num_heads}},
         .latent_norm = {set, layer + ".latent_layer_norm", dim},
         .memory_norm = {set, layer + ".memory_layer_norm", dim},
         .final_norm = {set, layer + ".final_layer_norm", dim},
         .feed_forward = {set, layer, dim, mlp}});
  }
  norm_ = Norm(set, name + ".layer_norm", dim);
}

Var Resampler::operator()(Context& context, const Var& x, std::span<const std::int64_t> lengths,
                          Tensor* weights) const {
  check_made("Resampler", "options", latents_);
  const std::int64_t count = latents_->value.size(0), dim = latents_->value.size(1);
  if (x.shape().rank() != 3 || x.size(2) != dim)
    throw InvalidArgument("Resampler", "x", "[B, L, " + std::to_string(dim) + "]", to_string(x.shape()));
  MultiHeadAttention::Call call;
  std::vector<std::int64_t> key_lengths;
  for (const std::int64_t length : lengths) key_lengths.push_back(count + length);
  if (!lengths.empty()) {
    call.mask = KeyLengths{};
    call.key_lengths = key_lengths;
  }
  Var latents = repeated_rows(context, *latents_, x.size(0));
  for (const Layer& layer : layers_) {
    const Var asked = layer.latent_norm(context, latents);
    const std::vector<Var> read{asked, layer.memory_norm(context, x)};
    call.weights = &layer == &layers_.back() ? weights : nullptr;
    latents = add(latents, layer.attention(context, asked, autograd::concat(read, 1), call));
    latents = add(latents, layer.feed_forward(context, layer.final_norm(context, latents)));
  }
  return norm_(context, latents);
}

}  // namespace fovea::nn

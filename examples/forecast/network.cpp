#include "network.h"

#include <algorithm>
#include <string_view>

namespace forecast {

constexpr std::int64_t kWarmUp = 32;  // values of a window that are not predicted: a season and a few

using fovea::Tensor;
using fovea::nn::Context;
using fovea::nn::Var;

Network::Network(fovea::nn::ParameterSet& set, const NetworkConfig& config)
    : config_(config),
      embed_(set, "embed", 1, config.dim),
      predict_(set, "predict", config.dim, 1),
      stack_(set, "stack",
             fovea::nn::stack_of({.layers = config.layers,
                                  .dim = config.dim,
                                  .feed_forward = config.feed_forward,
                                  .heads = config.heads})) {}

fovea::nn::TransformerStack::Call Network::call() const {
  fovea::nn::TransformerStack::Call call;
  call.mask = fovea::Causal{};
  if (config_.sees == NetworkConfig::Sees::itself)
    call.mask = fovea::Causal{} & fovea::SlidingWindow{.lookback = 0, .lookahead = 0};
  return call;
}

Var Network::rows(Context& context, const std::vector<Window>& windows, std::int64_t first,
                  std::int64_t count) const {
  const Tensor values(fovea::DType::f32, {static_cast<std::int64_t>(windows.size()), count, 1});
  float* to = values.data<float>();
  for (const Window& window : windows) to = std::copy_n(window.values.begin() + first, count, to);
  return fovea::nn::add_positions(embed_(context, values),
                                  fovea::nn::sinusoidal_positions(first, count, config_.dim));
}

Var Network::loss(Context& context, const std::vector<Window>& windows) const {
  const std::int64_t size = static_cast<std::int64_t>(windows.size()), count = kWindow - 1;
  const Var predicted = predict_(context, stack_(context, rows(context, windows, 0, count), call()));
  const Tensor target(fovea::DType::f32, predicted.shape());
  std::vector<float> weight(static_cast<std::size_t>(size * count), 0.0f);
  for (std::int64_t b = 0; b < size; ++b) {
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t at = b * count + t;
      target.data<float>()[at] = windows[static_cast<std::size_t>(b)].values[static_cast<std::size_t>(t + 1)];
      if (t >= kWarmUp)
        weight[static_cast<std::size_t>(at)] = 1.0f / static_cast<float>(size * (count - kWarmUp));
    }
  }
  return squared_error(predicted, target, {weight});
}

std::vector<std::vector<float>> Network::forecast(const std::vector<Window>& windows) const {
  Context context;
  auto cache = stack_.start(context);
  // The values to be forecast are removed, so that they cannot leak into the forecast.
  std::vector<Window> known = windows;
  for (Window& window : known) window.values.resize(kContext);
  Var read = stack_.extend(context, rows(context, known, 0, kContext), cache, call());
  Var last = slice(read, 1, kContext - 1, 1);
  std::vector<std::vector<float>> forecasts(windows.size());
  for (std::int64_t t = kContext; t < kWindow; ++t) {
    const Tensor next = predict_(context, last).value();
    for (std::size_t b = 0; b < known.size(); ++b) {
      forecasts[b].push_back(next.data<float>()[b]);
      known[b].values.push_back(forecasts[b].back());
    }
    if (t + 1 < kWindow) last = stack_.extend(context, rows(context, known, t, 1), cache, call());
  }
  return forecasts;
}

std::vector<Tensor> Network::weights(const std::vector<Window>& windows) const {
  Context context;
  std::vector<Tensor> weights(stack_.size());
  auto call = this->call();
  call.weights = [&](std::string_view, std::size_t layer) { return &weights[layer]; };
  stack_(context, rows(context, windows, 0, kWindow - 1), call);
  return weights;
}

}  // namespace forecast

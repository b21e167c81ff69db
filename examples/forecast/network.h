// A causal Transformer over values instead of words. Each row is one step and predicts the next value.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/nn/transformer.h"
#include "series.h"

namespace forecast {

struct NetworkConfig {
  /// What a row attends to: every earlier row, or itself alone. The latter leaves a network without
  /// attention, which knows nothing but the last value.
  enum class Sees : std::uint8_t { past, itself };
  Sees sees = Sees::past;
  std::int64_t dim = 64, feed_forward = 128, heads = 4, layers = 2;
};

class Network {
 public:
  Network(fovea::nn::ParameterSet& set, const NetworkConfig& config);
  /// Mean squared error of predicting each value of the windows from those before it. The first values of a
  /// window are left out: nobody can know a season from less than one season.
  fovea::nn::Var loss(fovea::nn::Context& context, const std::vector<Window>& windows) const;
  /// The kHorizon values after the known ones: each is predicted from all before it, predicted ones
  /// included.
  std::vector<std::vector<float>> forecast(const std::vector<Window>& windows) const;
  /// The weights of every layer, [windows, heads, kWindow - 1, kWindow - 1], with all values known.
  std::vector<fovea::Tensor> weights(const std::vector<Window>& windows) const;

 private:
  fovea::nn::Var rows(fovea::nn::Context& context, const std::vector<Window>& windows, std::int64_t first,
                      std::int64_t count) const;
  fovea::nn::TransformerStack::Call call() const;

  NetworkConfig config_;
  fovea::nn::Linear embed_, predict_;
  fovea::nn::TransformerStack stack_;
};

}  // namespace forecast

// The two models, hard and soft, over the same windows.
#pragma once

#include <cstdint>
#include <vector>

#include "canvas.h"
#include "fovea/nn/layers.h"
#include "fovea/nn/transformer.h"

namespace glimpse {

inline constexpr int glimpses = 4, classes = 10;

/// Where the next window goes: drawn from the weights, the best of them, or blindly.
enum class Choice { drawn, best, blind };

/// What happened while the hard model looked, one entry a glimpse; places are by canvas, then by glimpse.
struct Looks {
  std::vector<std::vector<std::int32_t>> places;
  std::vector<fovea::nn::Var> weights;   ///< [B, places]: what the place was chosen from; none if blindly
  std::vector<fovea::nn::Var> expected;  ///< [B, 1]: the reward to come, as it is expected before the look
  std::vector<fovea::nn::Var> logits;    ///< [B, classes], after the look
};

/// A GRU that looks: its state asks which place is next (attention over all places, by what the blurred look
/// says of their surroundings and by where they lie from here) and takes in what stands there.
struct HardModel {
  static constexpr std::int64_t dim = 128, key_dim = 32;
  fovea::nn::ParameterSet parameters;
  fovea::nn::Linear first, pixels, what, where_to, key, query, expected, output;
  fovea::nn::Recurrent memory;

  explicit HardModel(std::uint64_t seed);
  /// What is drawn follows from `seed`, of which glimpse g takes seed + g.
  Looks operator()(fovea::nn::Context& context, const Canvases& canvases, Choice choice,
                   std::uint64_t seed) const;

 private:
  std::vector<std::int32_t> choose(fovea::nn::Context& context, const fovea::nn::Var& state,
                                   const fovea::nn::Var& keys, Choice choice, std::uint64_t seed,
                                   Looks& looks) const;
};

/// Every window as a row, weighed by learned queries.
struct SoftModel {
  static constexpr std::int64_t dim = 96, queries = 4, hidden = 128;
  fovea::nn::ParameterSet parameters;
  fovea::nn::Linear pixels, mixed, output;
  fovea::nn::AttentionPooling pooling;

  explicit SoftModel(std::uint64_t seed);
  /// -> logits [B, classes]. `weights`, if given, receives [B, 1, queries, places].
  fovea::nn::Var operator()(fovea::nn::Context& context, const Canvases& canvases,
                            fovea::Tensor* weights = nullptr) const;
};

}  // namespace glimpse

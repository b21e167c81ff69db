// The two models, hard and soft, over the same windows.
#pragma once

#include <cstdint>
#include <vector>

#include "canvas.h"
#include "fovea/nn/layers.h"
#include "fovea/nn/transformer.h"

namespace glimpse {

inline constexpr int glimpses = 4, classes = 10;

/// How the next window is chosen: drawn from the weights, the one of largest weight, or uniformly at random.
enum class Choice { drawn, best, blind };

/// The glimpses of the hard model: one entry for each glimpse. `places` is indexed by canvas, then by
/// glimpse.
struct Looks {
  std::vector<std::vector<std::int32_t>> places;
  std::vector<fovea::nn::Var>
      weights;  ///< [B, places]: weights that the place was chosen by; none for `blind`
  std::vector<fovea::nn::Var> expected;  ///< [B, 1]: the reward that is expected before the glimpse
  std::vector<fovea::nn::Var> logits;    ///< [B, classes], after the glimpse
};

/// A GRU that takes glimpses. Its state chooses the next place by attention over all places; their keys are
/// the blurred surroundings and the relative position. Then the GRU reads the window there.
struct HardModel {
  static constexpr std::int64_t dim = 128, key_dim = 32;
  fovea::nn::ParameterSet parameters;
  fovea::nn::Linear first, pixels, what, where_to, key, query, expected, output;
  fovea::nn::RnnLayer memory;

  explicit HardModel(std::uint64_t seed);
  /// Random choices depend on `seed` alone: glimpse g uses seed + g.
  Looks operator()(fovea::nn::Context& context, const Canvases& canvases, Choice choice,
                   std::uint64_t seed) const;

 private:
  std::vector<std::int32_t> choose(fovea::nn::Context& context, const fovea::nn::Var& state,
                                   const fovea::nn::Var& keys, Choice choice, std::uint64_t seed,
                                   Looks& looks) const;
};

/// Attention of learned queries over all windows.
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

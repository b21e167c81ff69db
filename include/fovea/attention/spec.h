// What is computed (AttentionSpec) and how large (AttentionShape): plain values, no strings, no flags.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/attention/mod.h"
#include "fovea/attention/normalizer.h"
#include "fovea/attention/score.h"

namespace fovea {

/// Weights kept with probability 1 - rate and divided by it. Decisions are 8-bit, so the rate is rounded to
/// k/256 and the scale is that of the rounded rate: the mean is exact.
struct Dropout {
  double rate = 0.0;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

/// score·scale → mods in their order → mask → normalise → weight mods → dropout → aggregate.
struct AttentionSpec {
  Score score = ScaledDot{};
  /// Multiplies the score; by default 1/sqrt(head_dim) for ScaledDot and 1 for every other score.
  std::optional<double> scale = std::nullopt;
  /// At most 8. `{SoftCap{50}, AlibiBias{}}`.
  Mods mods = {};
  Mask mask = Everything{};
  Normalizer normalizer = Softmax{};
  /// Each multiplies the weight by what it makes of 1, or of what the one before made; nothing is normalised
  /// again. At most 8. `{LocalGaussian{5}}`.
  Mods weight_mods = {};
  Dropout dropout = {};
};

/// The largest sizes a plan serves. batch, query_len and key_len are capacities: a call may bring fewer, so
/// that a decoding loop never replans. Heads and dimensions are exact. Kv head of query head h is h /
/// (num_query_heads / num_kv_heads).
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t num_query_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t query_len = 0;
  std::int64_t key_len = 0;
  std::int64_t head_dim = 0;  ///< elements of a query
  /// Elements of a value. Left out, those of a query.
  std::int64_t value_dim = as_head_dim;
  static constexpr std::int64_t as_head_dim = -1;
  /// A value_dim for calls without values and output, which give weights alone (pointers).
  static constexpr std::int64_t no_values = 0;
  std::int64_t key_dim =
      0;  ///< elements of a key; 0 means head_dim. Differs only where the score has matrices.
  std::int64_t hidden = 0;  ///< Additive, Coverage, LowRankBilinear: the length of v, the rank.
};

/// Every argument that a call of this spec may bring, under its full name: those of the score, the mods, the
/// normaliser and the weight mods, in this order.
std::vector<DeclaredArgument> declared_arguments(const AttentionSpec& spec);

}  // namespace fovea

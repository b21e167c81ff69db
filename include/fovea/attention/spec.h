// The computation (AttentionSpec) and its sizes (AttentionShape): plain values, no strings, no flags.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/attention/mod.h"
#include "fovea/attention/normalizer.h"
#include "fovea/attention/score.h"

namespace fovea {

struct DeclaredArgument;  // argument.h

/// A weight is kept with probability 1 - rate, and then divided by 1 - rate. Decisions use 8 bits, so the
/// rate is rounded to k/256. The scale is that of the rounded rate: the mean is exact. A rate of 1/512 or
/// less is rounded to 0 and drops nothing. Any other is rounded to at most 255/256.
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
  /// Each multiplies the weight by a factor. The first mod gets 1 as its score, every other one the result of
  /// the mod before; the last result is the factor. The weights are not normalised again. At most 8.
  /// `{LocalGaussian{5}}`.
  Mods weight_mods = {};
  Dropout dropout = {};
};

/// The largest sizes that a plan serves. batch, query_len and key_len are capacities: a call may bring fewer,
/// so that a decoding loop never makes another plan. Heads and dimensions are exact. Query head h uses the kv
/// head h / (num_query_heads / num_kv_heads).
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t num_query_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t query_len = 0;
  std::int64_t key_len = 0;
  std::int64_t head_dim = 0;  ///< elements of a query
  /// Elements of a value. The default is head_dim.
  std::int64_t value_dim = as_head_dim;
  static constexpr std::int64_t as_head_dim = -1;
  /// The value_dim of calls without values and output, which compute weights alone (pointers).
  static constexpr std::int64_t no_values = 0;
  std::int64_t key_dim =
      0;  ///< elements of a key; 0 means head_dim. May differ only if the score has matrices.
  std::int64_t hidden = 0;  ///< Additive, Coverage: the length of v; LowRankBilinear: the rank; else unread
};

/// Every argument that a call of this spec may bring, under its full name: those of the score, the mods, the
/// normaliser and the weight mods, in this order.
std::vector<DeclaredArgument> declared_arguments(const AttentionSpec& spec);

}  // namespace fovea

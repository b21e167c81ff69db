// What is computed (AttentionSpec) and how large (AttentionShape): plain values, no strings, no flags.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "fovea/attention/mask.h"
#include "fovea/attention/mod.h"
#include "fovea/attention/score.h"

namespace fovea {

/// P = exp(s - lse): rows sum to 1.
struct Softmax {
  friend bool operator==(const Softmax&, const Softmax&) = default;
};
/// P = exp(s) / (exp(sink) + Σ exp(s)), a learned sink a query head: weight that goes to no key (gpt-oss;
/// Xiao et al. 2023, arXiv 2309.17453, section 3.2, "sink token"). The log-sum-exp leaves the sink out, so
/// that parts still merge.
struct SoftmaxWithSink {
  friend bool operator==(const SoftmaxWithSink&, const SoftmaxWithSink&) = default;
};
/// P = 1 / (1 + exp(-(s + bias))): rows do not sum to 1; a bias near -ln key_len begins as softmax does
/// (Ramapuram et al. 2024, arXiv 2409.04431). In the place of the log-sum-exp stands 0, -inf for a row that
/// sees no key, or only scores of -inf.
struct Sigmoid {
  double bias = 0.0;
  friend bool operator==(const Sigmoid&, const Sigmoid&) = default;
};
using Normalizer = std::variant<Softmax, SoftmaxWithSink, Sigmoid>;

/// Weights kept with probability 1 - rate and divided by it. Decisions are 8-bit, so the rate is rounded to
/// k/256 and the scale is that of the rounded rate: the mean is exact.
struct Dropout {
  double rate = 0.0;
  friend bool operator==(const Dropout&, const Dropout&) = default;
};

/// score·scale → mods in their order → mask → normalise → dropout → aggregate.
struct AttentionSpec {
  Score score = ScaledDot{};
  /// Multiplies the score; by default 1/sqrt(head_dim) for ScaledDot and 1 for every other score.
  std::optional<double> scale = std::nullopt;
  /// At most 8. `{SoftCap{50}, AlibiBias{}}`.
  Mods mods = {};
  Mask mask = Everything{};
  Normalizer normalizer = Softmax{};
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
  std::int64_t head_dim = 0;   ///< elements of a query
  std::int64_t value_dim = 0;  ///< elements of a value
  std::int64_t key_dim = 0;  ///< elements of a key; 0 means head_dim. Differs only for Bilinear and Additive.
  std::int64_t hidden = 0;   ///< Additive only: the length of v.
};

}  // namespace fovea

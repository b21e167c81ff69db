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
/// P = [(alpha - 1) s - tau]₊^(1 / (alpha - 1)), where tau makes a row sum to 1: scores far below the best
/// get a weight of exactly 0 (Peters et al. 2019, arXiv 1905.05702). alpha in (1, 2]: towards 1 it is
/// softmax, at 2 sparsemax. Whole-row, like all that follow: tau stands in the place of the log-sum-exp, and
/// parts of the keys do not merge. At alpha = 1.5 and 2 no power is taken; others
/// cost several a score.
struct Entmax {
  double alpha = 1.5;
  friend bool operator==(const Entmax&, const Entmax&) = default;
};
/// Entmax at alpha = 2: the Euclidean projection of the scores onto the simplex (Martins and Astudillo 2016,
/// arXiv 1602.02068).
struct Sparsemax {
  friend bool operator==(const Sparsemax&, const Sparsemax&) = default;
};
/// All weight on the best key, equal shares among several best. The weights have no derivative by the scores;
/// values have theirs. The best score stands in the place of the log-sum-exp.
struct HardArgmax {
  friend bool operator==(const HardArgmax&, const HardArgmax&) = default;
};
/// One key drawn from the softmax, by inputs.sample_seed and the site (attention/sample.h). The gradient by
/// the scores is the score function's: advantage · d ln P(key), with an advantage (the row's loss less a
/// baseline) for each row (Williams 1992; Xu et al. 2015, arXiv 1502.03044, eq. 11).
struct HardSample {
  friend bool operator==(const HardSample&, const HardSample&) = default;
};
/// One key drawn from the softmax; the gradient by the scores is that of softmax((s + noise) / temperature),
/// whose largest element was drawn (straight-through Gumbel-softmax; Jang et al. 2016, arXiv 1611.01144).
struct GumbelSample {
  double temperature = 1.0;
  friend bool operator==(const GumbelSample&, const GumbelSample&) = default;
};
/// P_ij = p(z_j = 1) of a chain of binary variables over the keys that the query sees, in their order: scores
/// are the potentials of z_j = 1, inputs.transitions those of neighbours (structured attention; Kim et al.
/// 2017, arXiv 1702.00887, section 3.1). Rows do not sum to 1; zero transitions give Sigmoid. ln Z stands in
/// the place of the log-sum-exp.
struct LinearChain {
  friend bool operator==(const LinearChain&, const LinearChain&) = default;
};
using Normalizer = std::variant<Softmax, SoftmaxWithSink, Sigmoid, Sparsemax, Entmax, HardArgmax, HardSample,
                                GumbelSample, LinearChain>;
/// True where weights of a part of the keys cannot be merged with those of the rest.
inline bool is_whole_row(const Normalizer& normalizer) {
  return normalizer.index() >= 3;
}

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
  std::int64_t head_dim = 0;   ///< elements of a query
  std::int64_t value_dim = 0;  ///< elements of a value; 0: no values and no output, weights alone (pointers)
  std::int64_t key_dim =
      0;  ///< elements of a key; 0 means head_dim. Differs only where the score has matrices.
  std::int64_t hidden = 0;  ///< Additive, Coverage, LowRankBilinear: the length of v, the rank.
};

}  // namespace fovea

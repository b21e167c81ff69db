// Normalisers turn the scores of a row into weights. Each is a struct with all that belongs to it: its name
// and number in the text form, its loop, whether it needs whole rows, its derivative and its arguments. No
// other list of normalisers exists.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

namespace fovea {

struct ArgumentDeclaration;  // argument.h

/// The loops that kernels have. Several normalisers may share one.
enum class NormalizerKind : std::uint8_t {
  softmax,
  sigmoid,
  entmax,
  adaptive_entmax,
  argmax,
  sample,
  gumbel,
  chain
};
/// What backward computes as the derivative of weights by scores.
enum class WeightDerivative : std::uint8_t {
  exact,
  none,     ///< constant weights
  estimate  ///< from the advantage of each row (AttentionLoss::advantage)
};

/// P = exp(s - lse): rows sum to 1.
struct Softmax {
  static constexpr const char* name = "softmax";
  static constexpr NormalizerKind kind = NormalizerKind::softmax;
  friend bool operator==(const Softmax&, const Softmax&) = default;
};
/// P = exp(s) / (exp(sink) + Σ exp(s)), with a learned sink a query head, which takes weight away from all
/// keys (gpt-oss; Xiao et al. 2023, arXiv 2309.17453, section 3.2, "sink token"). The log-sum-exp excludes
/// the sink, so that parts still merge.
struct SoftmaxWithSink {
  static constexpr const char* name = "sink";
  static constexpr NormalizerKind kind = NormalizerKind::softmax;
  static constexpr const char* no_parts =
      "a sink belongs to the whole row, and each part would count it again (multiply the merged output by 1 "
      "/ "
      "(1 + exp(sink - lse)) instead)";
  static constexpr bool gradient_reads_log_sum_exp = true;
  static std::span<const ArgumentDeclaration> arguments();
  friend bool operator==(const SoftmaxWithSink&, const SoftmaxWithSink&) = default;
};
/// P = exp(c·ln(n)·s - lse), with a learned factor c a query head. n is the number of keys that the mask lets
/// the query see. A plain softmax flattens as rows grow longer; this one does not (Scalable-Softmax;
/// Nakanishi 2025, arXiv 2501.19399, eq. 1). A row of one key gives it all weight. The log-sum-exp is that of
/// c·ln(n)·s. A layer starts from c = 0.1685, with which c·ln(n) is 1 in the mean over rows of 1 to 1,024
/// keys.
struct ScalableSoftmax {
  static constexpr const char* name = "scalable";
  static constexpr NormalizerKind kind = NormalizerKind::softmax;
  static constexpr bool counts_keys = true;
  static constexpr const char* no_parts =
      "the keys that a query sees are counted over the whole row, and a part knows its own alone";
  static std::span<const ArgumentDeclaration> arguments();
  friend bool operator==(const ScalableSoftmax&, const ScalableSoftmax&) = default;
};
/// P = 1 / (1 + exp(-(s + bias))): rows do not sum to 1. With a bias near -ln key_len it begins like a
/// softmax (Ramapuram et al. 2024, arXiv 2409.04431). In place of the log-sum-exp stands 0, or -inf for a row
/// that sees no key or only scores of -inf.
struct Sigmoid {
  double bias = 0.0;
  static constexpr const char* name = "sigmoid";
  static constexpr NormalizerKind kind = NormalizerKind::sigmoid;
  static constexpr double Sigmoid::*number = &Sigmoid::bias;
  static constexpr const char* number_text = "a bias";
  static constexpr bool takes(double bias) { return bias > -1e30 && bias < 1e30; }
  static constexpr const char* taken = "a sigmoid's bias that a float holds";
  friend bool operator==(const Sigmoid&, const Sigmoid&) = default;
};
/// P = [(alpha - 1) s - tau]₊^(1 / (alpha - 1)), where tau makes a row sum to 1. Scores far below the best
/// get a weight of exactly 0 (Peters et al. 2019, arXiv 1905.05702). alpha is in (1, 2]: towards 1 it is
/// softmax, at 2 sparsemax.
///
/// Needs whole rows, like all normalisers that follow: tau stands in place of the log-sum-exp, and parts of
/// the keys do not merge. For alpha = 1.5 and 2 no power is computed; other values compute several powers a
/// score.
struct Entmax {
  double alpha = 1.5;
  static constexpr const char* name = "entmax";
  static constexpr NormalizerKind kind = NormalizerKind::entmax;
  static constexpr bool is_whole_row = true;
  static constexpr double Entmax::*number = &Entmax::alpha;
  static constexpr const char* number_text = "an alpha";
  static constexpr bool takes(double alpha) { return alpha >= 1.01 && alpha <= 2.0; }
  static constexpr const char* taken = "an alpha of entmax in [1.01, 2]; use Softmax for 1";
  friend bool operator==(const Entmax&, const Entmax&) = default;
};
/// Entmax at alpha = 2: the Euclidean projection of the scores onto the simplex (Martins and Astudillo 2016,
/// arXiv 1602.02068).
struct Sparsemax {
  static constexpr const char* name = "sparsemax";
  static constexpr NormalizerKind kind = NormalizerKind::entmax;
  static constexpr double fixed_number = 2.0;
  static constexpr bool is_whole_row = true;
  friend bool operator==(const Sparsemax&, const Sparsemax&) = default;
};
/// Entmax whose alpha a query head learns: alpha = 1.01 + 0.99 sigmoid(a), with a the argument "sparsity". A
/// head with a large a is nearly a sparsemax, one with a very negative a nearly a softmax (Correia et al.
/// 2019, arXiv 1909.00015, section 3; there alpha = 1 + sigmoid(a)). A layer starts from a = 0, alpha =
/// 1.505. tau stands in place of the log-sum-exp.
struct AdaptiveEntmax {
  static constexpr const char* name = "adaptive-entmax";
  static constexpr NormalizerKind kind = NormalizerKind::adaptive_entmax;
  static constexpr bool is_whole_row = true;
  static std::span<const ArgumentDeclaration> arguments();
  friend bool operator==(const AdaptiveEntmax&, const AdaptiveEntmax&) = default;
};
/// All weight on the best key, in equal shares if several are best. The weights have no derivative by the
/// scores; the values have theirs. The best score stands in place of the log-sum-exp.
struct HardArgmax {
  static constexpr const char* name = "argmax";
  static constexpr NormalizerKind kind = NormalizerKind::argmax;
  static constexpr WeightDerivative derivative = WeightDerivative::none;
  static constexpr bool is_whole_row = true;
  friend bool operator==(const HardArgmax&, const HardArgmax&) = default;
};
/// One key drawn from the softmax, by the call's sample_seed and the site (attention/sample.h). The gradient
/// by the scores is the score-function estimate: advantage · d ln P(key). The advantage of a row is its loss
/// less a baseline (Williams 1992; Xu et al. 2015, arXiv 1502.03044, eq. 11).
struct HardSample {
  static constexpr const char* name = "sample";
  static constexpr NormalizerKind kind = NormalizerKind::sample;
  static constexpr bool draws = true;
  static constexpr WeightDerivative derivative = WeightDerivative::estimate;
  static constexpr bool is_whole_row = true;
  friend bool operator==(const HardSample&, const HardSample&) = default;
};
/// One key drawn from the softmax. The gradient by the scores is that of softmax((s + noise) / temperature);
/// the drawn key is its largest element (straight-through Gumbel-softmax; Jang et al. 2016, arXiv
/// 1611.01144).
struct GumbelSample {
  double temperature = 1.0;
  static constexpr const char* name = "gumbel";
  static constexpr NormalizerKind kind = NormalizerKind::gumbel;
  static constexpr bool draws = true;
  static constexpr bool is_whole_row = true;
  static constexpr double GumbelSample::*number = &GumbelSample::temperature;
  static constexpr const char* number_text = "a temperature";
  static constexpr bool takes(double temperature) { return temperature >= 1e-3 && temperature <= 1e6; }
  static constexpr const char* taken = "a temperature in [1e-3, 1e6]";
  friend bool operator==(const GumbelSample&, const GumbelSample&) = default;
};
/// P_ij = p(z_j = 1) of a chain of binary variables over the keys that the query sees, in their order. The
/// scores are the potentials of z_j = 1; the potentials of neighbours are the argument "transitions"
/// (structured attention; Kim et al. 2017, arXiv 1702.00887, section 3.1). Rows do not sum to 1. With zero
/// transitions it is Sigmoid. ln Z stands in place of the log-sum-exp.
struct LinearChain {
  static constexpr const char* name = "chain";
  static constexpr NormalizerKind kind = NormalizerKind::chain;
  static constexpr bool is_whole_row = true;
  static std::span<const ArgumentDeclaration> arguments();
  friend bool operator==(const LinearChain&, const LinearChain&) = default;
};
using Normalizer = std::variant<Softmax, SoftmaxWithSink, ScalableSoftmax, Sigmoid, Sparsemax, Entmax,
                                AdaptiveEntmax, HardArgmax, HardSample, GumbelSample, LinearChain>;

}  // namespace fovea

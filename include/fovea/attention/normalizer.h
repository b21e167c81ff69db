// Normalisers: how the scores of a row become weights. Each is a struct that says what belongs to it: its
// name in the text form of the algebra, the loop that computes it, the number that its text form has in
// parentheses, whether it needs whole rows, and its arguments. Nothing else lists them.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "fovea/attention/argument.h"

namespace fovea {

/// The loops that kernels have; several normalisers may share one.
enum class NormalizerKind : std::uint8_t { softmax, sigmoid, entmax, argmax, sample, gumbel, chain };

/// P = exp(s - lse): rows sum to 1.
struct Softmax {
  static constexpr const char* name = "softmax";
  static constexpr NormalizerKind kind = NormalizerKind::softmax;
  friend bool operator==(const Softmax&, const Softmax&) = default;
};
/// P = exp(s) / (exp(sink) + Σ exp(s)), a learned sink a query head: weight that goes to no key (gpt-oss;
/// Xiao et al. 2023, arXiv 2309.17453, section 3.2, "sink token"). The log-sum-exp leaves the sink out, so
/// that parts still merge.
struct SoftmaxWithSink {
  static constexpr const char* name = "sink";
  static constexpr NormalizerKind kind = NormalizerKind::softmax;
  static constexpr const char* no_parts =
      "a sink belongs to the whole row, and each part would count it again (multiply the merged output by 1 "
      "/ "
      "(1 + exp(sink - lse)) instead)";
  static std::span<const ArgumentDeclaration> arguments();
  friend bool operator==(const SoftmaxWithSink&, const SoftmaxWithSink&) = default;
};
/// P = exp(c·ln(n)·s - lse), n the number of keys that the mask lets the query see, with a learned factor c a
/// query head: a plain softmax flattens as rows grow longer, this one does not (Scalable-Softmax; Nakanishi
/// 2025, arXiv 2501.19399, eq. 1). A row of one key gives it all weight. The log-sum-exp is of c·ln(n)·s.
struct ScalableSoftmax {
  static constexpr const char* name = "scalable";
  static constexpr NormalizerKind kind = NormalizerKind::softmax;
  static constexpr bool counts_keys = true;
  static constexpr const char* no_parts =
      "the keys that a query sees are counted over the whole row, and a part knows its own alone";
  static std::span<const ArgumentDeclaration> arguments();
  friend bool operator==(const ScalableSoftmax&, const ScalableSoftmax&) = default;
};
/// P = 1 / (1 + exp(-(s + bias))): rows do not sum to 1; a bias near -ln key_len begins as softmax does
/// (Ramapuram et al. 2024, arXiv 2409.04431). In the place of the log-sum-exp stands 0, -inf for a row that
/// sees no key, or only scores of -inf.
struct Sigmoid {
  double bias = 0.0;
  static constexpr const char* name = "sigmoid";
  static constexpr NormalizerKind kind = NormalizerKind::sigmoid;
  static constexpr double Sigmoid::*number = &Sigmoid::bias;
  static constexpr const char* number_text = "a bias";
  friend bool operator==(const Sigmoid&, const Sigmoid&) = default;
};
/// P = [(alpha - 1) s - tau]₊^(1 / (alpha - 1)), where tau makes a row sum to 1: scores far below the best
/// get a weight of exactly 0 (Peters et al. 2019, arXiv 1905.05702). alpha in (1, 2]: towards 1 it is
/// softmax, at 2 sparsemax. Whole-row, like all that follow: tau stands in the place of the log-sum-exp, and
/// parts of the keys do not merge. At alpha = 1.5 and 2 no power is taken; others
/// cost several a score.
struct Entmax {
  double alpha = 1.5;
  static constexpr const char* name = "entmax";
  static constexpr NormalizerKind kind = NormalizerKind::entmax;
  static constexpr bool is_whole_row = true;
  static constexpr double Entmax::*number = &Entmax::alpha;
  static constexpr const char* number_text = "an alpha";
  friend bool operator==(const Entmax&, const Entmax&) = default;
};
/// Entmax at alpha = 2: the Euclidean projection of the scores onto the simplex (Martins and Astudillo 2016,
/// arXiv 1602.02068).
struct Sparsemax {
  static constexpr const char* name = "sparsemax";
  static constexpr NormalizerKind kind = NormalizerKind::entmax;
  static constexpr bool is_whole_row = true;
  friend bool operator==(const Sparsemax&, const Sparsemax&) = default;
};
/// All weight on the best key, equal shares among several best. The weights have no derivative by the scores;
/// values have theirs. The best score stands in the place of the log-sum-exp.
struct HardArgmax {
  static constexpr const char* name = "argmax";
  static constexpr NormalizerKind kind = NormalizerKind::argmax;
  static constexpr bool is_whole_row = true;
  friend bool operator==(const HardArgmax&, const HardArgmax&) = default;
};
/// One key drawn from the softmax, by the call's sample_seed and the site (attention/sample.h). The gradient
/// by the scores is the score function's: advantage · d ln P(key), with an advantage (the row's loss less a
/// baseline) for each row (Williams 1992; Xu et al. 2015, arXiv 1502.03044, eq. 11).
struct HardSample {
  static constexpr const char* name = "sample";
  static constexpr NormalizerKind kind = NormalizerKind::sample;
  static constexpr bool is_whole_row = true;
  friend bool operator==(const HardSample&, const HardSample&) = default;
};
/// One key drawn from the softmax; the gradient by the scores is that of softmax((s + noise) / temperature),
/// whose largest element was drawn (straight-through Gumbel-softmax; Jang et al. 2016, arXiv 1611.01144).
struct GumbelSample {
  double temperature = 1.0;
  static constexpr const char* name = "gumbel";
  static constexpr NormalizerKind kind = NormalizerKind::gumbel;
  static constexpr bool is_whole_row = true;
  static constexpr double GumbelSample::*number = &GumbelSample::temperature;
  static constexpr const char* number_text = "a temperature";
  friend bool operator==(const GumbelSample&, const GumbelSample&) = default;
};
/// P_ij = p(z_j = 1) of a chain of binary variables over the keys that the query sees, in their order: scores
/// are the potentials of z_j = 1, those of neighbours are the argument "transitions" (structured attention;
/// Kim et al. 2017, arXiv 1702.00887, section 3.1). Rows do not sum to 1; zero transitions give Sigmoid. ln Z
/// stands in the place of the log-sum-exp.
struct LinearChain {
  static constexpr const char* name = "chain";
  static constexpr NormalizerKind kind = NormalizerKind::chain;
  static constexpr bool is_whole_row = true;
  static std::span<const ArgumentDeclaration> arguments();
  friend bool operator==(const LinearChain&, const LinearChain&) = default;
};
using Normalizer = std::variant<Softmax, SoftmaxWithSink, ScalableSoftmax, Sigmoid, Sparsemax, Entmax,
                                HardArgmax, HardSample, GumbelSample, LinearChain>;
/// True where weights of a part of the keys cannot be merged with those of the rest.
inline bool is_whole_row(const Normalizer& normalizer) {
  return std::visit(
      []<class N>(const N&) {
        return requires {
          N::is_whole_row;
        };
      },
      normalizer);
}
/// True where the normaliser's argument times ln n multiplies the scores of a row that sees n keys, before
/// the loop of its kind: plans make a mod of it, which every kernel runs.
inline bool counts_keys(const Normalizer& normalizer) {
  return std::visit(
      []<class N>(const N&) {
        return requires {
          N::counts_keys;
        };
      },
      normalizer);
}
/// Why results for parts of the keys cannot be merged, though it needs no whole rows; nullptr: they can.
inline const char* no_parts(const Normalizer& normalizer) {
  return std::visit(
      []<class N>(const N&) -> const char* {
        if constexpr (requires { N::no_parts; })
          return N::no_parts;
        else
          return nullptr;
      },
      normalizer);
}
inline NormalizerKind kind_of(const Normalizer& normalizer) {
  return std::visit([]<class N>(const N&) { return N::kind; }, normalizer);
}
inline std::span<const ArgumentDeclaration> arguments(const Normalizer& normalizer) {
  return std::visit(
      []<class N>(const N&) -> std::span<const ArgumentDeclaration> {
        if constexpr (requires { N::arguments(); })
          return N::arguments();
        else
          return {};
      },
      normalizer);
}

}  // namespace fovea

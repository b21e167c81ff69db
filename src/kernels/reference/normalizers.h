// The specification of the normalisers, in double: from the scores of the keys that a query sees to its
// weights, and the gradient of the same.
#pragma once

#include <optional>
#include <vector>

#include "kernels/problem.h"

namespace fovea::kernels {

struct RowNormalizer {
  NormalizerKind kind = NormalizerKind::softmax;
  std::optional<double> count_scale;           // the scores are multiplied by this · ln(number of scores)
  double number = 0.0;                         // sigmoid's bias, entmax's alpha, gumbel's temperature
  std::vector<std::vector<double>> arguments;  // of the row's head: softmax's sink, the chain's transitions
};

/// Writes the weights of one row. Returns the log-sum-exp, or the normaliser's own number in its place. Where
/// no score is above -inf it returns -inf, and the weights are 0.
double solve(const RowNormalizer& normalizer, const std::vector<double>& scores,
             const std::vector<double>& noise, std::vector<double>& weights);

/// Where the gradients of the normaliser's own arguments are added.
struct NormalizerSums {
  double* arguments = nullptr;  // the numbers of all arguments of the row's head, one behind the other
  double* count_scale = nullptr;
};

/// `gradient` holds the derivative by the weights, and then the derivative by the scores. Returns D = Σ P·dP
/// where the normaliser has one (for a sink), else 0.
double solve_gradient(const RowNormalizer& normalizer, const std::vector<double>& scores,
                      const std::vector<double>& noise, const std::vector<double>& weights, double advantage,
                      std::vector<double>& gradient, const NormalizerSums& sums);

}  // namespace fovea::kernels

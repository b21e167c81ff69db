// The normalisers' specification, in double: a row of scores of the keys that a query sees → weights, and the
// gradient of the same.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "kernels/problem.h"

namespace fovea::kernels {

struct RowLaw {
  NormalizerKind kind = NormalizerKind::softmax;
  std::optional<double> sink;
  std::optional<double> count_scale;  // times ln of the number of scores, multiplies them
  double sigmoid_bias = 0.0, alpha = 2.0, temperature = 1.0;
  std::array<double, 4> transitions{};
};

/// Returns the log-sum-exp, or what stands in its place; -inf, and weights of 0, where no score is above
/// -inf.
double solve(const RowLaw& law, const std::vector<double>& scores, const std::vector<double>& noise,
             std::vector<double>& weights);

/// What gradients of the law's own arguments are added to.
struct RowLawSums {
  double* transitions = nullptr;  // [2, 2]
  double* count_scale = nullptr;
};

/// gradient: by the weights → by the scores. Returns D = Σ P·dP where the law has one (for a sink), else 0.
double solve_gradient(const RowLaw& law, const std::vector<double>& scores, const std::vector<double>& noise,
                      const std::vector<double>& weights, double advantage, std::vector<double>& gradient,
                      const RowLawSums& sums);

}  // namespace fovea::kernels

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
  double sigmoid_bias = 0.0, alpha = 2.0, temperature = 1.0;
  std::array<double, 4> transitions{};
};

/// Returns the log-sum-exp, or what stands in its place; -inf, and weights of 0, where no score is above
/// -inf.
double solve(const RowLaw& law, const std::vector<double>& scores, const std::vector<double>& noise,
             std::vector<double>& weights);

/// gradient: by the weights → by the scores. Adds to d_transitions [2, 2]. Returns D = Σ P·dP where the law
/// has one (for a sink), else 0.
double solve_gradient(const RowLaw& law, const std::vector<double>& scores, const std::vector<double>& noise,
                      const std::vector<double>& weights, double advantage, std::vector<double>& gradient,
                      double* d_transitions);

}  // namespace fovea::kernels

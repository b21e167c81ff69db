// How kernels are held against the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "plan/cases.h"

namespace fovea::testing {

/// Operands lie in [-1, 1), so |s| <= dim. A score has an absolute error of dim·eps and a weight the same
/// relative one. A gradient sums at most `keys` (or queries) such terms through one more product of length
/// `dim`. The factor 16 covers the exponential (3 eps) and projections of length <= 67. The messages of a
/// chain are rounded at each key, forward and backward, before its marginals are taken: four times as much.
inline double tolerance(const Case& c, DType dtype) {
  const double eps = dtype == DType::f64   ? 0x1p-52
                     : dtype == DType::f32 ? 0x1p-23
                     : dtype == DType::f16 ? 0x1p-10
                                           : 0x1p-7;
  const auto& s = c.shape;
  const auto longest = static_cast<double>(std::max({s.query_len, s.key_len, s.head_dim, s.value_dim}));
  // Scalable softmax multiplies scores, and so what their rounding does to a weight, by the logarithm of the
  // number of keys.
  const double factor = std::holds_alternative<ScalableSoftmax>(c.spec.normalizer)
                            ? std::max(1.0, std::log(static_cast<double>(s.key_len)))
                            : 1.0;
  return (std::holds_alternative<LinearChain>(c.spec.normalizer) ? 64.0 : 16.0) * factor * eps * longest;
}

/// All kernels except the reference.
inline std::vector<KernelInfo> fast_kernels() {
  std::vector<KernelInfo> kernels = instruction_sets();
  std::erase_if(kernels, [](const KernelInfo& info) { return info.isa == "reference"; });
  return kernels;
}

}  // namespace fovea::testing

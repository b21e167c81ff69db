// Products of rows with a packed matrix. An element of the result has the same bits however many rows are
// computed with it.
#pragma once

#include <cstdint>

#include "fovea/autograd/packed.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {

/// y[r, n] = bias[n] + Σ x[r, k]·weight[n, k].
struct PackedProducts {
  const float* x = nullptr;  ///< [rows, in]
  const PackedMatrix* weight = nullptr;
  const float* bias = nullptr;  ///< [out], or null
  float* y = nullptr;           ///< [rows, out]
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;  ///< elements from one row of x to the next; 0: `in`, no gaps
};

/// Each element is one chain of fused multiply-adds that begins with the bias and goes through the columns in
/// order, on every instruction set that has them.
void packed_products(const PackedProducts& p, Executor& executor);

}  // namespace fovea::autograd

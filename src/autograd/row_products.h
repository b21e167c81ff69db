// Products of rows with a matrix of weights for inference. An element of the result has the same bits however
// many rows are computed with it.
#pragma once

#include <cstdint>

#include "fovea/core/executor.h"

namespace fovea::autograd {

/// y[r, n] = Σ x[r, k]·weight[n, k] + bias[n], all row-major without gaps.
struct RowProducts {
  const float* x = nullptr;       ///< [rows, in]
  const float* weight = nullptr;  ///< [out, in]
  const float* bias = nullptr;    ///< [out], or null
  float* y = nullptr;             ///< [rows, out]
  std::int64_t rows = 0, in = 0, out = 0;
};

/// The order of the sums depends on `in` and the instruction set alone. oneDNN's sgemm sums in another order
/// for 1 to 3 rows, and for the last rows of a block. A sequence would then depend on what is read beside it.
void row_products(const RowProducts& p, Executor& executor);

}  // namespace fovea::autograd

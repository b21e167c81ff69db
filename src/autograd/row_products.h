// Products of few rows. An element of the result has the same bits however many rows are computed with it.
#pragma once

#include <cstdint>

#include "fovea/core/executor.h"

namespace fovea::autograd {

/// More rows go by tiles, which copy the weights once for all of them.
inline constexpr std::int64_t most_few_rows = 11;

/// y[r, n] = Σ x[r, k]·weight[n, k] + (bias[n] or, with `add`, what y holds), all row-major.
struct RowProducts {
  const float* x = nullptr;       ///< [rows, in]
  const float* weight = nullptr;  ///< [out, in]
  const float* bias = nullptr;    ///< [out], or null
  float* y = nullptr;             ///< [rows, out]
  std::int64_t rows = 0, in = 0, out = 0;
  /// Numbers from one row to the next; 0: rows have no gaps.
  std::int64_t x_leading = 0, weight_leading = 0, y_leading = 0;
  bool add = false;
};

/// The order of the sums depends on `in` and the instruction set alone: a sequence does not depend on what is
/// read beside it.
void row_products(const RowProducts& p, Executor& executor);
/// The same on the calling thread.
void row_products(const RowProducts& p);

/// y[n] = Σ x[k]·weight[k, n] + (bias[n] or, with `add`, what y holds), on the calling thread. The sum of an
/// element is one chain of fused multiply-adds.
struct ColumnProducts {
  const float* x = nullptr;       ///< [in]
  const float* weight = nullptr;  ///< [in, out]
  std::int64_t leading = 0;       ///< numbers from one row of the weight to the next
  const float* bias = nullptr;    ///< [out], or null
  float* y = nullptr;             ///< [out]
  std::int64_t in = 0, out = 0;
  bool add = false;
};
void column_products(const ColumnProducts& p);

}  // namespace fovea::autograd

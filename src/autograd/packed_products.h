// Products of rows with a packed matrix. An element of the result has the same bits however many rows are
// computed with it.
#pragma once

#include <cstdint>
#include <functional>

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

/// Cuts the product into blocks, which run on the executor if there is enough to do. `speed` is the number of
/// products that take the time of one in f32.
using Block = std::function<void(std::int64_t row, std::int64_t end, std::int64_t column, std::int64_t last)>;
void for_blocks(const PackedProducts& p, Executor& executor, std::int64_t speed, const Block& block);

/// Each element of a product with an f32 matrix is one chain of fused multiply-adds. It begins with the bias
/// and goes through the columns in order, on every instruction set that has them. For int8 and
/// bf16 see WeightType.
void packed_products(const PackedProducts& p, Executor& executor);

}  // namespace fovea::autograd

// Matrix products on oneDNN. It is dnnl_sgemm, not the matmul primitive: dnnl_sgemm needs no primitive cache,
// and is as fast for the shapes of small models (k 128..512).
#pragma once

#include <oneapi/dnnl/dnnl.h>

#include <cstdint>

#include "fovea/core/error.h"

namespace fovea::autograd {

enum class Transpose : char { no = 'N', yes = 'T' };

/// A row-major operand: `leading` elements from one row to the next.
struct Matrix {
  const float* data;
  std::int64_t leading;
  Transpose transpose = Transpose::no;
};

/// c[m, n] = a·b + beta·c, where a is [m, k] and b is [k, n] after their transposes.
inline void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float beta, float* c,
                 std::int64_t leading) {
  if (m == 0 || n == 0) return;
  const dnnl_status_t status = dnnl_sgemm(static_cast<char>(a.transpose), static_cast<char>(b.transpose), m,
                                          n, k, 1.0f, a.data, a.leading, b.data, b.leading, beta, c, leading);
  if (status != dnnl_success)
    throw Error("gemm: oneDNN refused a product, status " + std::to_string(static_cast<int>(status)));
}

}  // namespace fovea::autograd

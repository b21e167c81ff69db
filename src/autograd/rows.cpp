#include "autograd/rows.h"

#include "autograd/vector_math.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES void add(const float* row, std::int64_t n, float* sum) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sum[i] += row[i];
}

}  // namespace

void add_row(const float* row, std::int64_t n, float* sum) {
  add(row, n, sum);
}

}  // namespace fovea::autograd

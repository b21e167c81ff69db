#include "autograd/rows.h"

#include <algorithm>

#include "autograd/vector_math.h"
#include "fovea/core/executor.h"

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

void add_columns(const float* rows, std::int64_t count, std::int64_t n, float* sum) {
  // Two cache lines of each row. Fewer columns would read lines that belong to two units.
  constexpr std::int64_t columns = 32, least_parallel = 1 << 15;
  Executor& executor = count * n < least_parallel ? serial_executor() : default_executor();
  executor.parallel_for((n + columns - 1) / columns, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit * columns, width = std::min(columns, n - begin);
    for (std::int64_t r = 0; r < count; ++r) add(rows + r * n + begin, width, sum + begin);
  });
}

}  // namespace fovea::autograd

#include "autograd/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/vector_math.h"
#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES void add(const float* row, std::int64_t n, float* sum) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sum[i] += row[i];
}

}  // namespace

FOVEA_CLONES void scale_row(const float* from, float factor, std::int64_t n, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
}
FOVEA_CLONES void add_scaled_row(const float* from, float factor, std::int64_t n, float* to) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i] += from[i] * factor;
}

FOVEA_CLONES float maximum_of(const float* x, std::int64_t n) {
  float best = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : best)
  for (std::int64_t i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

std::int64_t first_maximum(const float* row, std::int64_t n) {
  if (std::isnan(row[0])) return 0;  // no number is above it
  // The number is looked for in the stretch that holds it alone, after one pass by vectors.
  constexpr std::int64_t stretch = 512;
  float best = row[0];
  std::int64_t at = 0;
  for (std::int64_t begin = 0; begin < n; begin += stretch) {
    const float now = maximum_of(row + begin, std::min(stretch, n - begin));
    if (!(now > best)) continue;
    best = now;
    at = begin;
  }
  return std::find(row + at, row + n, best) - row;
}

void add_row(const float* row, std::int64_t n, float* sum) {
  add(row, n, sum);
}

void add_columns(const float* rows, std::int64_t count, std::int64_t n, float* sum) {
  // A unit reads stretches of 4 KiB, whose sums stay in the first-level cache. Two lines of each row, summed
  // over all rows, were 3.7 % of a step of training: over logits the next row lies pages away.
  constexpr std::int64_t columns = 1024, group_rows = 256, least_parallel = 1 << 15;
  Executor& executor = count * n < least_parallel ? serial_executor() : default_executor();
  const std::int64_t groups = (count + group_rows - 1) / group_rows, across = (n + columns - 1) / columns;
  const Tensor partial = groups > 1 ? Tensor::zeros(DType::f32, {groups, n}) : Tensor();
  executor.parallel_for(groups * across, [&](std::int64_t unit, int) {
    const std::int64_t group = unit / across, begin = unit % across * columns,
                       width = std::min(columns, n - begin);
    float* to = (partial ? partial.data<float>() + group * n : sum) + begin;
    for (std::int64_t r = group * group_rows; r < std::min(count, (group + 1) * group_rows); ++r)
      add(rows + r * n + begin, width, to);
  });
  for (std::int64_t group = 0; partial && group < groups; ++group)
    add(partial.data<float>() + group * n, n, sum);
}

}  // namespace fovea::autograd

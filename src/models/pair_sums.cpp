#include "models/pair_sums.h"

#include <cmath>

#include "core/clones.h"

namespace fovea::models {

// Eight of each: one would wait for each addition.
FOVEA_CLONES PairSums sums_of_pair(const float* a, const float* b, std::int64_t count) {
  constexpr int width = 8;
  double product[width] = {}, of_a[width] = {}, of_b[width] = {}, squares[width] = {}, absolute[width] = {};
  const auto add = [&](std::int64_t i, int lane) {
    const double x = a[i], y = b[i];
    product[lane] += x * y;
    of_a[lane] += x * x;
    of_b[lane] += y * y;
    squares[lane] += (x - y) * (x - y);
    absolute[lane] += std::abs(x - y);
  };
  std::int64_t i = 0;
  for (; i + width <= count; i += width) {
#pragma omp simd
    for (int lane = 0; lane < width; ++lane) add(i + lane, lane);
  }
  for (; i < count; ++i) add(i, 0);
  PairSums sums;
  for (int lane = 0; lane < width; ++lane) {
    sums.product += product[lane];
    sums.of_a += of_a[lane];
    sums.of_b += of_b[lane];
    sums.squares += squares[lane];
    sums.absolute += absolute[lane];
  }
  return sums;
}

}  // namespace fovea::models

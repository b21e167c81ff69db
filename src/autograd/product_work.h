// What a product costs at least, for profiles.
#pragma once

#include <cstdint>

#include "fovea/core/profile.h"

namespace fovea::autograd {

/// Of c[m, n] = a[m, k]·b[k, n] in f32. `weight_bytes` is the size of an element of b.
inline ProfileWork product_work(std::int64_t m, std::int64_t n, std::int64_t k, double weight_bytes = 4.0) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n), depth = static_cast<double>(k);
  return {.multiply_adds = rows * columns * depth,
          .bytes = 4.0 * (rows * depth + rows * columns) + weight_bytes * depth * columns};
}

}  // namespace fovea::autograd

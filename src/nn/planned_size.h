// Sizes of plans that serve a growing cache and a changing batch.
#pragma once

#include <cstdint>

namespace fovea::nn {

/// The first of least, 2·least, 4·least, ... that is at least `size`: sizes up to n make log n plans.
inline std::int64_t planned_size(std::int64_t size, std::int64_t least) {
  std::int64_t planned = least;
  while (planned < size) planned *= 2;
  return planned;
}

}  // namespace fovea::nn

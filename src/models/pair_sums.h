// Sums over two rows of numbers, for similarities and errors.
#pragma once

#include <cstdint>

namespace fovea::models {

/// Σ a·b, Σ a², Σ b², Σ (a - b)² and Σ |a - b|.
struct PairSums {
  double product = 0.0, of_a = 0.0, of_b = 0.0, squares = 0.0, absolute = 0.0;
};
PairSums sums_of_pair(const float* a, const float* b, std::int64_t count);

}  // namespace fovea::models

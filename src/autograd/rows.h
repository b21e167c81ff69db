// Adds rows to sums, for the gradients of biases and norms.
#pragma once

#include <cstdint>

namespace fovea::autograd {

/// sum[i] += row[i] for n elements.
void add_row(const float* row, std::int64_t n, float* sum);

}  // namespace fovea::autograd

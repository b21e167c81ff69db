// Loops over rows that several ops share: sums and multiples of rows, and maxima.
#pragma once

#include <cstdint>

namespace fovea::autograd {

/// sum[i] += row[i] for n elements.
void add_row(const float* row, std::int64_t n, float* sum);
/// to[i] = factor · from[i] for n elements.
void scale_row(const float* from, float factor, std::int64_t n, float* to);
/// to[i] += factor · from[i] for n elements.
void add_scaled_row(const float* from, float factor, std::int64_t n, float* to);

/// sum[i] += Σ_r rows[r · n + i] for n columns, on the default executor. Groups of 256 rows have sums of
/// their own, which are added in order, so the bits do not depend on the executor.
void add_columns(const float* rows, std::int64_t count, std::int64_t n, float* sum);

/// The largest of n numbers that is not NaN; -∞ without one.
float maximum_of(const float* x, std::int64_t n);
/// The first of the largest numbers of a row of n, at least 1: std::max_element's answer, NaN included.
std::int64_t first_maximum(const float* row, std::int64_t n);

}  // namespace fovea::autograd

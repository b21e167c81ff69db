// Measures how long something takes, and makes random operands for it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea::bench {

/// A tensor of f32 numbers, uniform in [-1, 1).
Tensor random_operand(Shape shape, std::uint64_t seed);
/// f32 numbers in another type; those in f32 as they are.
Tensor rounded_to(DType dtype, const Tensor& x);

/// `wall` is the time that passes. `cpu` is the time that the process used, which a busy machine changes
/// less.
enum class Clock : std::uint8_t { wall, cpu };

/// The seconds of the best of `repeat` runs.
double best_seconds(std::int64_t repeat, const std::function<void()>& body, Clock clock = Clock::wall);

double median(std::vector<double> values);
/// The value below which the share `share` of all values lies; 0 for no values.
double quantile(std::vector<double> values, double share);

}  // namespace fovea::bench

// How long something takes, and random operands to try it on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea::bench {

/// Uniform in [-1, 1), f32.
Tensor random_operand(Shape shape, std::uint64_t seed);

/// `wall` as it passes; `cpu` is what the process used, which a busy machine changes less.
enum class Clock : std::uint8_t { wall, cpu };

/// The best of `repeat` runs.
double best_seconds(std::int64_t repeat, const std::function<void()>& body, Clock clock = Clock::wall);

double median(std::vector<double> values);
/// The value below which `share` of all lie; 0 of none.
double quantile(std::vector<double> values, double share);

}  // namespace fovea::bench

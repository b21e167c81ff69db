// Forecasts without a network: simple rules, as baselines.
#pragma once

#include <cstdint>
#include <vector>

#include "series.h"

namespace forecast {

/// Repeats the last known season.
std::vector<float> seasonal_naive(const Window& window, std::int64_t season);
/// x[t - a] + x[t - b] - x[t - a - b]: exact for a sum of two seasons and a line. Its noise is that of
/// three values.
std::vector<float> differenced(const Window& window, std::int64_t a, std::int64_t b);

}  // namespace forecast

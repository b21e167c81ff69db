#include "series.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "column.h"
#include "fovea/core/error.h"

namespace forecast {
namespace {

// One period of a season: independent values of mean 0 and deviation `amplitude`. There is no formula
// behind them, so a value can only be predicted from the same place of an earlier period.
std::vector<float> season(std::int64_t period, float amplitude, fovea::PhiloxStream& random) {
  std::vector<float> profile(static_cast<std::size_t>(period));
  float mean = 0, squares = 0;
  for (float& x : profile) mean += (x = random.next_normal()) / static_cast<float>(period);
  for (float& x : profile) squares += (x - mean) * (x - mean) / static_cast<float>(period);
  for (float& x : profile) x = amplitude * (x - mean) / std::sqrt(squares);
  return profile;
}

// Scales a window by its known values.
void standardise(Window& window) {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < kContext; ++i) sum += window.values[i];
  const double mean = sum / kContext;
  for (std::size_t i = 0; i < kContext; ++i) squares += std::pow(window.values[i] - mean, 2);
  // A constant series has deviation 0; it stays 0.
  const double deviation = std::max(std::sqrt(squares / kContext), 1e-6 * (1.0 + std::abs(mean)));
  for (float& x : window.values) x = static_cast<float>((x - mean) / deviation);
  for (float& x : window.noise) x = static_cast<float>(x / deviation);
}

Window draw_series(fovea::PhiloxStream& random) {
  const std::vector<float> week = season(kShortSeason, 0.3f + 0.5f * random.next_uniform(), random),
                           day = season(kLongSeason, 0.6f + 0.6f * random.next_uniform(), random);
  const float slope = 0.005f * random.next_normal(), noise = 0.05f + 0.15f * random.next_uniform();
  Window window;
  for (std::size_t t = 0; t < kWindow; ++t) {
    window.noise.push_back(noise * random.next_normal());
    window.values.push_back(week[t % kShortSeason] + day[t % kLongSeason] + slope * static_cast<float>(t) +
                            window.noise.back());
  }
  standardise(window);
  return window;
}

// The lag from 2 to 60 with the smallest differences between values and those `lag` before them.
std::int64_t best_lag(const std::vector<float>& values, std::size_t length) {
  std::int64_t best = 2;
  double least = INFINITY;
  for (std::size_t lag = 2; lag <= 60; ++lag) {
    double squares = 0;
    for (std::size_t t = 60; t < length; ++t) squares += std::pow(double{values[t]} - values[t - lag], 2);
    if (squares < least) least = squares, best = static_cast<std::int64_t>(lag);
  }
  return best;
}

}  // namespace

Source generated_series() {
  return {.name = "generated series",
          .seasons = {kShortSeason, kLongSeason},
          .training = draw_series,
          .held_out = draw_series};
}

Source series_of_file(const std::string& file) {
  const Column column = read_column(file);
  const std::size_t count = column.values.size(), border = count / 5 * 4;
  if (count < 5 * kWindow) {
    throw fovea::FileError(file, -1,
                           "has " + std::to_string(count) + " values in column '" + column.name +
                               "', at least " + std::to_string(5 * kWindow) + " are needed");
  }
  const auto windows = [values = column.values](std::size_t begin, std::size_t end) {
    return [=](fovea::PhiloxStream& random) {
      const auto starts = static_cast<std::uint32_t>(end - begin - kWindow + 1);
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin + random.next_below(starts));
      Window window{.values = {first, first + kWindow}};
      standardise(window);
      return window;
    };
  };
  return {.name = column.name + " of " + file,
          .seasons = {best_lag(column.values, border)},
          .training = windows(0, border),
          .held_out = windows(border, count)};
}

}  // namespace forecast

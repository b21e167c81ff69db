// The data: windows of a series, generated or cut from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fovea/core/philox.h"

namespace forecast {

constexpr std::int64_t kContext = 96, kHorizon = 24, kWindow = kContext + kHorizon;
/// Periods of the generated series, in steps.
constexpr std::int64_t kShortSeason = 7, kLongSeason = 24;

/// kWindow values, of which the first kContext are known; scaled so that these have mean 0 and deviation 1.
struct Window {
  std::vector<float> values;
  std::vector<float> noise = {};  ///< what nobody could forecast, in the same
                                  ///< scale; empty where not known
};

/// Where windows come from. Training and held-out windows share no value.
struct Source {
  std::string name;
  std::vector<std::int64_t> seasons;  ///< the lags of the seasonal-naive forecasts
  std::function<Window(fovea::PhiloxStream&)> training, held_out;
};

/// Every window is a series of its own: two seasons of periods 7 and 24 with random profiles, phases and
/// amplitudes, plus a trend and noise.
Source generated_series();

/// Windows of one column of a CSV file (column.h): training in its first four fifths, held-out ones in the
/// rest. Its season is the lag from 2 to 60 at which the training part repeats itself best. Throws
/// FileError for a file that cannot be read, or of fewer than 5 kWindow values.
Source series_of_file(const std::string& file);

}  // namespace forecast

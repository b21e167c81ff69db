// What the benches of whole models have in common: numbers for their data, and where the time of a run went.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fovea/core/profile.h"

namespace fovea::bench {

/// A number in [low, high] that depends on `seed` and `n` alone.
std::int64_t drawn(std::uint64_t seed, std::int64_t n, std::int64_t low, std::int64_t high);

struct Shares {
  /// Name and share of each part of the work, the largest first; they add up to 1. Time outside of every part
  /// is "other".
  std::vector<std::pair<std::string, double>> parts;
  double multiply_adds = 0.0;  ///< of all products together
};
/// Of a profile that has stopped. `seconds` is the time of all threads that it recorded.
Shares shares_of(const Profile& profile, double seconds);

}  // namespace fovea::bench

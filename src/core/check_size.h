// The sizes of plans.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "fovea/core/error.h"

namespace fovea {

/// A size of a plan is at most 2^40, so that products of a few of them fit into 64 bits.
inline constexpr std::int64_t most_plan_size = std::int64_t{1} << 40;

inline void check_size(const char* function, const char* argument, std::int64_t size, std::int64_t least) {
  if (size < least || size > most_plan_size) {
    throw InvalidArgument(function, argument,
                          "a size of at least " + std::to_string(least) + " and at most 2^40",
                          std::to_string(size));
  }
}

/// Refuses sizes whose product is above 2^40, so that no number of bytes overflows.
inline void check_elements(const char* function, std::initializer_list<std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (size > 0 && product > most_plan_size / size) {
      std::string got;
      for (const std::int64_t one : sizes) got += (got.empty() ? "" : " x ") + std::to_string(one);
      throw InvalidArgument(function, "shape", "at most 2^40 elements", got);
    }
    product *= size;
  }
}

}  // namespace fovea

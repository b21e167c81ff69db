// The starts of sequences that stand one behind the other: sequence e has the rows [starts[e], starts[e +
// 1]).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fovea/core/error.h"

namespace fovea {

/// Throws InvalidArgument unless `starts` ascend from 0 to `rows`, or to any number where that is empty. `of`
/// follows the number of rows in the message, such as " of x".
inline void check_starts(const char* function, const char* argument, std::span<const std::int64_t> starts,
                         std::optional<std::int64_t> rows, const std::string& of = {}) {
  const auto refuse = [&](const std::string& got) {
    throw InvalidArgument(
        function, argument,
        "numbers that ascend from 0" + (rows ? " to the " + std::to_string(*rows) + " rows" + of : ""), got);
  };
  if (starts.empty()) refuse("none");
  if (starts.front() != 0) refuse(std::to_string(starts.front()) + " as the first");
  for (std::size_t n = 1; n < starts.size(); ++n)
    if (starts[n] < starts[n - 1])
      refuse(std::to_string(starts[n]) + " after " + std::to_string(starts[n - 1]));
  if (rows && starts.back() != *rows) refuse(std::to_string(starts.back()) + " as the last");
}

}  // namespace fovea

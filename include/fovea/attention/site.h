// The position of one score: masks, mods and predicates take it as their argument.
#pragma once

#include <cstdint>

namespace fovea {

/// One score. `head` is the query's head. `query` is the query's position in key coordinates (row +
/// query_offset), `key` is the key's position. They have 32 bits, so that a mod's arithmetic on positions
/// fills vector registers. make_plan and attend refuse larger numbers.
struct Site {
  std::int32_t batch = 0, head = 0, query = 0, key = 0;

  /// Narrows numbers that are known to fit.
  static constexpr Site at(std::int64_t batch, std::int64_t head, std::int64_t query, std::int64_t key) {
    return {static_cast<std::int32_t>(batch), static_cast<std::int32_t>(head),
            static_cast<std::int32_t>(query), static_cast<std::int32_t>(key)};
  }
};

}  // namespace fovea

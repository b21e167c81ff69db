// The data of the example: lists that tell the value of each key twice, and then ask for the last one.
#pragma once

#include <cstdint>
#include <vector>

namespace remember {

inline constexpr std::int64_t kKeys = 64, kValues = 32;
/// In the place of a value where a token asks.
inline constexpr std::int32_t kQuestion = kValues;

/// `pairs` keys are told in some order, told again in another order with new values, and asked for in a
/// third.
struct List {
  std::vector<std::int32_t> keys;     ///< [3 · pairs]
  std::vector<std::int32_t> values;   ///< [3 · pairs], kQuestion in the last third
  std::vector<std::int32_t> answers;  ///< [pairs]
  std::vector<std::int32_t> first;    ///< [pairs]: the values that were told first, and are now wrong
};

/// List `number` of a seed; lists of different numbers are drawn apart. pairs <= kKeys.
List draw(std::uint64_t seed, std::uint64_t number, std::int64_t pairs);

}  // namespace remember

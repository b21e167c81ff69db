// The first task: lists that tell the value of each key twice, and then ask for the last one. In the third
// task every key is told once, somewhere in a long sequence of noise.
#pragma once

#include "exercise.h"

namespace remember {

inline constexpr std::int64_t kKeys = 64, kValues = 32;
/// In the place of a value where a token asks.
inline constexpr std::int32_t kQuestion = kValues;

Vocabulary vocabulary_of_lists();

/// List `number` of a seed: `pairs` keys are told in some order, told again in another order with new values,
/// and asked for in a third. ids[0] are the keys, [3 · pairs]. ids[1] are the values, kQuestion in the last
/// third. The values that were told first are `outdated`. Lists of different numbers are drawn apart.
/// pairs <= kKeys.
Exercise draw_list(std::uint64_t seed, std::uint64_t number, std::int64_t pairs);

/// The same tables with one row more, for noise.
Vocabulary vocabulary_of_long_lists();

/// Sequence `number` of a seed, of `tokens` tokens: for four of them one pair of a key and a value, but at
/// most kKeys. Each is told once, at a random place among noise, and the last tokens ask for them in another
/// order. tokens >= 4.
Exercise draw_long_list(std::uint64_t seed, std::uint64_t number, std::int64_t tokens);

}  // namespace remember

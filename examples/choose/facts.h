// The task for which a sequence is read: a few facts stand among many readings that mean nothing, and
// questions at the end ask for the facts.
#pragma once

#include <cstdint>
#include <vector>

namespace choose {

inline constexpr std::int64_t kKeys = 32, kValues = 16, kReadings = 16;
/// Facts of a sequence, and as many questions: one for each.
inline constexpr std::int64_t kFacts = 16;

/// The parts of a token: a reading, a key with a value, or a key that asks.
struct Tokens {
  std::vector<std::int32_t> parts;   ///< ids below kParts, those of a token behind those of the one before
  std::vector<std::int64_t> counts;  ///< parts of each token
};
inline constexpr std::int64_t kParts = kKeys + kValues + kReadings + 1;

struct Record {
  Tokens tokens;
  std::vector<std::int32_t> answers;  ///< [kFacts], of the last kFacts tokens
};

/// Record `number` of a seed; records of different numbers are drawn apart. length >= 2 kFacts.
Record draw(std::uint64_t seed, std::uint64_t number, std::int64_t length);

}  // namespace choose

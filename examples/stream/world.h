// The data of the example: a stream of readings between which stand notes. At every token the last note is
// asked for.
#pragma once

#include <cstdint>
#include <vector>

namespace stream {

/// Tokens below kNotes are readings, which mean nothing here. kNotes + n is the note n.
inline constexpr std::int32_t kNotes = 16;
/// One token in kRarity is a note.
inline constexpr std::int64_t kRarity = 64;

struct Stream {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> notes;  ///< the last note up to each token, in [0, kNotes)
};

/// Stream `number` of a seed. It begins with a note. Streams of different numbers are drawn apart, and a
/// short one is the beginning of every longer one.
Stream draw(std::uint64_t seed, std::uint64_t number, std::int64_t length);

}  // namespace stream

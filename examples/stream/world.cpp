#include "world.h"

#include "fovea/core/philox.h"

namespace stream {

Stream draw(std::uint64_t seed, std::uint64_t number, std::int64_t length) {
  fovea::PhiloxStream random(seed, number << 20);
  Stream stream;
  std::int32_t note = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const bool told = random.next_below(kRarity) == 0 || i == 0;
    const auto drawn = static_cast<std::int32_t>(random.next_below(kNotes));
    if (told) note = drawn;
    stream.tokens.push_back(told ? kNotes + drawn : drawn);
    stream.notes.push_back(note);
  }
  return stream;
}

}  // namespace stream

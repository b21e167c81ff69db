// Long stories that begin with facts of who lives where, and ask about them later.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/text/generated.h"

namespace forget {

inline constexpr std::int64_t kFacts = 8;        ///< at the beginning of a story, each with a name of its own
inline constexpr std::int64_t kWordsOfFact = 5;  ///< "in oslo lives anna ."
inline constexpr std::int64_t kCities = 16;      ///< each equally likely: chance is 1 in 16
inline constexpr std::int64_t kBeginning = kFacts * kWordsOfFact;

/// "where is anna": the answer would follow the name. It is not in the story, which continues after the name.
struct Question {
  std::int64_t position = 0;  ///< of the name in the question
  std::int64_t told = 0;      ///< position of the name in the beginning; the city stands before it
  std::int32_t answer = 0;    ///< which city, in [0, kCities)
};

struct Story {
  std::vector<std::int32_t> words;  ///< ids
  std::vector<Question> questions;  ///< in order
};

std::int64_t vocabulary_size();
const std::string& word(std::int32_t id);
struct StoryShape {
  std::int64_t length = 1024;   ///< words
  std::int64_t facts = kFacts;  ///< fewer make an easier story, with a shorter beginning
};
/// Story `index` of stream `seed`, whose beginning belongs to `split`.
Story tell(fovea::text::Split split, std::uint64_t seed, std::uint64_t index, const StoryShape& shape);

}  // namespace forget

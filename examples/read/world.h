// Stories of twenty sentences about people who move and hand things to each other, with a question each.
//
// Most sentences share a word with the question and still do not answer it. Somebody wanted to go to a place
// but never went, an object was shown but stayed with its owner, a person has moved on since. "Where is the
// key" needs two sentences whose only common word is the holder's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/core/philox.h"
#include "fovea/text/generated.h"
#include "fovea/text/words.h"

namespace read_example {

enum class Asks { where_person, who_has, where_object };
inline constexpr int num_asks = 3;

struct Story {
  std::vector<std::string> sentences;  ///< in the order of what happens
  std::string question, answer;
  Asks asks = Asks::where_person;
  std::vector<int> needed;  ///< the sentences that say it: one, or two for where_object
};

/// A story that ends with a question of kind `asks`. The answer is a pair, (person, place) or (object,
/// holder), and each pair belongs to one split by its hash. Stories of Split::train contain only pairs of
/// that split. The questions of the other splits are about pairs that no training story contains.
Story draw_story(fovea::PhiloxStream& random, int sentences, Asks asks, fovea::text::Split split);

/// Every word that a story or a question can have.
fovea::text::Vocabulary vocabulary();
std::vector<std::int32_t> ids_of(const fovea::text::Vocabulary& vocabulary, const std::string& sentence);

/// The sentence that shares most words with `words`, the latest of several; `except` is not looked at.
int most_shared(const Story& story, const std::string& words, int except = -1);

}  // namespace read_example

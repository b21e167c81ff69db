// Stories of twenty sentences about people who move and hand things to each other, with a question each.
//
// Most sentences share a word with the question and still do not answer it: somebody wanted to go where he
// never went, an object was shown and stayed with its owner, a person has moved on since. "Where is the key"
// needs two sentences that share no word but the name of whoever holds it.
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

/// A story that ends with a question of the kind asked for. What answers it is a pair, (person, place) or
/// (object, holder), and a pair belongs to one split by its hash: in stories of Split::train no other pair
/// ever happens, and in the others the question is about one that no training story has.
Story draw_story(fovea::PhiloxStream& random, int sentences, Asks asks, fovea::text::Split split);

/// Every word that a story or a question can have.
fovea::text::Vocabulary vocabulary();
std::vector<std::int32_t> ids_of(const fovea::text::Vocabulary& vocabulary, const std::string& sentence);

/// The sentence that shares most words with `words`, the latest of several; `except` is not looked at.
int most_shared(const Story& story, const std::string& words, int except = -1);

}  // namespace read_example

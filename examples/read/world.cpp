#include "world.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

namespace read_example {
namespace {

using fovea::PhiloxStream;
using fovea::text::Split;
using fovea::text::split_at_blanks;
using Words = std::vector<std::string>;

const Words people{"mary", "john",  "anna", "peter", "laura", "david", "sofia", "frank", "julia", "simon",
                   "emma", "oscar", "nora", "henry", "clara", "bruno", "alice", "louis", "grace", "felix"};
const Words places{"kitchen", "garden", "office", "attic",   "cellar", "library", "stable", "bakery",
                   "harbour", "school", "market", "station", "museum", "chapel",  "tower",  "theatre"};
const Words objects{"key",  "lamp",   "letter", "apple", "map",  "coin",   "ring",   "umbrella",
                    "book", "hammer", "violin", "clock", "rope", "candle", "basket", "camera"};

// $1 and $2 stand for the names in a sentence.
const Words moves{"$1 went to the $2", "$1 walked to the $2", "$1 hurried to the $2", "$1 is back in the $2"};
const Words plans{"$1 wanted to see the $2", "$1 never went to the $2", "$1 spoke of the $2"};
const Words takes{"$1 picked up the $2", "$1 found the $2"};
const Words gives{"$1 gave the $3 to $2", "$2 got the $3 from $1", "$1 handed the $3 to $2"};
const Words shows{"$1 showed the $3 to $2", "$1 asked $2 about the $3", "$2 saw the $3 of $1"};
const Words questions{"where is $1", "who has the $1", "where is the $1"};

const std::string& one_of(PhiloxStream& random, const Words& words) {
  return words[random.next_below(static_cast<std::uint32_t>(words.size()))];
}

std::string filled(std::string text, const Words& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t at = text.find("$" + std::to_string(i + 1));
    if (at != std::string::npos) text.replace(at, 2, values[i]);
  }
  return text;
}

// A value that is true now, and the sentence that said it.
struct Fact {
  std::string value;
  int sentence = -1;
};

struct World {
  PhiloxStream& random;
  Split split;
  Words who, where, what;
  std::map<std::string, Fact> place_of = {}, holder_of = {};
  std::vector<std::string> sentences = {};

  bool may_happen(const std::string& entity, const std::string& value) const {
    const Split of_pair = fovea::text::split_of(entity + " " + value);
    return of_pair == Split::train || of_pair == split;
  }
  void say(const Words& forms, const Words& values) {
    sentences.push_back(filled(one_of(random, forms), values));
  }
  int next() const { return static_cast<int>(sentences.size()); }

  // Adds one sentence, or none if the drawn event is impossible.
  void step() {
    const std::string &person = one_of(random, who), &other = one_of(random, who);
    const std::string &place = one_of(random, where), &object = one_of(random, what);
    const std::uint32_t kind = random.next_below(20);
    const bool held = holder_of.contains(object);
    if (kind < 7) {
      if (!may_happen(person, place) || place_of[person].value == place) return;
      place_of[person] = {place, next()};
      say(moves, {person, place});
    } else if (kind < 10) {
      if (may_happen(person, place)) say(plans, {person, place});
    } else if (!held) {
      if (!may_happen(object, person)) return;
      holder_of[object] = {person, next()};
      say(takes, {person, object});
    } else if (const std::string holder = holder_of[object].value; holder == other) {
      return;
    } else if (kind < 15) {
      if (!may_happen(object, other)) return;
      holder_of[object] = {other, next()};
      say(gives, {holder, other, object});
    } else if (may_happen(object, other)) {
      say(shows, {holder, other, object});
    }
  }

  // Every question of a kind that the story answers from a pair of its split.
  std::vector<Story> questions_of(Asks asks) const {
    std::vector<Story> found;
    const auto ask = [&](const std::string& entity, const Fact& fact, std::vector<int> needed,
                         const std::string& about) {
      if (fact.sentence < 0 || fovea::text::split_of(entity + " " + fact.value) != split) return;
      found.push_back({.sentences = sentences,
                       .question = filled(questions[static_cast<std::size_t>(asks)], {about}),
                       .answer = fact.value,
                       .asks = asks,
                       .needed = std::move(needed)});
    };
    if (asks == Asks::where_person) {
      for (const auto& [person, fact] : place_of) ask(person, fact, {fact.sentence}, person);
    } else {
      for (const auto& [object, fact] : holder_of) {
        if (asks == Asks::who_has) {
          ask(object, fact, {fact.sentence}, object);
        } else if (const auto place = place_of.find(fact.value); place != place_of.end()) {
          ask(fact.value, place->second, {fact.sentence, place->second.sentence}, object);
        }
      }
    }
    return found;
  }
};

}  // namespace

Story draw_story(PhiloxStream& random, int sentences, Asks asks, Split split) {
  for (;;) {
    World world{.random = random,
                .split = split,
                .who = random.draw_from(people, 4),
                .where = random.draw_from(places, 5),
                .what = random.draw_from(objects, 3)};
    while (world.next() < sentences) world.step();
    const std::vector<Story> possible = world.questions_of(asks);
    if (!possible.empty()) return possible[random.next_below(static_cast<std::uint32_t>(possible.size()))];
  }
}

std::vector<std::int32_t> ids_of(const fovea::text::Vocabulary& vocabulary, const std::string& sentence) {
  std::vector<std::int32_t> ids;
  for (const std::string& word : split_at_blanks(sentence)) ids.push_back(vocabulary.id_of(word));
  return ids;
}

fovea::text::Vocabulary vocabulary() {
  Words all;
  for (const Words* list : {&people, &places, &objects, &moves, &plans, &takes, &gives, &shows, &questions}) {
    for (const std::string& word : split_at_blanks(fovea::text::joined(*list)))
      if (word[0] != '$') all.push_back(word);
  }
  return fovea::text::Vocabulary::of_words(all);
}

int most_shared(const Story& story, const std::string& words, int except) {
  const auto set_of = [](const std::string& text) {
    std::set<std::string> set;
    for (const std::string& word : split_at_blanks(text))
      if (word != "the") set.insert(word);
    return set;
  };
  const std::set<std::string> asked = set_of(words);
  int best = -1, most = -1;
  for (int i = 0; i < static_cast<int>(story.sentences.size()); ++i) {
    const std::set<std::string> has = set_of(story.sentences[static_cast<std::size_t>(i)]);
    const auto shared = static_cast<int>(
        std::count_if(has.begin(), has.end(), [&](const auto& word) { return asked.contains(word); }));
    if (i == except || shared < most) continue;
    most = shared;
    best = i;
  }
  return best;
}

}  // namespace read_example

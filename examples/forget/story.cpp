#include "story.h"

#include <algorithm>
#include <array>

#include "fovea/core/philox.h"
#include "fovea/text/words.h"

namespace forget {
namespace {

using Words = std::vector<std::string>;

const Words names{"anna", "boris", "carla", "david", "elena", "frank", "greta", "henry"};
const Words cities{"oslo",   "rome",   "paris",  "berlin", "madrid",  "vienna", "prague", "dublin",
                   "lisbon", "athens", "warsaw", "zagreb", "tallinn", "riga",   "sofia",  "bern"};
const Words nouns{"train", "river", "garden", "letter", "bridge", "winter", "market", "window"};
const Words adjectives{"old", "quiet", "bright", "narrow", "cold", "red"};
const Words verbs{"was", "seemed", "became", "stayed"};
const Words others{".", "the", "and", "in", "to", "lives", "flew", "wrote", "where", "is"};

const fovea::text::WordList& all_words() {
  static const fovea::text::WordList all{cities, names, nouns, adjectives, verbs, others};
  return all;
}

// A story as words, while it is being written.
class Teller {
 public:
  explicit Teller(std::uint64_t key) : random_(key) {}

  const std::string& any(const Words& words) {
    return words[random_.next_below(static_cast<std::uint32_t>(words.size()))];
  }
  std::uint32_t below(std::uint32_t bound) { return random_.next_below(bound); }
  void say(std::initializer_list<std::string> sentence) {
    text_.insert(text_.end(), sentence.begin(), sentence.end());
  }
  // The first `count` of the names in a drawn order.
  Words different_names(std::int64_t count) {
    return random_.draw_from(names, static_cast<std::size_t>(count));
  }
  const Words& text() const { return text_; }
  void clear() { text_.clear(); }

 private:
  fovea::PhiloxStream random_;
  Words text_;
};

// The sentences between the questions. A sixth of them name people of the beginning beside cities in which
// they do not live. These cities are drawn without regard to the true ones, so such a city is the right one
// as often as any other and carries no information.
void fill(Teller& teller, const Words& people) {
  switch (teller.below(6)) {
    case 0:
      return teller.say({"to", teller.any(cities), "flew", teller.any(people), "."});
    case 1:
      return teller.say({"to", teller.any(people), "wrote", teller.any(people), "."});
    case 2:
      return teller.say({teller.any(cities), teller.any(verbs), teller.any(adjectives), "."});
    case 3:
      return teller.say(
          {"the", teller.any(adjectives), teller.any(nouns), teller.any(verbs), teller.any(adjectives), "."});
    default:
      return teller.say({"the", teller.any(nouns), teller.any(verbs), teller.any(adjectives), "and",
                         teller.any(adjectives), "."});
  }
}

}  // namespace

std::int64_t vocabulary_size() {
  return all_words().size();
}

const std::string& word(std::int32_t id) {
  return all_words().word(id);
}

Story tell(fovea::text::Split split, std::uint64_t seed, std::uint64_t index, const StoryShape& shape) {
  Teller teller((seed << 40) + index);
  Words people, homes;
  do {
    teller.clear();
    homes.clear();
    people = teller.different_names(shape.facts);
    for (const std::string& person : people) {
      homes.push_back(teller.any(cities));
      teller.say({"in", homes.back(), "lives", person, "."});
    }
  } while (fovea::text::split_of(fovea::text::joined(teller.text())) != split);
  Story story;
  while (static_cast<std::int64_t>(teller.text().size()) < shape.length) {
    if (teller.below(2) != 0) {
      fill(teller, people);
      continue;
    }
    const auto who = static_cast<std::size_t>(teller.below(static_cast<std::uint32_t>(shape.facts)));
    teller.say({"where", "is", people[who]});
    story.questions.push_back({.position = static_cast<std::int64_t>(teller.text().size()) - 1,
                               .told = static_cast<std::int64_t>(who) * kWordsOfFact + 3,
                               .answer = all_words().id_of(homes[who])});
  }
  for (const std::string& word : teller.text()) story.words.push_back(all_words().id_of(word));
  story.words.resize(static_cast<std::size_t>(shape.length));
  std::erase_if(story.questions, [&](const Question& q) { return q.position >= shape.length; });
  return story;
}

}  // namespace forget

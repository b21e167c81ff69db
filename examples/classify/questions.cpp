#include "questions.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "fovea/core/error.h"
#include "fovea/core/philox.h"
#include "fovea/text/labelled.h"
#include "fovea/text/words.h"

namespace questions {
namespace {

using Words = std::span<const std::string_view>;

// The noun that is asked for decides the type: nouns of each type, in the order of kTypes.
constexpr std::string_view kReasons[] = {"reason", "meaning", "origin",  "purpose",
                                         "effect", "cause",   "history", "nature"};
constexpr std::string_view kThings[] = {"animal", "colour", "instrument", "sport",  "plant",  "language",
                                        "book",   "metal",  "machine",    "flower", "weapon", "food"};
constexpr std::string_view kShortForms[] = {"abbreviation", "acronym", "initials", "short form"};
constexpr std::string_view kPeople[] = {"president", "general", "painter", "engineer", "nurse",  "farmer",
                                        "king",      "singer",  "pilot",   "teacher",  "doctor", "writer"};
constexpr std::string_view kPlaces[] = {"city",    "river",  "country", "island", "mountain", "village",
                                        "harbour", "street", "lake",    "valley", "province", "desert"};
constexpr std::string_view kAmounts[] = {"year", "date",   "distance", "price",
                                         "age",  "height", "weight",   "percentage"};
constexpr std::array<Words, 6> kNouns{kReasons, kThings, kShortForms, kPeople, kPlaces, kAmounts};
constexpr std::string_view kVerbs[] = {"paint",  "visit", "discover", "describe", "protect", "destroy",
                                       "choose", "leave", "reach",    "own",      "buy",     "change"};
constexpr std::string_view kPast[] = {"painted",   "visited",   "discovered", "described",
                                      "protected", "destroyed", "chose",      "left",
                                      "reached",   "owned",     "bought",     "changed"};
constexpr std::string_view kAdjectives[] = {"old",     "famous", "second", "largest", "northern",
                                            "unknown", "first",  "lost",   "last",    "little"};

// In a pattern capitals are placeholders, filled at random: N any noun that can stand in a sentence, V a
// verb, P its past, A an adjective or nothing, T a noun of the type that is asked for, Q a question.
// Everything else is a word.
struct Pattern {
  std::string_view text;
  int type;  ///< -1: that of T
};
constexpr Pattern kAsked[] = {
    {"what T did the A N V", -1},
    {"which T did the A N V", -1},
    {"what is the T of the A N", -1},
    {"the A N P which T", -1},
    {"name the T that the A N P", -1},
    {"for what T is the A N known", -1},
    {"of all that the A N P , what was the T", -1},
    {"who P the A N", 3},
    {"by whom was the A N P", 3},
    {"where did the N V the A N", 4},
    {"when did the N V the A N", 5},
    {"how many of the N did the A N V", 5},
    {"how far is the N from the A N", 5},
    {"why did the N V the A N", 0},
    {"how did the A N V the N", 0},
    {"what does the A N of the N stand for", 2},
    {"what is the A N called for short", 2},
};
// Sentences with the same words and question words that are no questions.
constexpr std::string_view kAround[] = {
    "the A N , who P the A N , P a N .",
    "it was the N where the A N P the N .",
    "i already know what N the A N P .",
    "nobody asks which N the N P or when .",
    "my N told me why the A N P the N .",
    "they forgot who P the N and how the A N P it .",
    "when the N P the A N , a N P the N .",
    "do not tell me the N of the A N .",
    "there are many of the N that the A N P .",
    "the A N asked : Q ?",
    "nobody wants to hear Q ?",
};

class Writer {
 public:
  explicit Writer(fovea::PhiloxStream& random) : random_(random) {}

  template <class Items>
  const auto& pick(const Items& items) {
    return items[random_.next_below(static_cast<std::uint32_t>(std::size(items)))];
  }
  std::string fill(std::string_view pattern, std::size_t type) {
    std::string text;
    for (std::size_t at = 0; at < pattern.size();) {
      const std::size_t end = std::min(pattern.find(' ', at), pattern.size());
      const std::string_view word = pattern.substr(at, end - at);
      const std::string written =
          word == "Q" ? fill(pick(kAsked).text, random_.next_below(6)) : std::string(drawn(word, type));
      if (!written.empty()) text += (text.empty() ? "" : " ") + written;
      at = end + 1;
    }
    return text;
  }
  /// Calls `make` until its sentence belongs to the split.
  template <class Make>
  std::string of(fovea::text::Split split, Make&& make) {
    for (;;) {
      std::string sentence = make();
      if (fovea::text::split_of(sentence) == split) return sentence;
    }
  }

 private:
  std::string_view drawn(std::string_view word, std::size_t type) {
    if (word == "T") return pick(kNouns[type]);
    if (word == "N") return pick(kNouns[std::array<std::size_t, 4>{1, 3, 4, 5}[random_.next_below(4)]]);
    if (word == "V") return pick(kVerbs);
    if (word == "P") return pick(kPast);
    if (word == "A") return random_.next_below(2) ? pick(kAdjectives) : std::string_view();
    return word;
  }
  fovea::PhiloxStream& random_;
};

}  // namespace

std::vector<Question> generate(std::uint64_t seed, std::int64_t count, const Options& options) {
  const fovea::text::Split split = options.split;
  fovea::PhiloxStream random(seed * 3 + static_cast<std::uint64_t>(split));
  Writer writer(random);
  std::vector<Question> made;
  for (std::int64_t n = 0; n < count; ++n) {
    Question question{.words = {}, .type = static_cast<std::int32_t>(random.next_below(6))};
    const auto type = static_cast<std::size_t>(question.type);
    const std::string asked = writer.of(split, [&] {
      for (;;) {
        const Pattern& pattern = writer.pick(kAsked);
        if (pattern.type < 0 || pattern.type == question.type) return writer.fill(pattern.text, type) + " ?";
      }
    });
    const std::uint32_t others = options.least + random.next_below(options.most - options.least + 1);
    const std::uint32_t place = random.next_below(others + 1);
    std::string text;
    for (std::uint32_t i = 0; i <= others; ++i) {
      const auto around = [&] { return writer.fill(writer.pick(kAround), type); };
      text += (text.empty() ? "" : " ") + (i == place ? asked : writer.of(split, around));
    }
    question.words = fovea::text::split_at_blanks(text);
    made.push_back(std::move(question));
  }
  return made;
}

std::vector<Question> read(const std::string& file) {
  std::vector<Question> made;
  for (fovea::text::LabelledLine& line : fovea::text::read_labelled_lines(file)) {
    if (line.label.size() != 1 || line.label[0] < '0' || line.label[0] > '5') {
      throw fovea::FileError(file, line.number, "expected a type from 0 to 5, found \"" + line.label + "\"",
                             "line");
    }
    made.push_back({.words = std::move(line.words), .type = line.label[0] - '0'});
  }
  return made;
}

}  // namespace questions

// A phrase in both languages at once: words carry the units of meaning that they express, and two words are
// aligned when they share a unit. So reordering, contraction ("du" carries the units of "of" and "the") and
// elision need not update any indices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/corpus.h"
#include "text/generated/lexicon.h"

namespace fovea::text::generated {

using Unit = int;

struct Word {
  std::string text;
  std::vector<Unit> units;
};
using Words = std::vector<Word>;

struct Phrase {
  Words english, french;
};

/// Index into Verb::present.
enum class Person { first, third, first_plural, second, third_plural };

struct Agreement {
  Person person = Person::third;
  Gender gender = Gender::masculine;
  bool plural = false;
};

void append(Words& words, const Words& more);
void append(Phrase& phrase, const Phrase& more);
/// Appends every blank-separated word of `text`, all with the units given.
void append_words(Words& words, std::string_view text, const std::vector<Unit>& units);
/// True before a vowel or a silent h: every h of the lexicon is silent.
bool starts_with_vowel(std::string_view french);
/// Elision (l', d', qu', j', n', m', s'il), contraction (du, des, au, aux) and the forms cet and mon before a
/// vowel.
Words euphony(const Words& french);
/// A regular participle or adjective in agreement: vu, vue, vus, vues.
std::string agreeing(std::string_view masculine, Gender gender, bool plural);

/// The finished sentence: euphony, capital, full stop, links.
struct Sentence {
  SentencePair pair;
  Alignment alignment;
  int num_source_words = 0;
};
Sentence finish(Phrase phrase, Unit full_stop);

}  // namespace fovea::text::generated

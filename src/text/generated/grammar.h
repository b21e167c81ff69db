// Functions that build the parts of a sentence, each in English and in French at once. Nothing here is
// random: generator.h makes the random choices.
#pragma once

#include <span>
#include <vector>

#include "text/generated/lexicon.h"
#include "text/generated/phrase.h"

namespace fovea::text::generated {

enum class Determiner { the, a, this_, my, our, some, two, three, every };
enum class Tense { present, past };
enum class Polarity { affirmative, negated, never };

/// Numbers the units of meaning (Word::units) of one sentence.
class Units {
 public:
  Unit next() { return next_++; }

 private:
  Unit next_ = 0;
};

struct NounPhrase {
  Phrase words;
  Agreement agreement;
  NounClass noun_class = NounClass::animate;
  bool pronoun = false;
};

struct SimpleNoun {
  Determiner determiner = Determiner::the;
  bool plural = false;
  const Adjective* before = nullptr;  ///< one that precedes its noun in French
  const Adjective* after = nullptr;
  const Noun* noun = nullptr;
};
NounPhrase realise(const SimpleNoun& spec, Units& units);

/// "the European Economic Area": in French both adjectives follow the noun, in inverse order.
NounPhrase institution(const InstitutionAdjective* region, const InstitutionAdjective* subject,
                       const InstitutionNoun& noun, Units& units);

struct SubjectPronoun {
  std::string_view english, french;
  Agreement agreement;
};
std::span<const SubjectPronoun> subject_pronouns();
NounPhrase realise(const SubjectPronoun& pronoun, Units& units);

struct ObjectPronoun {
  std::string_view english, french;
  Person person;  ///< to keep "I see me" out
  Agreement agreement;
};
std::span<const ObjectPronoun> object_pronouns();

/// "first and second": plural, masculine unless both are feminine.
NounPhrase both(const NounPhrase& first, const NounPhrase& second, Units& units);

struct VerbPhrase {
  const Verb* verb = nullptr;
  Agreement subject;
  Tense tense = Tense::present;
  Polarity polarity = Polarity::affirmative;
  const Verb* modal = nullptr;                  ///< present, affirmative only
  const WordPair* adverb = nullptr;             ///< affirmative only
  const ObjectPronoun* object = nullptr;        ///< a clitic in French
  const Agreement* preceding_object = nullptr;  ///< the antecedent of an object relative
};
/// "never saw it" with "ne l' a jamais vu".
Phrase realise(const VerbPhrase& spec, Units& units);

/// is / was (not), est / était (pas).
Phrase copula(const Agreement& subject, Tense tense, Polarity polarity, Units& units);
Phrase predicate_adjective(const Adjective& adjective, const Agreement& subject, Units& units);
/// "was signed", "a été signé".
Phrase passive(const WordPair& participle, const Agreement& subject, Units& units);
Phrase preposition(const Preposition& preposition, Units& units);
/// A phrase whose English words are all aligned with all of its French words.
Phrase fixed(std::string_view english, std::string_view french, Units& units);

}  // namespace fovea::text::generated

#include "text/generated/grammar.h"

#include <string>

#include "text/utf8.h"

namespace fovea::text::generated {
namespace {

constexpr Gender m = Gender::masculine, f = Gender::feminine;
constexpr std::size_t index_of(Person person) {
  return static_cast<std::size_t>(person);
}

constexpr SubjectPronoun kSubjects[] = {
    {"I", "je", {Person::first, m, false}},     {"he", "il", {Person::third, m, false}},
    {"she", "elle", {Person::third, f, false}}, {"we", "nous", {Person::first_plural, m, true}},
    {"you", "vous", {Person::second, m, true}}, {"they", "ils", {Person::third_plural, m, true}},
};

constexpr ObjectPronoun kObjects[] = {
    {"me", "me", Person::first, {Person::first, m, false}},
    {"him", "le", Person::third, {Person::third, m, false}},
    {"her", "la", Person::third, {Person::third, f, false}},
    {"it", "le", Person::third, {Person::third, m, false}},
    {"us", "nous", Person::first_plural, {Person::first_plural, m, true}},
    {"you", "vous", Person::second, {Person::second, m, true}},
    {"them", "les", Person::third_plural, {Person::third_plural, m, true}},
};

constexpr std::array<std::string_view, 5> kAvoir{"ai", "a", "avons", "avez", "ont"};
constexpr std::array<std::string_view, 5> kEtre{"suis", "est", "sommes", "êtes", "sont"};
constexpr std::array<std::string_view, 5> kImperfect{"étais", "était", "étions", "étiez", "étaient"};

struct DeterminerForms {
  std::string_view english, english_plural, masculine, feminine, plural;
};
constexpr DeterminerForms kDeterminers[] = {
    {"the", "the", "le", "la", "les"},
    {"a", "", "un", "une", ""},
    {"this", "these", "ce", "cette", "ces"},
    {"my", "my", "mon", "ma", "mes"},
    {"our", "our", "notre", "notre", "nos"},
    {"", "some", "", "", "des"},
    {"", "two", "", "", "deux"},
    {"", "three", "", "", "trois"},
    {"every", "", "chaque", "chaque", ""},
};

bool english_vowel(std::string_view word) {
  return !word.empty() && std::string_view("aeiouAEIOU").find(word[0]) != std::string_view::npos;
}

std::string_view form_of(const Adjective& adjective, Gender gender, bool plural) {
  return adjective.french[(plural ? 2u : 0u) + (gender == f ? 1u : 0u)];
}

std::string_view be_english(const Agreement& subject, Tense tense) {
  const bool singular = subject.person == Person::third || subject.person == Person::first;
  if (tense == Tense::past) return singular ? "was" : "were";
  if (subject.person == Person::first) return "am";
  return singular ? "is" : "are";
}

bool takes_third_form(const Agreement& subject) {
  return subject.person == Person::third;
}

// The English side; `verb`, `negation` and so on are the units that the French side shares.
struct VerbUnits {
  Unit modal, auxiliary, negation, adverb, verb, object;
};

Words english_verb(const VerbPhrase& spec, const VerbUnits& unit) {
  Words words;
  if (spec.adverb) append_words(words, spec.adverb->english, {unit.adverb});
  if (spec.polarity == Polarity::never) append_words(words, "never", {unit.negation});
  const bool third = takes_third_form(spec.subject);
  if (spec.modal) {
    append_words(words, third ? spec.modal->english_third : spec.modal->english, {unit.modal});
    append_words(words, spec.verb->english, {unit.verb});
  } else if (spec.polarity == Polarity::negated) {
    append_words(words, spec.tense == Tense::past ? "did" : third ? "does" : "do", {unit.auxiliary});
    append_words(words, "not", {unit.negation});
    append_words(words, spec.verb->english, {unit.verb});
  } else if (spec.tense == Tense::past) {
    append_words(words, spec.verb->english_past, {unit.verb});
  } else {
    append_words(words, third ? spec.verb->english_third : spec.verb->english, {unit.verb});
  }
  if (spec.object) append_words(words, spec.object->english, {unit.object});
  return words;
}

// The participle agrees with the subject after être and with a preceding object after avoir.
std::string participle_of(const VerbPhrase& spec) {
  Agreement with{Person::third, m, false};
  if (spec.verb->auxiliary != Auxiliary::avoir)
    with = spec.subject;
  else if (spec.object)
    with = spec.object->agreement;
  else if (spec.preceding_object)
    with = *spec.preceding_object;
  return agreeing(spec.verb->participle, with.gender, with.plural);
}

Words french_verb(const VerbPhrase& spec, const VerbUnits& unit) {
  const std::size_t person = index_of(spec.subject.person);
  const bool seated = spec.verb->auxiliary == Auxiliary::seated;
  const bool compound = spec.tense == Tense::past && !seated && !spec.modal;
  Words words;
  const auto clitic = [&] {
    if (spec.object) append_words(words, spec.object->french, {unit.object});
  };
  if (spec.polarity != Polarity::affirmative) append_words(words, "ne", {unit.negation});
  if (!spec.modal) clitic();
  // "did not see" has an auxiliary of its own; the one of "saw" is part of the verb.
  std::vector<Unit> auxiliary_units{unit.verb};
  if (spec.polarity == Polarity::negated) auxiliary_units = {unit.auxiliary};
  if (spec.modal) {
    append_words(words, spec.modal->present[person], {unit.modal});
  } else if (seated) {
    append_words(words, spec.tense == Tense::past ? kImperfect[person] : kEtre[person], auxiliary_units);
  } else if (compound) {
    append_words(words, (spec.verb->auxiliary == Auxiliary::etre ? kEtre : kAvoir)[person], auxiliary_units);
  } else {
    append_words(words, spec.verb->present[person], {unit.verb});
  }
  if (spec.polarity == Polarity::negated) append_words(words, "pas", {unit.negation});
  if (spec.polarity == Polarity::never) append_words(words, "jamais", {unit.negation});
  if (spec.adverb) append_words(words, spec.adverb->french, {unit.adverb});
  if (spec.modal) {
    clitic();
    append_words(words, spec.verb->infinitive, {unit.verb});
  } else if (compound || seated) {
    append_words(words, participle_of(spec), {unit.verb});
  }
  return words;
}

}  // namespace

std::span<const SubjectPronoun> subject_pronouns() {
  return kSubjects;
}
std::span<const ObjectPronoun> object_pronouns() {
  return kObjects;
}

NounPhrase realise(const SimpleNoun& spec, Units& units) {
  const Noun& noun = *spec.noun;
  const bool plural = spec.plural;
  NounPhrase result;
  result.agreement = {plural ? Person::third_plural : Person::third, noun.gender, plural};
  result.noun_class = noun.noun_class;
  const Unit determiner = units.next(), before = units.next(), after = units.next(), head = units.next();

  const DeterminerForms& forms = kDeterminers[static_cast<std::size_t>(spec.determiner)];
  Words& english = result.words.english;
  append_words(english, plural ? forms.english_plural : forms.english, {determiner});
  if (spec.before) append_words(english, spec.before->english, {before});
  if (spec.after) append_words(english, spec.after->english, {after});
  append_words(english, plural ? noun.english_plural : noun.english, {head});
  if (spec.determiner == Determiner::a && english_vowel(english[1].text)) english[0].text = "an";

  Words& french = result.words.french;
  const std::string_view french_noun = plural ? noun.french_plural : noun.french;
  std::string_view article = plural ? forms.plural : noun.gender == f ? forms.feminine : forms.masculine;
  if (spec.determiner == Determiner::some && spec.before) article = "de";
  append_words(french, article, {determiner});
  if (spec.before) {
    const bool liaison =
        !plural && noun.gender == m && !spec.before->before_vowel.empty() && starts_with_vowel(french_noun);
    append_words(french, liaison ? spec.before->before_vowel : form_of(*spec.before, noun.gender, plural),
                 {before});
  }
  append_words(french, french_noun, {head});
  if (spec.after) append_words(french, form_of(*spec.after, noun.gender, plural), {after});
  return result;
}

NounPhrase institution(const InstitutionAdjective* region, const InstitutionAdjective* subject,
                       const InstitutionNoun& noun, Units& units) {
  const Unit the = units.next(), first = units.next(), second = units.next(), head = units.next();
  NounPhrase result;
  result.agreement = {Person::third, noun.gender, false};
  const auto form = [&](const InstitutionAdjective& adjective) {
    return noun.gender == f ? adjective.feminine : adjective.masculine;
  };
  append_words(result.words.english, "the", {the});
  if (region) append_words(result.words.english, region->english, {first});
  if (subject) append_words(result.words.english, subject->english, {second});
  append_words(result.words.english, noun.english, {head});
  append_words(result.words.french, noun.gender == f ? "la" : "le", {the});
  append_words(result.words.french, noun.french, {head});
  if (subject) append_words(result.words.french, form(*subject), {second});
  if (region) append_words(result.words.french, form(*region), {first});
  return result;
}

NounPhrase realise(const SubjectPronoun& pronoun, Units& units) {
  NounPhrase result;
  result.words = fixed(pronoun.english, pronoun.french, units);
  result.agreement = pronoun.agreement;
  result.pronoun = true;
  return result;
}

NounPhrase both(const NounPhrase& first, const NounPhrase& second, Units& units) {
  NounPhrase result = first;
  append(result.words, fixed("and", "et", units));
  append(result.words, second.words);
  const bool feminine = first.agreement.gender == f && second.agreement.gender == f;
  result.agreement = {Person::third_plural, feminine ? f : m, true};
  return result;
}

Phrase realise(const VerbPhrase& spec, Units& units) {
  const VerbUnits unit{units.next(), units.next(), units.next(), units.next(), units.next(), units.next()};
  return {english_verb(spec, unit), french_verb(spec, unit)};
}

Phrase copula(const Agreement& subject, Tense tense, Polarity polarity, Units& units) {
  const Unit be = units.next(), negation = units.next();
  const std::size_t person = index_of(subject.person);
  Phrase phrase;
  append_words(phrase.english, be_english(subject, tense), {be});
  if (polarity == Polarity::negated) {
    append_words(phrase.english, "not", {negation});
    append_words(phrase.french, "ne", {negation});
  }
  append_words(phrase.french, tense == Tense::past ? kImperfect[person] : kEtre[person], {be});
  if (polarity == Polarity::negated) append_words(phrase.french, "pas", {negation});
  return phrase;
}

Phrase predicate_adjective(const Adjective& adjective, const Agreement& subject, Units& units) {
  return fixed(adjective.english, form_of(adjective, subject.gender, subject.plural), units);
}

Phrase passive(const WordPair& participle, const Agreement& subject, Units& units) {
  Phrase phrase = fixed(be_english(subject, Tense::past), subject.plural ? "ont été" : "a été", units);
  append(phrase,
         fixed(participle.english, agreeing(participle.french, subject.gender, subject.plural), units));
  return phrase;
}

Phrase preposition(const Preposition& preposition, Units& units) {
  return fixed(preposition.english, preposition.french, units);
}

Phrase fixed(std::string_view english, std::string_view french, Units& units) {
  const Unit unit = units.next();
  Phrase phrase;
  append_words(phrase.english, english, {unit});
  append_words(phrase.french, french, {unit});
  return phrase;
}

}  // namespace fovea::text::generated

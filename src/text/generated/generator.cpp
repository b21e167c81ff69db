#include "text/generated/generator.h"

#include <algorithm>
#include <string>

namespace fovea::text::generated {
namespace {

constexpr unsigned kWho = mask_of(NounClass::animate), kThing = mask_of(NounClass::thing),
                   kPlace = mask_of(NounClass::place), kPaper = mask_of(NounClass::document);

int length(const Phrase& phrase) {
  return static_cast<int>(phrase.english.size());
}
bool has_class(unsigned classes, NounClass noun_class) {
  return (classes & mask_of(noun_class)) != 0;
}

}  // namespace

const Adjective* Generator::pick_adjective(NounClass noun_class, bool precedes) {
  for (;;) {
    const Adjective& adjective = pick(adjectives());
    if (adjective.precedes == precedes && has_class(adjective.classes, noun_class)) return &adjective;
  }
}

NounPhrase Generator::random_institution(int budget) {
  const auto& region = pick(regional_adjectives());
  const auto& topic = pick(subject_adjectives());
  const auto& head = pick(institution_nouns());
  const bool two = budget >= 4 && chance(70), first = two || chance(50);
  return institution(first ? &region : nullptr, two || !first ? &topic : nullptr, head, units_);
}

NounPhrase Generator::noun_phrase(const NounWish& wish) {
  SimpleNoun spec;
  do spec.noun = &pick(nouns());
  while (!has_class(wish.classes, spec.noun->noun_class));
  constexpr Determiner kSingular[] = {Determiner::the, Determiner::the, Determiner::this_, Determiner::my,
                                      Determiner::our, Determiner::a,   Determiner::a,     Determiner::every};
  constexpr Determiner kPlural[] = {Determiner::the, Determiner::the,  Determiner::this_, Determiner::my,
                                    Determiner::our, Determiner::some, Determiner::two,   Determiner::three};
  spec.plural = chance(35);
  spec.determiner = (spec.plural ? kPlural : kSingular)[below(wish.definite ? 5 : 8)];
  int spare = wish.budget - 2;
  if (spare > 0 && chance(55)) spec.before = pick_adjective(spec.noun->noun_class, true), --spare;
  if (spare > 0 && chance(55)) spec.after = pick_adjective(spec.noun->noun_class, false), --spare;
  NounPhrase result = realise(spec, units_);
  if (spare >= 3 && result.noun_class == NounClass::document && chance(60)) {
    append(result.words, fixed("on", "sur", units_));
    append(result.words, random_institution(spare - 1).words);
  } else if (spare >= 3 && chance(65)) {
    add_relative(result, spare);
  } else if (spare >= 3 && result.noun_class != NounClass::document) {
    append(result.words, prepositional(spare, Place::embedded));
  }
  return result;
}

void Generator::add_relative(NounPhrase& head, int budget) {
  const bool animate = head.noun_class == NounClass::animate, paper = head.noun_class == NounClass::document;
  if ((animate || paper) && chance(50)) {
    append(head.words, fixed(animate ? "who" : "that", "qui", units_));
    NounPhrase antecedent;
    antecedent.agreement = head.agreement;
    antecedent.noun_class = head.noun_class;
    append(head.words, predicate(antecedent, budget - 1, Place::embedded));
    return;
  }
  append(head.words, fixed("that", "que", units_));
  const NounPhrase agent = subject(std::min(budget - 2, 4), Place::embedded);
  append(head.words, agent.words);
  int spare = budget - 2 - length(agent.words);
  VerbPhrase verb = verb_phrase(pick(transitive_verbs()), agent, spare);
  verb.preceding_object = &head.agreement;
  append(head.words, realise(verb, units_));
  if (spare >= 3) append(head.words, prepositional(spare, Place::embedded));
}

Phrase Generator::prepositional(int budget, Place place) {
  const Preposition& where = pick(prepositions());
  Phrase phrase = preposition(where, units_);
  append(phrase,
         noun_phrase({.budget = budget - length(phrase), .classes = where.classes, .place = place}).words);
  return phrase;
}

Phrase Generator::time(int budget, Tense tense) {
  if (tense == Tense::present) {
    return budget >= 2 && chance(60) ? fixed("every day", "chaque jour", units_)
                                     : fixed("today", "aujourd'hui", units_);
  }
  if (budget >= 3 && chance(60)) {
    const WordPair& month = pick(months());
    const std::string year = std::to_string(1990 + below(10));
    Phrase phrase = fixed("in", "en", units_);
    append(phrase, fixed(month.english, month.french, units_));
    append(phrase, fixed(year, year, units_));
    return phrase;
  }
  if (budget >= 2 && chance(60)) {
    const WordPair& day = pick(weekdays());
    return fixed("on " + std::string(day.english), day.french, units_);
  }
  return fixed("yesterday", "hier", units_);
}

NounPhrase Generator::subject(int budget, Place place) {
  if (budget < 2 || (budget < 5 && chance(40))) return realise(pick(subject_pronouns()), units_);
  if (place == Place::main && budget >= 5 && chance(25)) {
    const int first = 2 + below(budget - 4);
    // Each of the two noun phrases has at most 4 words. So it has at most two adjectives, and neither a
    // relative clause nor a preposition.
    const NounPhrase one = noun_phrase({.budget = std::min(first, 4), .classes = kWho});
    const NounPhrase two = noun_phrase({.budget = std::min(budget - 1 - first, 4), .classes = kWho});
    return both(one, two, units_);
  }
  // The subject of an embedded clause is a person or an animal. In a main clause the subject may also be a
  // thing, a place or a document.
  const unsigned classes = place == Place::embedded || chance(65) ? kWho
                           : chance(50)                           ? kPaper
                                                                  : kThing | kPlace;
  return noun_phrase({.budget = budget, .classes = classes, .place = place});
}

VerbPhrase Generator::verb_phrase(const Verb& verb, const NounPhrase& subject, int& spare) {
  VerbPhrase phrase{.verb = &verb, .subject = subject.agreement};
  phrase.tense = if_clause_ || chance(50) ? Tense::present : Tense::past;
  --spare;
  if (spare >= 2 && chance(15)) {
    phrase.polarity = Polarity::negated, spare -= 2;
  } else if (spare >= 1 && chance(8)) {
    phrase.polarity = Polarity::never, --spare;
  } else if (spare >= 2 && chance(12) && verb.auxiliary != Auxiliary::seated) {
    phrase.modal = &pick(modal_verbs()), phrase.tense = Tense::present, spare -= 2;
  } else if (spare >= 1 && chance(20)) {
    phrase.adverb = &pick(adverbs()), --spare;
  }
  return phrase;
}

const ObjectPronoun& Generator::object_pronoun(Person subject) {
  const auto first = [](Person person) { return person == Person::first || person == Person::first_plural; };
  for (;;) {
    const ObjectPronoun& object = pick(object_pronouns());
    const bool reflexive = (first(subject) && first(object.person)) ||
                           (subject == Person::second && object.person == Person::second);
    if (!reflexive) return object;
  }
}

Phrase Generator::document_predicate(const NounPhrase& subject, int budget) {
  Phrase phrase = passive(pick(passive_verbs()), subject.agreement, units_);
  int spare = budget - length(phrase);
  if (spare >= 4 && chance(40)) {
    append(phrase, fixed("by", "par", units_));
    append(phrase, random_institution(spare - 1).words);
    spare = budget - length(phrase);
  }
  if (spare >= 1) append(phrase, time(spare, Tense::past));
  return phrase;
}

Phrase Generator::state_predicate(const NounPhrase& subject, int budget, Place place) {
  const Tense tense = if_clause_ || chance(50) ? Tense::present : Tense::past;
  const Polarity polarity = budget >= 3 && chance(20) ? Polarity::negated : Polarity::affirmative;
  Phrase phrase = copula(subject.agreement, tense, polarity, units_);
  const int spare = budget - length(phrase);
  if (spare >= 3 && chance(60)) {
    append(phrase, prepositional(spare, place));
  } else {
    append(phrase,
           predicate_adjective(*pick_adjective(subject.noun_class, chance(30)), subject.agreement, units_));
  }
  return phrase;
}

Phrase Generator::action_predicate(const NounPhrase& subject, int budget, Place place) {
  const bool sits = budget >= 4 && chance(30);
  int spare = budget - (sits ? 3 : 0);
  const VerbPhrase verb = verb_phrase(sits ? sitting_verb() : pick(intransitive_verbs()), subject, spare);
  Phrase phrase = realise(verb, units_);
  spare = budget - length(phrase);
  if (spare >= 3 && (sits || chance(75)))
    append(phrase, prepositional(chance(50) ? spare : std::max(3, spare - 2), place));
  spare = budget - length(phrase);
  if (spare >= 1 && chance(60)) append(phrase, time(spare, verb.tense));
  return phrase;
}

Phrase Generator::transitive_predicate(const NounPhrase& subject, int budget, Place place) {
  const bool pronoun = budget < 3 || (budget < 6 && chance(50));
  int spare = budget - (pronoun ? 1 : 2);
  VerbPhrase verb = verb_phrase(pick(transitive_verbs()), subject, spare);
  if (pronoun) verb.object = &object_pronoun(subject.agreement.person);
  Phrase phrase = realise(verb, units_);
  spare = budget - length(phrase);
  if (!pronoun) {
    NounWish wish{.budget = std::min(spare, 4 + below(8)), .classes = kWho | kThing | kPaper, .place = place};
    wish.definite = verb.polarity != Polarity::affirmative;
    if (chance(50)) wish.classes = kThing;
    append(phrase, noun_phrase(wish).words);
    spare = budget - length(phrase);
    if (spare >= 3 && place == Place::main && chance(30)) {
      append(phrase, fixed("and", "et", units_));
      wish.budget = std::min(spare - 1, 4);
      append(phrase, noun_phrase(wish).words);
    }
  }
  spare = budget - length(phrase);
  if (spare >= 3 && chance(50)) append(phrase, prepositional(spare, place));
  spare = budget - length(phrase);
  if (spare >= 1 && chance(70)) append(phrase, time(spare, verb.tense));
  return phrase;
}

Phrase Generator::giving_predicate(const NounPhrase& subject, int budget, Place place) {
  int spare = budget - 5;
  const VerbPhrase verb = verb_phrase(pick(giving_verbs()), subject, spare);
  Phrase phrase = realise(verb, units_);
  spare = budget - length(phrase) - 1;
  NounWish wish{.budget = 2 + below(spare - 3), .classes = kThing, .place = place};
  wish.definite = verb.polarity != Polarity::affirmative;
  append(phrase, noun_phrase(wish).words);
  append(phrase, fixed("to", "à", units_));
  append(phrase, noun_phrase({.budget = budget - length(phrase), .classes = kWho, .place = place}).words);
  return phrase;
}

Phrase Generator::attitude_predicate(const NounPhrase& subject, int budget) {
  int spare = budget - 3;
  Phrase phrase = realise(verb_phrase(pick(attitude_verbs()), subject, spare), units_);
  append(phrase, fixed("that", "que", units_));
  append(phrase, clause(budget - length(phrase), Place::main));
  return phrase;
}

Phrase Generator::predicate(const NounPhrase& subject, int budget, Place place) {
  if (subject.noun_class == NounClass::document && (budget < 3 || chance(80)) && !if_clause_) {
    return document_predicate(subject, budget);
  }
  if (subject.noun_class != NounClass::animate) return state_predicate(subject, budget, place);
  if (budget >= 2 && chance(18)) return state_predicate(subject, budget, place);
  if (budget >= 8 && chance(20)) return giving_predicate(subject, budget, place);
  if (budget >= 6 && place == Place::main && chance(15)) return attitude_predicate(subject, budget);
  if (budget < 2 || chance(30)) return action_predicate(subject, budget, place);
  return transitive_predicate(subject, budget, place);
}

Phrase Generator::clause(int budget, Place place) {
  const int most = std::max(1, std::min(budget - 2, 9));
  const NounPhrase agent = subject(1 + below(most), place);
  Phrase phrase = agent.words;
  append(phrase, predicate(agent, budget - length(phrase), place));
  return phrase;
}

Phrase Generator::clauses(int budget, Place place) {
  constexpr int kShortest = 4;
  if (budget < 2 * kShortest + 2 || (budget <= 14 && chance(60))) return clause(budget, place);
  const int first = std::min(kShortest + below(12), budget - 2 - kShortest);
  Phrase phrase;
  if (place == Place::main && chance(30)) {
    const bool conditional = chance(40);
    append(phrase, conditional ? fixed("if", "si", units_) : fixed("when", "quand", units_));
    if_clause_ = conditional;
    append(phrase, clause(first, Place::main));
    if_clause_ = false;
    append(phrase, fixed(",", ",", units_));
  } else {
    append(phrase, clause(first, Place::main));
    const int kind = below(4);
    if (kind < 2) append(phrase, fixed(",", ",", units_));
    append(phrase, kind == 0   ? fixed("and", "et", units_)
                   : kind == 1 ? fixed("but", "mais", units_)
                   : kind == 2 ? fixed("because", "parce que", units_)
                               : fixed("while", "pendant que", units_));
  }
  append(phrase, clauses(budget - length(phrase), Place::embedded));
  return phrase;
}

Sentence Generator::sentence(int num_words) {
  units_ = Units();
  return finish(clauses(num_words - 1, Place::main), units_.next());
}

Sentence cat_on_mat() {
  Units units;
  const NounPhrase cat = realise(SimpleNoun{.noun = &noun("cat")}, units);
  Phrase phrase = cat.words;
  append(phrase,
         realise(VerbPhrase{.verb = &sitting_verb(), .subject = cat.agreement, .tense = Tense::past}, units));
  append(phrase, fixed("on", "sur", units));
  append(phrase, realise(SimpleNoun{.noun = &noun("mat")}, units).words);
  return finish(phrase, units.next());
}

Sentence economic_area() {
  Units units;
  const NounPhrase agreement = realise(SimpleNoun{.noun = &noun("agreement")}, units);
  Phrase phrase = agreement.words;
  append(phrase, fixed("on", "sur", units));
  append(phrase, institution(&institution_adjective("European"), &institution_adjective("Economic"),
                             institution_noun("Area"), units)
                     .words);
  append(phrase, passive(passive_verbs()[0], agreement.agreement, units));
  append(phrase, fixed("in", "en", units));
  append(phrase, fixed("August", "août", units));
  append(phrase, fixed("1992", "1992", units));
  return finish(phrase, units.next());
}

}  // namespace fovea::text::generated

// Draws sentences of about a wanted length from the grammar.
#pragma once

#include <cstdint>

#include "fovea/core/philox.h"
#include "text/generated/grammar.h"
#include "text/generated/phrase.h"

namespace fovea::text::generated {

/// Decides which part may follow which. The rules keep the translation a function of the source. A relative
/// clause stands directly after its noun. Where "and" joins two subjects, neither has a relative clause or a
/// preposition. Where "and" joins two objects, the second has neither. So no English sentence has two
/// readings with different French agreement.
class Generator {
 public:
  explicit Generator(PhiloxStream& random) : random_(random) {}
  /// A sentence of about `num_words` source words, full stop included; the caller checks.
  Sentence sentence(int num_words);

 private:
  enum class Place { main, embedded };
  struct NounWish {
    int budget = 2;
    unsigned classes = 0;
    Place place = Place::main;
    bool definite = false;  // an indefinite object of a negated verb would become "de"
  };

  int below(int bound) { return static_cast<int>(random_.next_below(static_cast<std::uint32_t>(bound))); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename Entry>
  const Entry& pick(std::span<const Entry> entries) {
    return entries[static_cast<std::size_t>(below(static_cast<int>(entries.size())))];
  }
  const Adjective* pick_adjective(NounClass noun_class, bool precedes);

  Phrase clauses(int budget, Place place);
  Phrase clause(int budget, Place place);
  NounPhrase subject(int budget, Place place);
  NounPhrase noun_phrase(const NounWish& wish);
  NounPhrase random_institution(int budget);
  void add_relative(NounPhrase& head, int budget);
  Phrase prepositional(int budget, Place place);
  Phrase time(int budget, Tense tense);

  Phrase predicate(const NounPhrase& subject, int budget, Place place);
  Phrase document_predicate(const NounPhrase& subject, int budget);
  Phrase state_predicate(const NounPhrase& subject, int budget, Place place);
  Phrase action_predicate(const NounPhrase& subject, int budget, Place place);
  Phrase transitive_predicate(const NounPhrase& subject, int budget, Place place);
  Phrase giving_predicate(const NounPhrase& subject, int budget, Place place);
  Phrase attitude_predicate(const NounPhrase& subject, int budget);
  VerbPhrase verb_phrase(const Verb& verb, const NounPhrase& subject, int& spare);
  const ObjectPronoun& object_pronoun(Person subject);

  PhiloxStream& random_;
  Units units_;
  bool if_clause_ = false;  // "si" takes the present here
};

/// The two held-out sentences.
Sentence cat_on_mat();
Sentence economic_area();

}  // namespace fovea::text::generated

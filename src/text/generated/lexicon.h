// The words of the generated corpus, both languages side by side.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace fovea::text::generated {

enum class Gender { masculine, feminine };
/// Which verbs and adjectives a noun goes with.
enum class NounClass { animate, thing, place, document };
constexpr unsigned mask_of(NounClass noun_class) {
  return 1u << static_cast<unsigned>(noun_class);
}

struct Noun {
  std::string_view english, english_plural, french, french_plural;
  Gender gender;
  NounClass noun_class;
};

struct Adjective {
  std::string_view english;
  /// Masculine, feminine, masculine plural, feminine plural.
  std::array<std::string_view, 4> french;
  std::string_view before_vowel;  ///< masculine singular before a vowel, if it differs ("bel")
  bool precedes;                  ///< stands before its noun in French
  unsigned classes;               ///< mask_of the nouns it goes with
};

/// How the compound past is made; `seated` is the state verb "être assis", which uses être in every tense.
enum class Auxiliary { avoir, etre, seated };

struct Verb {
  std::string_view english, english_third, english_past;
  std::string_view infinitive;
  /// je, il, nous, vous, ils.
  std::array<std::string_view, 5> present;
  std::string_view participle;  ///< masculine singular; feminine +e, plural +s
  Auxiliary auxiliary = Auxiliary::avoir;
};

struct Preposition {
  std::string_view english,
      french;  ///< blank-separated; all words of one are aligned with all of the other
  unsigned classes;
};

struct WordPair {
  std::string_view english, french;
};

/// An adjective of institutions: capitalised in English, after the noun in French, in inverse order.
struct InstitutionAdjective {
  std::string_view english, masculine, feminine;
};
struct InstitutionNoun {
  std::string_view english, french;
  Gender gender;
};

std::span<const Noun> nouns();
std::span<const Adjective> adjectives();
std::span<const Verb> transitive_verbs();
std::span<const Verb> intransitive_verbs();
std::span<const Verb> giving_verbs();       ///< with an object and "to" somebody
std::span<const Verb> attitude_verbs();     ///< with "that" and a clause
std::span<const Verb> modal_verbs();        ///< with an infinitive; english may end in "to"
std::span<const WordPair> passive_verbs();  ///< of documents: participle, masculine singular participle
const Verb& sitting_verb();
std::span<const Preposition> prepositions();
std::span<const WordPair> adverbs();
std::span<const WordPair> months();
std::span<const WordPair> weekdays();
std::span<const InstitutionAdjective> regional_adjectives();
std::span<const InstitutionAdjective> subject_adjectives();
std::span<const InstitutionNoun> institution_nouns();

const Noun& noun(std::string_view english);
const InstitutionAdjective& institution_adjective(std::string_view english);
const InstitutionNoun& institution_noun(std::string_view english);

}  // namespace fovea::text::generated

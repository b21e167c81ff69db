// Rules that forbid and force ids while a text is written, whatever chooses among them: the processors of
// Hugging Face's generate with the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fovea::models {

/// Lengths and n-grams count the prompt too; that of a translator is the id that its decoder reads first. A
/// model that writes by them throws InvalidArgument for negative numbers and for forced ids that it lacks.
struct TokenRules {
  std::int64_t no_repeat_ngram = 0;  ///< no n ids in a row stand twice in the text; 0: they may
  std::int64_t min_length = 0;       ///< an id of `ends` is forbidden before the text has so many ids
  std::int64_t min_new = 0;          ///< the same, without the prompt
  std::vector<std::int32_t> ends = {};
  std::optional<std::int32_t> forced_bos = {};    ///< the second id of a text
  std::vector<std::int32_t> forced_eos = {};      ///< one of them is the last id where the length ends a text
  std::vector<std::int32_t> suppress = {};        ///< never written
  std::vector<std::int32_t> begin_suppress = {};  ///< never written first, or behind forced_bos
  std::vector<std::vector<std::int32_t>> bad_words = {};  ///< sequences that are never written

  /// Whether they allow everything.
  bool empty() const;
};

/// A text and the most ids that it shall get.
struct TextSoFar {
  std::span<const std::int32_t> prompt, written;
  std::int64_t length = 0;
};

/// Makes `scores`, one for each id of the vocabulary, -infinity where the rules forbid the id behind the
/// text. A forced id gets 0. Ids outside the vocabulary are passed over.
void apply(const TokenRules& rules, const TextSoFar& text, std::span<float> scores);

/// The rule behind which `apply` leaves no id of those in `scores`, as generation_config.json spells it, such
/// as "suppress_tokens". "" if ids are left, or if none is there before the rules.
std::string rule_without_choice(const TokenRules& rules, const TextSoFar& text,
                                std::span<const float> scores);

}  // namespace fovea::models

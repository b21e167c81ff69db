// Properties of characters and Unicode's normal forms, as tokenizer.json means them. The tables are
// libutf8proc's.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace fovea::text::pipeline {

/// One character of a changed text and where it comes from. 0: it replaces the next character of the old
/// text. 1: it is new, and belongs to the place of the character before it. -n: it replaces the next
/// character, and n more behind that are dropped.
struct Change {
  char32_t point = 0;
  std::int32_t added = 0;
};

bool is_white_space(char32_t point);      ///< White_Space
bool is_numeric(char32_t point);          ///< Nd, Nl, No
bool is_punctuation(char32_t point);      ///< P, and the symbols of ASCII
bool is_control(char32_t point);          ///< Cc, Cf, Co: unassigned characters are none
bool is_nonspacing_mark(char32_t point);  ///< Mn
bool is_mark(char32_t point);             ///< M
bool is_cjk_ideograph(char32_t point);    ///< of the blocks that BERT puts blanks around

/// Appends the lower case of one character without regard to its neighbours: a final sigma is a sigma.
void append_lower_case(std::vector<Change>& changes, char32_t point);

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
/// The changes that bring `text`, which is UTF-8, into a normal form (Unicode Standard Annex 15).
std::vector<Change> normal_form(std::string_view text, NormalForm form);
/// The ends of the extended grapheme clusters of `text` (Unicode Standard Annex 29).
std::vector<std::size_t> grapheme_ends(std::string_view text);

}  // namespace fovea::text::pipeline

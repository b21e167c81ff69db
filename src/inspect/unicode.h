// Just enough Unicode to show untrusted tokens: decoding, widths, controls, and ASCII in the place of Latin
// letters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::inspect {

inline constexpr char32_t kReplacement = 0xFFFD;

/// UTF-8 to code points; each maximal ill-formed sequence becomes one U+FFFD.
std::vector<char32_t> decode_utf8(std::string_view text);

void append_utf8(std::string& text, char32_t code);

/// The text with ill-formed sequences replaced: valid UTF-8.
std::string valid_utf8(std::string_view text);

/// A character that steers a terminal or a text layout instead of being drawn: C0, C1, bidirectional and
/// zero-width controls, line separators, variation tags.
bool is_control(char32_t code);

/// Columns a terminal gives the character: 0 (combining), 1, or 2 (East Asian wide, emoji).
int width_of(char32_t code);

/// The text with controls replaced by visible pictures (U+2400 block, or U+FFFD) and an empty text by "∅":
/// safe to send to a terminal. At most two combining marks stay on a letter, so that a stack of them cannot
/// cover its neighbours.
std::vector<char32_t> visible(std::string_view text);

enum class Lines { one, several };

/// The text for a layout engine that knows scripts: as visible, but the joiners that Arabic, Indic scripts
/// and emoji are written with stay, letters keep up to four marks, and with Lines::several so do line breaks.
std::string writable(std::string_view text, Lines lines);

/// The letter under the mark of Latin-1's and Latin Extended-A's letters: é gives 'e'; 0: no such letter.
char base_letter(char32_t code);

/// Nearest plain ASCII: é gives "e", œ "oe", « "<<"; what has none gives "?".
std::string to_ascii(char32_t code);

}  // namespace fovea::inspect

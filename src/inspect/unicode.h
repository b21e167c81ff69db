// Just enough Unicode to show untrusted tokens: decoding, widths, control characters, and ASCII replacements
// of Latin letters.
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

/// A character that controls a terminal or a text layout instead of being drawn: C0, C1, bidirectional and
/// zero-width controls, line separators, variation tags.
bool is_control(char32_t code);

/// Columns a terminal gives the character: 0 (combining), 1, or 2 (East Asian wide, emoji).
int width_of(char32_t code);

/// A letter of a script that is written from right to left, such as Hebrew or Arabic.
bool is_right_to_left(char32_t code);

/// The text made safe for a terminal: control characters become visible symbols (U+2400 block, or U+FFFD),
/// and an empty text becomes "∅". A letter keeps at most two combining marks, so that a stack of them cannot
/// cover its neighbours.
std::vector<char32_t> visible(std::string_view text);

enum class Lines { one, several };

/// The text made safe for a layout engine that knows scripts. It differs from `visible` in three ways. The
/// joiners of Arabic, Indic scripts and emoji are kept. Letters keep up to four combining marks. With
/// Lines::several line breaks are kept.
std::string writable(std::string_view text, Lines lines);

/// The base letter of a letter with a mark of Latin-1 or Latin Extended-A: é gives 'e'. 0: not such a letter.
char base_letter(char32_t code);

/// The nearest plain ASCII: é gives "e", œ "oe", « "<<"; "?" if there is none.
std::string to_ascii(char32_t code);

}  // namespace fovea::inspect

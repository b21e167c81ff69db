// Just enough Unicode to draw untrusted tokens: decoding, widths, and Latin letters taken apart.
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

/// Marks over and under a letter, by the name of the combining character.
enum class Mark : unsigned char {
  none,
  grave,
  acute,
  circumflex,
  tilde,
  macron,
  breve,
  dot,
  diaeresis,
  ring,
  double_acute,
  caron,
  comma,
  cedilla,
  ogonek,
  stroke
};

struct Letter {
  char base = 0;  ///< 0: not a Latin letter with a mark
  Mark mark = Mark::none;
};

/// Latin-1 and Latin Extended-A letters that are a base and a mark: é is {e, acute}.
Letter take_apart(char32_t code);

/// The mark of a combining character U+0300.., else Mark::none.
Mark combining_mark(char32_t code);

/// Nearest plain ASCII: é gives "e", œ "oe", « "<<"; what has none gives "?".
std::string to_ascii(char32_t code);

}  // namespace fovea::inspect

// UTF-8, replacements and blank-separated words, for this directory only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

struct CodePoint {
  char32_t value = 0;
  int bytes = 0;  ///< 0: the bytes at this place are not valid UTF-8
};

/// The code point at `text[at]` (`at` < size). Overlong forms, surrogates and values above U+10FFFF are
/// invalid.
CodePoint decode_utf8(std::string_view text, std::size_t at);
/// Offset of the first byte that is not valid UTF-8, or npos.
std::size_t find_invalid_utf8(std::string_view text);
std::int64_t count_characters(std::string_view text);
void append_utf8(std::string& text, char32_t value);
/// Each byte of Latin-1 is the code point of that value.
std::string latin1_to_utf8(std::string_view text);

/// Each `from`, which is not empty, becomes `to`: from left to right, and not within what was put in.
void replace_all(std::string& text, std::string_view from, std::string_view to);

/// Words between blanks (space, tab, CR, LF, FF, VT), without empty ones.
std::vector<std::string_view> split_words(std::string_view text);
bool is_blank(std::string_view text);

}  // namespace fovea::text

// Which bytes are a character of UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace fovea {

/// What stands at one place of a text.
struct Utf8Character {
  char32_t code = 0xFFFD;
  /// Of the character, or of the ill-formed sequence that one U+FFFD stands for: the longest beginning of a
  /// character (Unicode Standard 3.9, table 3-7), at least one byte.
  std::size_t bytes = 1;
  bool valid = false;
};

/// `at` is below the size. Overlong forms, surrogates and values above U+10FFFF are not valid.
inline Utf8Character utf8_character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned { return static_cast<unsigned char>(text[at + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code = lead & (0xFFu >> (bytes + 1));
  // The second byte has a smaller range behind four of the leads.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (i >= text.size() - at || byte(i) < low || byte(i) > high) return {.bytes = i};
    code = code << 6 | (byte(i) & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code, bytes, true};
}

}  // namespace fovea

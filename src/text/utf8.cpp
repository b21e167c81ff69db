#include "text/utf8.h"

#include <algorithm>
#include <utility>

#include "core/utf8.h"

namespace fovea::text {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\f\v";

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const Utf8Character character = utf8_character(text, at);
  if (!character.valid) return {};
  return {character.code, static_cast<int>(character.bytes)};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.bytes == 0) return at;
    at += static_cast<std::size_t>(point.bytes);
  }
  return std::string_view::npos;
}

void append_utf8(std::string& text, char32_t value) {
  const auto put = [&](char32_t byte) {
    text.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
  };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6), put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12), put(0x80 | (value >> 6 & 0x3F)), put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18), put(0x80 | (value >> 12 & 0x3F)), put(0x80 | (value >> 6 & 0x3F)),
        put(0x80 | (value & 0x3F));
  }
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string latin1_to_utf8(std::string_view text) {
  std::string result;
  for (const char byte : text) append_utf8(result, static_cast<unsigned char>(byte));
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
    result.append(text, at, found - at);
    result += to;
    at = found + from.size();
  }
  if (at == 0) return;
  result.append(text, at);
  text = std::move(result);
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const std::size_t end = text.find_first_of(kBlanks, begin);
    words.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    begin = end == std::string_view::npos ? end : text.find_first_not_of(kBlanks, end);
  }
  return words;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlanks) == std::string_view::npos;
}

}  // namespace fovea::text

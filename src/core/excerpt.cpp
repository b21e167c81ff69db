#include "core/excerpt.h"

#include <algorithm>

namespace fovea {
namespace {

constexpr std::size_t shown = 60;

// Does not count the bytes that continue a UTF-8 character. In text that is not UTF-8 such a byte may belong
// to no character; then only the count is wrong.
bool starts_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

std::string grouped(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

std::string excerpt(std::string_view text, std::size_t most) {
  // There are never fewer bytes than characters. The limit on bytes also bounds text that has continuation
  // bytes only.
  if (text.size() <= most) return std::string(text);
  const auto characters = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
  if (characters <= most && text.size() <= 4 * most) return std::string(text);
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && end <= 4 * shown; ++end) {
    if (starts_character(text[end]) && count++ == shown) break;
  }
  return std::string(text.substr(0, end)) + "… (" + grouped(characters) + " characters)";
}

std::string excerpt_words(std::string_view text, std::size_t most) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \t\r\n"), text.size());
    result += excerpt(text.substr(0, end), most);
    if (end < text.size()) result += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string printable(std::string_view text, LineBreaks line_breaks) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool c1 = byte == 0xC2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xA0 &&
                    !starts_character(text[at + 1]);
    const bool kept = byte == '\n' && line_breaks == LineBreaks::kept;
    result += !kept && (byte < ' ' || byte == 0x7F || c1) ? ' ' : text[at];
    if (c1) ++at;
  }
  return result;
}

}  // namespace fovea

#include "text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "text/jinja/value.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

// Whose capital letters are several characters (Unicode's SpecialCasing.txt).
constexpr std::pair<char32_t, char32_t> kSeveral[] = {
    {0xDF, 0xDF},     {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},   {0x3B0, 0x3B0},
    {0x587, 0x587},   {0x1E96, 0x1E9A}, {0x1F50, 0x1F50}, {0x1F52, 0x1F52}, {0x1F54, 0x1F54},
    {0x1F56, 0x1F56}, {0x1F80, 0x1FAF}, {0x1FB2, 0x1FB4}, {0x1FB6, 0x1FB7}, {0x1FBC, 0x1FBC},
    {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FC7}, {0x1FCC, 0x1FCC}, {0x1FD2, 0x1FD3}, {0x1FD6, 0x1FD7},
    {0x1FE2, 0x1FE4}, {0x1FE6, 0x1FE7}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FF7}, {0x1FFC, 0x1FFC},
    {0xFB00, 0xFB06}, {0xFB13, 0xFB17}};

// The byte at which the last character begins, of a text that has one.
std::size_t last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

std::string hexadecimal(char32_t value, int digits) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%0*x", digits, static_cast<unsigned>(value));
  return text.data();
}

char32_t capital(char32_t point, bool titlecase) {
  if (point < 0x80) return point >= 'a' && point <= 'z' ? point - 32 : point;
  for (const auto& [first, last] : kSeveral) {
    if (point >= first && point <= last)
      fail("capital letters of U+" + hexadecimal(point, 4) + " are not done here");
  }
  const auto value = static_cast<utf8proc_int32_t>(point);
  return static_cast<char32_t>(titlecase ? utf8proc_totitle(value) : utf8proc_toupper(value));
}

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

// What str.strip() takes away.
class CharacterSet {
 public:
  CharacterSet(std::string_view chars, Budget& budget) {
    budget.spend(1 + chars.size() / 2);
    budget.check_room(2 * chars.size(), sizeof(char32_t));
    for (std::size_t at = 0; at < chars.size();) {
      const CodePoint point = decode_utf8(chars, at);
      points_.push_back(point.value);
      at += static_cast<std::size_t>(std::max(point.bytes, 1));
    }
    std::ranges::sort(points_);
  }
  bool has(char32_t point) const { return std::ranges::binary_search(points_, point); }

 private:
  std::vector<char32_t> points_;
};

template <typename Drops>
std::string_view stripped(std::string_view text, Side side, const Drops& drops) {
  if (side != Side::right) {
    while (!text.empty()) {
      const CodePoint first = decode_utf8(text, 0);
      if (!drops(first.value)) break;
      text.remove_prefix(static_cast<std::size_t>(std::max(first.bytes, 1)));
    }
  }
  if (side != Side::left) {
    while (!text.empty()) {
      const std::size_t begin = last_character(text);
      if (!drops(decode_utf8(text, begin).value)) break;
      text.remove_suffix(text.size() - begin);
    }
  }
  return text;
}

// A vector that grows has up to twice the places that it needs.
void add_part(std::vector<std::string_view>& parts, std::string_view part, Budget& budget) {
  budget.keep(2 * sizeof part);
  parts.push_back(part);
}

}  // namespace

std::vector<std::string_view> characters(std::string_view text, Budget& budget) {
  const auto count = static_cast<std::size_t>(count_characters(text));
  budget.check_room(count, sizeof text);
  std::vector<std::string_view> result;
  result.reserve(count);
  while (!text.empty()) {
    const std::size_t bytes = byte_of(text, 1);
    result.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return result;
}

std::size_t byte_of(std::string_view text, std::int64_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && index-- == 0) return at;
  }
  return at;
}

std::size_t find_first(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return 0;
  const void* found = memmem(text.data(), text.size(), wanted.data(), wanted.size());
  if (!found) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last(std::string_view text, std::string_view wanted, Budget& budget) {
  constexpr std::size_t few = 16;  // comparisons at each place
  if (wanted.size() <= few) return text.rfind(wanted);
  if (wanted.size() > text.size()) return std::string_view::npos;
  budget.check_room(text.size() + wanted.size());
  const std::size_t found =
      find_first(std::string(text.rbegin(), text.rend()), std::string(wanted.rbegin(), wanted.rend()));
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

std::string upper(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    append_utf8(result, capital(point.value, false));
    at += static_cast<std::size_t>(point.bytes);
  }
  return result;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const CodePoint first = decode_utf8(text, 0);
  std::string result;
  append_utf8(result, capital(first.value, true));
  // A final sigma is one by what stands before it.
  const auto bytes = static_cast<std::size_t>(first.bytes);
  const std::string lower = lower_case(text), lower_first = lower_case(text.substr(0, bytes));
  return result + lower.substr(std::min(lower.size(), lower_first.size()));
}

std::string title(std::string_view text) {
  std::string result;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const auto bytes = static_cast<std::size_t>(point.bytes);
    const utf8proc_category_t kind = category(point.value);
    const bool cased =
        kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
    if (point.value >= 0x80 && !cased &&
        (kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SO || kind == UTF8PROC_CATEGORY_NL))
      fail("title() of U+" + hexadecimal(point.value, 4) + " is not done here");
    if (!inside)
      append_utf8(result, capital(point.value, true));
    else
      result += lower_case(text.substr(at, bytes));
    inside = cased;
    at += bytes;
  }
  return result;
}

std::string_view strip(std::string_view text, Side side) {
  return stripped(text, side, is_unicode_space);
}

std::string_view strip(std::string_view text, std::string_view chars, Side side, Budget& budget) {
  const CharacterSet set(chars, budget);
  return stripped(text, side, [&](char32_t point) { return set.has(point); });
}

std::vector<std::string_view> split(std::string_view text, std::int64_t most, Budget& budget) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::left);
  while (!text.empty()) {
    if (std::ssize(parts) == most) {
      add_part(parts, text, budget);
      break;
    }
    std::size_t end = 0;
    for (CodePoint point; end < text.size(); end += static_cast<std::size_t>(point.bytes)) {
      point = decode_utf8(text, end);
      if (is_unicode_space(point.value)) break;
    }
    add_part(parts, text.substr(0, end), budget);
    text = strip(text.substr(end), Side::left);
  }
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most,
                                    Budget& budget) {
  if (separator.empty()) fail("empty separator");
  std::vector<std::string_view> parts;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t at = find_first(text, separator);
    if (at == std::string_view::npos) break;
    add_part(parts, text.substr(0, at), budget);
    text.remove_prefix(at + separator.size());
  }
  add_part(parts, text, budget);
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::int64_t most, Budget& budget) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::right);
  while (!text.empty()) {
    if (std::ssize(parts) == most) {
      add_part(parts, text, budget);
      break;
    }
    std::size_t begin = text.size();  // of the last word
    while (begin > 0) {
      const std::size_t before = last_character(text.substr(0, begin));
      if (is_unicode_space(decode_utf8(text, before).value)) break;
      begin = before;
    }
    add_part(parts, text.substr(begin), budget);
    text = strip(text.substr(0, begin), Side::right);
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_right(std::string_view text, std::string_view separator,
                                          std::int64_t most, Budget& budget) {
  // Forwards in the text of reversed bytes, which keeps the time linear.
  budget.check_room(text.size() + separator.size());
  const std::string turned(text.rbegin(), text.rend());
  std::vector<std::string_view> parts =
      split(turned, std::string(separator.rbegin(), separator.rend()), most, budget);
  for (std::string_view& part : parts)
    part = text.substr(text.size() - static_cast<std::size_t>(part.data() - turned.data()) - part.size(),
                       part.size());
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends, Budget& budget) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0, at = 0; begin < text.size();) {
    std::size_t end = text.size(), next = text.size();
    for (; at < text.size();) {
      const CodePoint point = decode_utf8(text, at);
      const char32_t c = point.value;
      const auto bytes = static_cast<std::size_t>(point.bytes);
      if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029) {
        end = at;
        next = at + bytes;
        if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
        break;
      }
      at += bytes;
    }
    add_part(lines, text.substr(begin, (keep_ends ? next : end) - begin), budget);
    begin = at = next;
  }
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with, std::int64_t most,
                    Budget& budget) {
  std::string result;
  const auto add = [&](std::string_view part) {
    budget.check_room(result.size() + part.size());
    result += part;
  };
  std::size_t at = 0;
  for (std::int64_t done = 0; most < 0 || done < most; ++done) {
    if (old.empty()) {  // before each character, and at the end
      add(with);
      if (at == text.size()) return result;
      const std::size_t bytes = byte_of(text.substr(at), 1);
      add(text.substr(at, bytes));
      at += bytes;
      continue;
    }
    const std::size_t found = find_first(text.substr(at), old);
    if (found == std::string_view::npos) break;
    add(text.substr(at, found));
    add(with);
    at += found + old.size();
  }
  add(text.substr(at));
  return result;
}

bool is_of(std::string_view text, Class of) {
  if (text.empty()) return of == Class::ascii;
  bool cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    at += static_cast<std::size_t>(point.bytes);
    const utf8proc_category_t kind = category(point.value);
    const bool letter = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
    const bool ascii = point.value < 0x80;
    const auto unclear = [&](bool is) {
      if (is && !ascii) fail("what Python says of U+" + hexadecimal(point.value, 4) + " is not known here");
    };
    switch (of) {
      case Class::ascii:
        if (!ascii) return false;
        break;
      case Class::alpha:
        if (!letter) return false;
        break;
      case Class::digit:
      case Class::alnum:
        if (of == Class::alnum && letter) break;
        unclear(kind == UTF8PROC_CATEGORY_NO || kind == UTF8PROC_CATEGORY_NL);
        if (kind != UTF8PROC_CATEGORY_ND) return false;
        break;
      case Class::space:
        if (!is_unicode_space(point.value)) return false;
        break;
      case Class::upper:
      case Class::lower:
        unclear(kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO ||
                kind == UTF8PROC_CATEGORY_SO || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_MN);
        if (kind == UTF8PROC_CATEGORY_LT ||
            kind == (of == Class::upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
          return false;
        cased = cased || kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL;
        break;
    }
  }
  return of == Class::upper || of == Class::lower ? cased : true;
}

std::string quoted(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const std::string_view character = text.substr(at, static_cast<std::size_t>(point.bytes));
    at += character.size();
    const utf8proc_category_t kind = category(point.value);
    if (point.value == static_cast<char32_t>(quote) || point.value == '\\')
      (result += '\\') += character;
    else if (point.value == '\n')
      result += "\\n";
    else if (point.value == '\r')
      result += "\\r";
    else if (point.value == '\t')
      result += "\\t";
    else if (point.value == ' ' || (kind < UTF8PROC_CATEGORY_ZS && kind != UTF8PROC_CATEGORY_CN))
      result += character;
    else if (point.value < 0x100)
      result += "\\x" + hexadecimal(point.value, 2);
    else if (point.value < 0x10000)
      result += "\\u" + hexadecimal(point.value, 4);
    else
      result += "\\U" + hexadecimal(point.value, 8);
  }
  return result + quote;
}

std::string json_quoted(std::string_view text, bool ascii) {
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const std::string_view character = text.substr(at, static_cast<std::size_t>(point.bytes));
    at += character.size();
    static constexpr std::string_view escaped = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    if (const std::size_t found = point.value < 0x80 ? escaped.find(character) : std::string_view::npos;
        found != std::string_view::npos) {
      (result += '\\') += letters[found];
    } else if (point.value < 0x20 || (ascii && point.value >= 0x7F && point.value < 0x10000)) {
      result += "\\u" + hexadecimal(point.value, 4);
    } else if (ascii && point.value >= 0x10000) {
      const char32_t rest = point.value - 0x10000;
      result +=
          "\\u" + hexadecimal(0xD800 + (rest >> 10), 4) + "\\u" + hexadecimal(0xDC00 + (rest & 0x3FF), 4);
    } else {
      result += character;
    }
  }
  return result + '"';
}

}  // namespace fovea::text::jinja

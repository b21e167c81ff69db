#include "files/json_scanner.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "core/excerpt.h"
#include "core/utf8.h"
#include "fovea/core/error.h"

namespace fovea::files {
namespace {

// What a value is that begins with this character; "" if none does.
std::string_view kind_of(char c) {
  switch (c) {
    case '{':
      return "an object";
    case '[':
      return "an array";
    case '"':
      return "a string";
    case 't':
    case 'f':
      return "true or false";
    case 'n':
      return "null";
    default:
      return c == '-' || (c >= '0' && c <= '9') ? "a number" : "";
  }
}

std::string described(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte > ' ' && byte < 127) return std::string("'") + c + "'";
  constexpr const char* digits = "0123456789abcdef";
  return std::string("byte 0x") + digits[byte >> 4] + digits[byte & 15];
}

}  // namespace

void JsonScanner::fail(const std::string& reason) const {
  std::string whole = reason;
  if (!context_.empty()) whole = std::string(context_) + " '" + excerpt(name_) + "': " + reason;
  if (position_ == Position::byte) throw FileError(file_, begin_ + static_cast<std::int64_t>(token_), whole);
  throw FileError(file_, static_cast<std::int64_t>(token_ - line_begin_) + 1, whole,
                  "line " + std::to_string(line_) + ", column");
}

void JsonScanner::syntax_error(std::string_view expected) {
  token_ = at_;
  fail("syntax error: expected " + std::string(expected) + ", got " +
       (at_ < text_.size() ? described(text_[at_]) : "the end of the text"));
}

void JsonScanner::refuse(std::string_view expected) {
  const std::string_view kind = at_ < text_.size() ? kind_of(text_[at_]) : "",
                         rest(text_.data() + at_, text_.size() - at_);
  const bool word = kind == "null" || kind == "true or false";
  const bool whole = rest.starts_with("null") || rest.starts_with("true") || rest.starts_with("false");
  if (kind.empty() || (word && !whole)) syntax_error(expected);
  fail("expected " + std::string(expected) + ", got " + std::string(kind));
}

void JsonScanner::skip_blanks() {
  for (; at_ < text_.size(); ++at_) {
    if (text_[at_] == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    } else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\r') {
      break;
    }
  }
  token_ = at_;
}

bool JsonScanner::take(char c) {
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonScanner::open(char bracket, std::string_view what) {
  if (!take(bracket)) refuse(what);
  fresh_ = true;
}

bool JsonScanner::next(char closing) {
  const bool first = fresh_;
  fresh_ = false;
  if (take(closing)) return false;
  if (!first && !take(',')) syntax_error(closing == '}' ? "',' or '}'" : "',' or ']'");
  return true;
}

bool JsonScanner::next_member(std::string_view& key) {
  if (!next('}')) return false;
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != '"') syntax_error("a key");
  key = string();
  const std::size_t begin = token_;
  if (!take(':')) syntax_error("':'");
  token_ = begin;
  return true;
}

void JsonScanner::finish() {
  skip_blanks();
  if (at_ < text_.size()) syntax_error("the end of the text");
}

std::string_view JsonScanner::string(std::string_view what) {
  if (!take('"')) refuse(what);
  char *const begin = text_.data() + at_, *to = begin;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\') {
      to = resolve_escape(to);
      continue;
    }
    if (static_cast<unsigned char>(text_[at_]) < ' ') syntax_error("no control character in a string");
    const Utf8Character character = utf8_character({text_.data(), text_.size()}, at_);
    if (!character.valid) syntax_error("UTF-8 in a string");
    std::memmove(to, text_.data() + at_, character.bytes);
    to += character.bytes;
    at_ += character.bytes;
  }
  if (at_ >= text_.size()) syntax_error("the '\"' that ends a string");
  ++at_;
  return {begin, static_cast<std::size_t>(to - begin)};
}

char16_t JsonScanner::four_digits() {
  char16_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) syntax_error("four hexadecimal digits after \\u");
    value = static_cast<char16_t>(value << 4 | digit);
  }
  return value;
}

// The escape at at_, written at `to`: never longer than it was, so the text that follows is still whole.
char* JsonScanner::resolve_escape(char* to) {
  const char c = ++at_ < text_.size() ? text_[at_] : '\0';
  constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  if (const std::size_t plain = names.find(c); c != '\0' && plain != std::string_view::npos) {
    ++at_;
    *to = meanings[plain];
    return to + 1;
  }
  if (c != 'u') syntax_error("a known escape");
  ++at_;
  char32_t value = four_digits();
  if (value >= 0xDC00 && value < 0xE000) syntax_error("a high surrogate before a low one");
  if (value >= 0xD800 && value < 0xDC00) {
    if (at_ + 1 >= text_.size() || text_[at_] != '\\' || text_[at_ + 1] != 'u')
      syntax_error("a low surrogate after a high one");
    at_ += 2;
    const char16_t low = four_digits();
    if (low < 0xDC00 || low >= 0xE000) syntax_error("a low surrogate after a high one");
    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00u);
  }
  const auto put = [&](char32_t bits) { *to++ = static_cast<char>(bits); };
  const auto rest = [&](int shift) { put(0x80 | (value >> shift & 0x3F)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6), rest(0);
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12), rest(6), rest(0);
  } else {
    put(0xF0 | value >> 18), rest(12), rest(6), rest(0);
  }
  return to;
}

// The characters of a number, whatever their order; at_ is behind them.
std::string_view JsonScanner::take_number(std::string_view what) {
  skip_blanks();
  if (at_ >= text_.size() || kind_of(text_[at_]) != "a number") refuse(what);
  const std::size_t begin = at_;
  constexpr std::string_view characters = "0123456789+-.eE";
  while (at_ < text_.size() && characters.find(text_[at_]) != std::string_view::npos) ++at_;
  return {text_.data() + begin, at_ - begin};
}

std::uint64_t JsonScanner::number(std::string_view what) {
  const std::string_view digits = take_number(what);
  std::uint64_t value = 0;
  const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = last == digits.data() + digits.size() && (digits.size() == 1 || digits[0] != '0');
  if (!whole || error == std::errc::invalid_argument)
    fail("expected " + std::string(what) + ", got " + excerpt(digits));
  if (error != std::errc()) fail("expected " + std::string(what) + " below 2^64, got " + excerpt(digits));
  return value;
}

double JsonScanner::checked_number(std::string_view what) {
  const std::string_view text = take_number(what);
  std::size_t at = text[0] == '-' ? 1 : 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at - begin;
  };
  const std::size_t whole_begin = at, whole = digits();
  bool good = whole == 1 || (whole > 1 && text[whole_begin] != '0');
  if (good && at < text.size() && text[at] == '.') {
    ++at;
    good = digits() > 0;
  }
  if (good && at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    good = digits() > 0;
  }
  if (!good || at < text.size()) fail("syntax error: expected a number, got " + excerpt(text));
  double value = 0.0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc::result_out_of_range) return value;
  // Out of range is also what is smaller than the smallest double, and that is read as 0.
  const double extreme = std::strtod(std::string(text).c_str(), nullptr);
  if (std::isinf(extreme)) fail("expected a number that is finite as a double, got " + excerpt(text));
  return extreme;
}

double JsonScanner::real(std::string_view what) {
  return checked_number(what);
}

bool JsonScanner::at_array() {
  skip_blanks();
  return at_ < text_.size() && text_[at_] == '[';
}

void JsonScanner::skip_literal() {
  for (const std::string_view word : {"true", "false", "null"}) {
    if (!std::string_view(text_.data() + at_, text_.size() - at_).starts_with(word)) continue;
    at_ += word.size();
    return;
  }
  syntax_error("a value");
}

void JsonScanner::skip_value(int depth, Repeats repeats) {
  skip_blanks();
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  if ((c == '{' || c == '[') && depth == 0) fail("arrays and objects nest too deep");
  if (c == '{') {
    open_object();
    std::set<std::string_view> seen;
    for (std::string_view key; next_member(key);) {
      if (repeats == Repeats::refused && !seen.insert(key).second)
        fail("two values of '" + excerpt(key) + "'");
      skip_value(depth - 1, repeats);
    }
  } else if (c == '[') {
    open_array();
    while (next_element()) skip_value(depth - 1, repeats);
  } else if (c == '"') {
    string();
  } else if (kind_of(c) == "a number") {
    checked_number("a number");
  } else {
    skip_literal();
  }
}

std::string_view JsonScanner::raw_value(int depth) {
  skip_blanks();
  const std::size_t begin = at_;
  skip_value(depth);
  token_ = begin;
  return {text_.data() + begin, at_ - begin};
}

void check_json_object(const std::string& file, std::string text, int depth) {
  // Editors put a byte order mark there, and parsers skip it.
  if (text.starts_with("\xEF\xBB\xBF")) text.replace(0, 3, 3, ' ');
  JsonScanner scanner(file, text, JsonScanner::Position::line);
  scanner.open_object("a JSON object");
  std::set<std::string_view> seen;
  for (std::string_view key; scanner.next_member(key);) {
    if (!seen.insert(key).second) scanner.fail("two values of '" + excerpt(key) + "'");
    scanner.skip_value(depth - 1);
  }
  scanner.finish();
}

}  // namespace fovea::files

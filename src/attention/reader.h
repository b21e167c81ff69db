// Helpers of the parsers in this directory.
#pragma once

#include <charconv>
#include <span>
#include <string>
#include <string_view>

#include "fovea/attention/expression.h"

namespace fovea {

inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
inline bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// A text and a position in it, with the steps that all parsers take.
class Reader {
 public:
  Reader(std::string_view text, const char* function) : text_(text), function_(function) {}

 protected:
  std::size_t skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_;
  }
  bool take(char c) {
    if (skip_space() == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const std::string& expected) {
    const std::size_t at = skip_space();
    std::size_t end = at;
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end]) || hyphen(end)) &&
           end - at < 40)
      ++end;
    if (end == at && at < text_.size()) ++end;
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80) ++end;  // UTF-8
    throw ExpressionError(
        function_, at + 1, expected,
        at == text_.size() ? "the end" : "'" + std::string(text_.substr(at, end - at)) + "'");
  }
  void need(char c) {
    if (!take(c)) fail(std::string("'") + c + "'");
  }
  std::int64_t number(const char* expected) {
    std::int64_t value = 0;
    skip_space();
    const char* begin = text_.data() + at_;
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), value);
    // The largest value stands for "unlimited" and cannot be written as a number.
    if (status != std::errc() || value < 0 || value == SlidingWindow::unlimited) fail(expected);
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }
  double real(const char* expected = "a number") {
    double value = 0.0;
    skip_space();
    const char* begin = text_.data() + at_;
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (status != std::errc()) fail(expected);
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }
  // Reads a name and returns its row in a table. Names may have '-' between letters.
  template <class Row>
  const Row& row(std::span<const Row> rows, const char* what, const char* or_else = "") {
    skip_space();
    std::size_t end = at_;
    while (end < text_.size() && (is_letter(text_[end]) || hyphen(end))) ++end;
    const std::string_view name = text_.substr(at_, end - at_);
    std::string known;
    for (const Row& candidate : rows) {
      if (candidate.name == name) {
        at_ = end;
        return candidate;
      }
      known += (known.empty() ? "" : ", ") + std::string(candidate.name);
    }
    fail(std::string(what) + " (" + known + ")" + or_else);
  }
  bool hyphen(std::size_t at) const {
    return text_[at] == '-' && at > at_ && is_letter(text_[at - 1]) && at + 1 < text_.size() &&
           is_letter(text_[at + 1]);
  }
  std::string_view word() const {
    std::size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }

  std::string_view text_;
  const char* function_;
  std::size_t at_ = 0;
};

}  // namespace fovea

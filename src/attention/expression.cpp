#include "fovea/attention/expression.h"

#include <charconv>
#include <vector>

#include "attention/mask_names.h"

namespace fovea {
namespace {

// Deeper nesting than this is refused: the parser recurses, and the stack is finite. So is the depth of what
// it builds: each operator may add one.
constexpr int deepest = 200, most_operators = deepest_mask - 1;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class MaskParser {
 public:
  explicit MaskParser(std::string_view text) : text_(text) {}

  Mask whole() {
    const Mask mask = either(0);
    if (skip_space() != text_.size()) fail("'&', '|' or the end");
    return mask;
  }

 private:
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
    while (end < text_.size() && (is_letter(text_[end]) || is_digit(text_[end])) && end - at < 40) ++end;
    if (end == at && at < text_.size()) ++end;
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80) ++end;  // UTF-8
    throw ExpressionError(
        text_, at + 1, expected,
        at == text_.size() ? "the end" : "'" + std::string(text_.substr(at, end - at)) + "'");
  }
  bool take_operator(char c) {
    if (skip_space() == text_.size() || text_[at_] != c) return false;
    if (++operators_ > most_operators) fail("at most " + std::to_string(most_operators) + " operators");
    return take(c);
  }
  void need(char c) {
    if (!take(c)) fail(std::string("'") + c + "'");
  }

  Mask either(int depth) {
    Mask left = both(depth);
    while (take_operator('|')) left = left | both(depth);
    return left;
  }
  Mask both(int depth) {
    Mask left = factor(depth);
    while (take_operator('&')) left = left & factor(depth);
    return left;
  }
  Mask factor(int depth) {
    if (depth > deepest) fail("at most " + std::to_string(deepest) + " nested '~' and '('");
    if (take_operator('~')) return ~factor(depth + 1);
    if (take('(')) {
      const Mask inner = either(depth + 1);
      if (!take(')')) fail("'&', '|' or ')'");
      return inner;
    }
    return named();
  }
  Mask named() {
    const std::size_t begin = skip_space();
    std::size_t end = begin;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    const std::string_view name = text_.substr(begin, end - begin);
    std::string known;
    for (const MaskName& row : mask_names()) {
      known += (known.empty() ? "" : ", ") + std::string(row.name);
      if (row.name != name) continue;
      at_ = end;
      const std::vector<std::int64_t> numbers = *row.numbers ? list(row) : std::vector<std::int64_t>();
      try {
        return row.make(numbers);
      } catch (const InvalidArgument& error) {
        throw ExpressionError(text_, begin + 1, std::string(name) + " with " + error.expected(),
                              error.argument() + " " + error.got());
      }
    }
    fail("a mask (" + known + "), '~' or '('");
  }
  std::vector<std::int64_t> list(const MaskName& row) {
    std::vector<std::int64_t> numbers;
    need('(');
    if (row.least == 0 && take(')')) return numbers;
    do numbers.push_back(side(row));
    while (numbers.size() < row.most && take(','));
    if (numbers.size() < row.least) fail(std::string("',': ") + row.numbers);
    if (!take(')')) fail(numbers.size() < row.most ? "',' or ')'" : "')'");
    return numbers;
  }
  // 'all' is a number where it can mean something: in the sides of a window.
  std::int64_t side(const MaskName& row) {
    skip_space();
    const bool sides = std::string_view(row.numbers).starts_with("lookback");
    if (sides && text_.substr(at_, 3) == "all" && (at_ + 3 == text_.size() || !is_letter(text_[at_ + 3]))) {
      at_ += 3;
      return SlidingWindow::unlimited;
    }
    return number(sides ? "a count of at least 0, or 'all'" : "a number of at least 0");
  }
  std::int64_t number(const char* expected) {
    std::int64_t value = 0;
    skip_space();
    const char* begin = text_.data() + at_;
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), value);
    // The largest value is the name of "unlimited", so that it cannot be written as a number too.
    if (status != std::errc() || value < 0 || value == SlidingWindow::unlimited) fail(expected);
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int operators_ = 0;
};

}  // namespace

ExpressionError::ExpressionError(std::string_view, std::size_t column, std::string expected, std::string got)
    : InvalidArgument("parse_mask", "expression, column " + std::to_string(column), std::move(expected),
                      std::move(got)),
      column_(column) {}

Mask parse_mask(std::string_view text) {
  return MaskParser(text).whole();
}

}  // namespace fovea

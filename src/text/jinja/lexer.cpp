#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "core/excerpt.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

using Kind = Token::Kind;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// "\r\n" and "\r" are line breaks too, and the last one of a template is no part of it.
std::string unix_lines(std::string_view source) {
  std::string result;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r')
      result += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n')
      result += '\n';
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) outside();
    add(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const { throw SyntaxError{line_, reason}; }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  void add(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, bytes), '\n'));
    at_ += bytes;
  }
  std::size_t blanks(std::size_t from) const {
    std::size_t at = from;
    while (at < source_.size()) {
      const CodePoint point = decode_utf8(source_, at);
      if (!is_unicode_space(point.value)) break;
      at += static_cast<std::size_t>(point.bytes);
    }
    return at - from;
  }
  void advance_tag(std::size_t bytes) {
    advance(bytes);
    line_begins_ = source_[at_ - 1] == '\n';
  }

  // Text up to the next tag, and the beginning of that.
  void outside() {
    std::size_t begin = at_;
    for (;; ++begin) {
      begin = source_.find('{', begin);
      if (begin == std::string::npos || begin + 1 >= source_.size()) {
        add(Kind::data, std::string(rest()));
        return advance(rest().size());
      }
      if (std::string_view("{%#").find(source_[begin + 1]) != std::string_view::npos) break;
    }
    const char tag = source_[begin + 1];
    std::size_t size = 2;
    char sign = 0;
    if (begin + 2 < source_.size() && (source_[begin + 2] == '-' || source_[begin + 2] == '+'))
      sign = source_[begin + size++];
    put_text(std::string_view(source_).substr(at_, begin - at_), sign, tag == '{');
    advance(begin - at_);
    if (tag == '%') {
      if (const std::size_t raw = raw_begin(begin + size)) {
        advance_tag(size + raw);
        return raw_block();
      }
    }
    advance_tag(size);
    if (tag == '#') return comment();
    add(tag == '%' ? Kind::block_begin : Kind::variable_begin, "");
    inside(tag == '%');
  }

  void put_text(std::string_view text, char sign, bool variable) {
    if (sign == '-') {
      while (!text.empty()) {
        std::size_t begin = text.size() - 1;
        while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
        if (!is_unicode_space(decode_utf8(text, begin).value)) break;
        text = text.substr(0, begin);
      }
    } else if (sign != '+' && !variable) {
      const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_begins_) && line < text.size() && line + blanks(at_ + line) >= text.size())
        text = text.substr(0, line);
    }
    if (!text.empty()) add(Kind::data, std::string(text));
  }

  // The size of "raw %}" behind the beginning of a tag; 0: it is another tag.
  std::size_t raw_begin(std::size_t from) const {
    std::size_t at = from + blanks(from);
    if (!std::string_view(source_).substr(at).starts_with("raw")) return 0;
    at += 3;
    at += blanks(at);
    const std::string_view end = std::string_view(source_).substr(at);
    if (end.starts_with("%}")) return at + 2 - from;
    if (!end.starts_with("-%}")) return 0;
    at += 3;
    return at + blanks(at) - from;
  }

  void raw_block() {
    for (std::size_t begin = at_;; ++begin) {
      begin = source_.find("{%", begin);
      if (begin == std::string::npos) fail("a {% raw %} without {% endraw %}");
      std::size_t at = begin + 2;
      char sign = 0;
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) sign = source_[at++];
      at += blanks(at);
      if (!std::string_view(source_).substr(at).starts_with("endraw")) continue;
      at += 6;
      at += blanks(at);
      const std::size_t end = tag_end(at, "%}", true);
      if (end == 0) continue;
      put_text(std::string_view(source_).substr(at_, begin - at_), sign, false);
      return advance_tag(at + end - at_);
    }
  }

  void comment() {
    for (std::size_t at = at_; at < source_.size(); ++at) {
      if (const std::size_t end = tag_end(at, "#}", true)) return advance_tag(at + end - at_);
    }
    fail("a comment without #}");
  }

  // The size of the end of a tag at this place, with what is dropped behind it; 0: there is none. Behind the
  // end of a variable nothing is dropped without "-".
  std::size_t tag_end(std::size_t at, std::string_view end, bool trims) const {
    const std::string_view text = std::string_view(source_).substr(at);
    if (text.starts_with(end))
      return end.size() + (trims && text.substr(end.size()).starts_with('\n') ? 1 : 0);
    if (text.empty() || !text.substr(1).starts_with(end)) return 0;
    if (text[0] == '-') return 1 + end.size() + blanks(at + 1 + end.size());
    return trims && text[0] == '+' ? 1 + end.size() : 0;
  }

  void inside(bool block) {
    std::string open;  // the closing brackets that are due
    for (;;) {
      if (open.empty()) {
        if (const std::size_t end = tag_end(at_, block ? "%}" : "}}", block)) {
          add(block ? Kind::block_end : Kind::variable_end, "");
          return advance_tag(end);
        }
      }
      if (at_ >= source_.size()) fail("the template ends within a tag");
      if (const std::size_t skipped = blanks(at_)) {
        advance(skipped);
        continue;
      }
      const char c = source_[at_];
      if (is_digit(c))
        number();
      else if (is_name(c))
        name();
      else if (c == '\'' || c == '"')
        string(c);
      else
        symbol(open);
    }
  }

  void name() {
    std::size_t size = 0;
    while (at_ + size < source_.size() && is_name(source_[at_ + size])) ++size;
    add(Kind::name, source_.substr(at_, size));
    advance(size);
  }

  // Digits with single underscores between them, from `at`.
  std::size_t digits(std::size_t at) const {
    std::size_t size = 0;
    while (at + size < source_.size() &&
           (is_digit(source_[at + size]) ||
            (size > 0 && source_[at + size] == '_' && at + size + 1 < source_.size() &&
             is_digit(source_[at + size + 1]))))
      ++size;
    return size;
  }

  void number() {
    const std::size_t whole = digits(at_);
    std::size_t size = whole;
    const bool member = at_ > 0 && source_[at_ - 1] == '.';  // as in a.0.1
    if (!member) {
      const auto at = [&](std::size_t i) { return at_ + i < source_.size() ? source_[at_ + i] : '\0'; };
      if (at(size) == '.' && digits(at_ + size + 1) > 0) size += 1 + digits(at_ + size + 1);
      if (at(size) == 'e' || at(size) == 'E') {
        const std::size_t sign = at(size + 1) == '+' || at(size + 1) == '-' ? 1 : 0;
        if (const std::size_t power = digits(at_ + size + 1 + sign)) size += 1 + sign + power;
      }
    }
    if (size > whole) {
      std::string text = source_.substr(at_, size);
      std::erase(text, '_');
      add(Kind::real, text);
      return advance(size);
    }
    std::string text = source_.substr(at_, whole);
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string::npos)
      fail("a number that begins with 0: " + excerpt(text));
    if (text == "0" && at_ + 1 < source_.size() &&
        std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos)
      fail("numbers of other bases than 10 are not read here");
    std::erase(text, '_');
    add(Kind::integer, text);
    advance(whole);
  }

  void string(char quote) {
    std::string value;
    std::size_t at = at_ + 1;
    for (;; ++at) {
      if (at >= source_.size()) fail("a string without its end");
      if (source_[at] == quote) break;
      if (source_[at] == '\\')
        at += escape(at + 1, value);
      else
        value += source_[at];
    }
    add(Kind::string, std::move(value));
    advance(at + 1 - at_);
  }

  // Of a backslash before `at`: appends what it stands for, and returns the bytes behind it.
  std::size_t escape(std::size_t at, std::string& value) const {
    if (at >= source_.size()) fail("a string without its end");
    const char c = source_[at];
    static constexpr std::string_view letters = "\n\\'\"abfnrtv";
    static constexpr std::array<const char*, 11> values{"",   "\\", "'",  "\"", "\a", "\b",
                                                        "\f", "\n", "\r", "\t", "\v"};
    if (const std::size_t found = letters.find(c); found != std::string_view::npos) {
      value += values[found];
      return 1;
    }
    if (c >= '0' && c <= '7') {
      char32_t point = 0;
      std::size_t size = 0;
      while (size < 3 && at + size < source_.size() && source_[at + size] >= '0' && source_[at + size] <= '7')
        point = point * 8 + static_cast<char32_t>(source_[at + size++] - '0');
      append_utf8(value, point);
      return size;
    }
    if (c == 'N') fail("names of characters (\\N) are not read here");
    const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (count == 0) {
      value += '\\';
      return 0;
    }
    char32_t point = 0;
    for (std::size_t i = 1; i <= count; ++i) {
      const int digit = at + i < source_.size() ? digit_value(source_[at + i]) : 99;
      if (digit > 15) fail(std::string("a \\") + c + " with fewer digits than " + std::to_string(count));
      point = point * 16 + static_cast<char32_t>(digit);
    }
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) fail("an escape that is no character");
    append_utf8(value, point);
    return 1 + count;
  }

  void symbol(std::string& open) {
    static constexpr std::string_view symbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                   "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                   ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto found =
        std::ranges::find_if(symbols, [&](std::string_view symbol) { return next_is(symbol); });
    if (found == std::end(symbols)) {
      const auto bytes = static_cast<std::size_t>(std::max(1, decode_utf8(source_, at_).bytes));
      fail("unexpected '" + source_.substr(at_, bytes) + "'");
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : static_cast<char>(c + 2);
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        fail(std::string("unexpected '") + c + "'" +
             (open.empty() ? "" : std::string(", expected '") + open.back() + "'"));
      open.pop_back();
    }
    add(Kind::symbol, std::string(*found));
    advance(found->size());
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // whether the last tag ended a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
  return Lexer(unix_lines(source)).run();
}

}  // namespace fovea::text::jinja

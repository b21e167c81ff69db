#include "text/pipeline/regex_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>
#include <vector>

#include "core/excerpt.h"
#include "fovea/core/error.h"

namespace fovea::text::pipeline {
namespace {

// PCRE2 10.42 counts U+180E as a blank, and no mark as part of a word.
constexpr std::string_view kBlank = "\\p{White_Space}", kNotBlank = "\\P{White_Space}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

// Whether a property is a script, such as Han.
bool is_script(std::string_view name) {
  const std::string pattern = "\\p{sc:" + std::string(name) + "}";
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &place, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\')
        escape();
      else if (c == '[')
        char_class();
      else if (c == '(')
        group();
      else if (c == '}')
        end_of_interval();
      else if (starts("{,"))
        refuse("an interval without its smallest number");
      else
        take_literal();
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw InvalidArgument(
        "Regex", "pattern", "what Oniguruma and PCRE2 read alike",
        std::string(what) + " at byte " + std::to_string(at_) + " of '" + excerpt(pattern_) + "'");
  }
  bool starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void take(std::size_t bytes) {
    result_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }
  void put(std::string_view text) {
    result_ += text;
    at_ += 2;
  }

  void take_literal() {
    if (pattern_[at_] == '{') open_ = at_;
    take(1);
  }

  void escape() {
    if (at_ + 1 >= pattern_.size()) refuse("a backslash at the end");
    const char c = pattern_[at_ + 1];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == 's' || c == 'S') return put(c == 's' ? kBlank : kNotBlank);
    if (c == 'w') return put(in_class_ ? std::string(kWord) : "[" + std::string(kWord) + "]");
    if (c == 'W' && !in_class_) return put("[^" + std::string(kWord) + "]");
    if (c == 'b' && !in_class_) {
      const std::string word = "[" + std::string(kWord) + "]";
      return put("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
    }
    if (letter && std::string_view("pPdDnrtfxzA").find(c) == std::string_view::npos)
      refuse("\\" + std::string(1, c));
    take(2);
    if ((c == 'p' || c == 'P') && !starts("{")) refuse("\\p without braces");
    // With a nested class behind it, a digit of that class would become a digit of the escape.
    if (c == 'x' && in_class_ && !starts("{")) {
      const auto is_digit = [&](std::size_t at) {
        return at < pattern_.size() &&
               std::string_view("0123456789abcdefABCDEF").find(pattern_[at]) != std::string_view::npos;
      };
      if (!is_digit(at_) || !is_digit(at_ + 1)) refuse("\\x without two digits in a class");
    }
    if ((c != 'p' && c != 'P' && c != 'x') || at_ >= pattern_.size() || pattern_[at_] != '{') return;
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("a property without its end");
    const std::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
    const std::size_t negated = name.starts_with('^') ? 1 : 0;
    if (c != 'x' && is_script(name.substr(negated))) {
      // Without sc: PCRE2 takes the characters of other scripts that are used with this one too.
      take(1 + negated);
      result_ += "sc:";
    }
    take(end + 1 - at_);
  }

  // What stands between two && of a class: characters, ranges and properties as PCRE2 spells them in a
  // class, and classes that cannot be written among them.
  struct Operand {
    std::string items;
    std::vector<std::string> classes;
    bool empty() const { return items.empty() && classes.empty(); }
  };
  struct Class {
    bool negated = false;
    std::vector<Operand> operands = {{}};
    bool plain() const { return operands.size() == 1 && operands[0].classes.empty(); }
  };

  static std::string in_brackets(const std::string& items) {
    return (items.starts_with('^') ? "[\\" : "[") + items + "]";
  }

  // A pattern for one character.
  static std::string pattern_of(const Operand& operand) {
    std::vector<std::string> ways = operand.classes;
    if (!operand.items.empty()) ways.insert(ways.begin(), in_brackets(operand.items));
    if (ways.size() == 1) return ways[0];
    std::string all;
    for (const std::string& way : ways) all += (all.empty() ? "(?:" : "|") + way;
    return all + ")";
  }

  // PCRE2 has no intersections before 10.45: all sides but the last look ahead.
  static std::string pattern_of(const Class& found) {
    if (found.plain())
      return found.negated ? "[^" + found.operands[0].items + "]" : in_brackets(found.operands[0].items);
    std::string sides;
    for (const Operand& operand : found.operands) {
      const std::string one = pattern_of(operand);
      sides += &operand == &found.operands.back() ? one : "(?=" + one + ")";
    }
    return found.negated ? "(?:(?!" + sides + ")(?s:.))" : "(?:" + sides + ")";
  }

  void char_class() {
    in_class_ = true;
    std::string before = std::move(result_);
    const Class found = read_class(0);
    if (!found.plain() && pattern_.find("(?i") != std::string_view::npos)
      refuse("such a class beside (?i), whose letters of the other case follow other rules there");
    result_ = std::move(before) + pattern_of(found);
    in_class_ = false;
  }

  // result_ gathers the items of the operand that is read.
  Class read_class(int depth) {
    constexpr int most_depth = 8;
    if (depth > most_depth) refuse("classes in classes deeper than " + std::to_string(most_depth));
    if (depth > 0 && starts("[:")) refuse("a class with a name of POSIX in a class");
    ++at_;
    Class found;
    if (starts("^")) {
      found.negated = true;
      ++at_;
    }
    if (starts("]")) refuse(depth == 0 ? "an empty class" : "an empty class in a class");
    result_.clear();
    const auto close_operand = [&] {
      Operand& last = found.operands.back();
      last.items += std::exchange(result_, {});
      if (last.empty()) refuse("an intersection of classes with an empty side");
    };
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (pattern_[at_] == '[') {
        add_class(depth, found.operands.back());
      } else if (starts("&&")) {
        close_operand();
        found.operands.emplace_back();
        at_ += 2;
      } else if (pattern_[at_] == '\\') {
        escape();
      } else {
        take(1);
      }
    }
    if (at_ >= pattern_.size()) refuse("a class without its end");
    close_operand();
    ++at_;
    return found;
  }

  // A class in the operand of another one.
  void add_class(int depth, Operand& operand) {
    if (result_.ends_with('-')) refuse("a range that ends in a class in a class");
    operand.items += std::exchange(result_, {});
    const Class inner = read_class(depth + 1);
    const std::string& items = inner.operands[0].items;
    // A - at an end of it would make a range with its neighbour.
    if (inner.plain() && !inner.negated && !items.starts_with('-') && !items.ends_with('-'))
      operand.items += items;
    else
      operand.classes.push_back(pattern_of(inner));
    result_.clear();
    if (starts("-")) refuse("a range that begins with a class in a class");
  }

  void group() {
    if (starts("(*")) refuse("(*");
    if (!starts("(?")) return take(1);
    // An option in the middle ends at a bar here and not there. (?m) is another option there. The rest here
    // calls, recurs or names.
    if (at_ == 0 && starts("(?i)")) return take(4);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (starts(known)) return take(known.size());
    }
    refuse(pattern_.substr(at_, 4));
  }

  void end_of_interval() {
    const std::string_view inside = pattern_.substr(open_, at_ - open_);
    const bool exact = inside.size() > 1 && inside[0] == '{' &&
                       inside.find_first_not_of("0123456789", 1) == std::string_view::npos;
    take(1);
    // There a second repetition of the first one; here a possessive interval.
    if (starts("+")) refuse("}+");
    // {n}? is an optional {n} there, and here the same as {n}.
    if (exact && starts("?")) refuse("}? behind an exact number");
  }

  std::string_view pattern_;
  std::size_t at_ = 0, open_ = 0;  // of the next character, and of the last {
  bool in_class_ = false;
  std::string result_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace fovea::text::pipeline

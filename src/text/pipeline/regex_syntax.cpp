#include "text/pipeline/regex_syntax.h"

#include "core/excerpt.h"
#include "fovea/core/error.h"

namespace fovea::text::pipeline {
namespace {

// PCRE2 10.42 counts U+180E as a blank, and no mark as part of a word.
constexpr std::string_view kBlank = "\\p{White_Space}", kNotBlank = "\\P{White_Space}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

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
    if ((c != 'p' && c != 'P' && c != 'x') || at_ >= pattern_.size() || pattern_[at_] != '{') return;
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("a property without its end");
    take(end + 1 - at_);
  }

  void char_class() {
    in_class_ = true;
    take(1);
    if (at_ < pattern_.size() && pattern_[at_] == '^') take(1);
    if (at_ < pattern_.size() && pattern_[at_] == ']') refuse("an empty class");
    bool inside = false;  // a class in this one, whose characters are some more of it
    for (; at_ < pattern_.size() && (inside || pattern_[at_] != ']');) {
      if (pattern_[at_] == '[') {
        if (inside || starts("[^") || starts("[:") || starts("[]") || result_.back() == '-')
          refuse("such a class in a class");
        inside = true;
        ++at_;
      } else if (pattern_[at_] == ']') {
        inside = false;
        ++at_;
        if (starts("-")) refuse("a range behind a class in a class");
      } else if (starts("&&")) {
        refuse("an intersection of classes");
      } else if (pattern_[at_] == '\\') {
        escape();
      } else {
        take(1);
      }
    }
    if (at_ >= pattern_.size()) refuse("a class without its end");
    take(1);
    in_class_ = false;
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

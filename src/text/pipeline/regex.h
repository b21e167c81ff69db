// Regular expressions of tokenizer.json, which are those of Oniguruma in Ruby's syntax, by libpcre2.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/normalized.h"

namespace fovea::text::pipeline {

class Regex {
 public:
  /// Throws InvalidArgument for a pattern that is too long or does not compile, and for syntax that the two
  /// libraries read differently: classes in classes, back references, most options.
  explicit Regex(std::string_view pattern);
  /// Matches `text` literally.
  static Regex literal(std::string_view text);

  /// The matches in `text`, which is UTF-8, and what lies between them. Throws InvalidArgument if matching
  /// takes more steps, time or memory than it may: patterns with nested repetitions can take exponential
  /// time.
  std::vector<Part> parts(std::string_view text) const;

 private:
  struct Compiled;
  Regex() = default;
  void compile(std::string_view pattern, bool is_literal);
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace fovea::text::pipeline

// The "pre_tokenizer" of tokenizer.json: what splits a text into words, which the model then splits further.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "text/pipeline/fields.h"
#include "text/pipeline/normalized.h"
#include "text/pipeline/regex.h"

namespace fovea::text::pipeline {

struct BertPreTokenizer {};
/// Also a post-processor and a decoder.
struct ByteLevel {
  bool add_prefix_space = true, trim_offsets = true, use_regex = true;
};
struct Split {
  Regex pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
};
/// Also a decoder.
struct Metaspace {
  enum class Prepend : std::uint8_t { first, never, always };
  std::string replacement;  ///< one character
  Prepend prepend = Prepend::always;
  bool split = true;
};
struct WhitespaceWords {};  ///< "Whitespace"
struct WhitespaceSplit {};
struct Punctuation {
  SplitBehavior behavior = SplitBehavior::isolated;
};
struct Digits {
  bool individual = false;
};
struct CharDelimiterSplit {
  std::string delimiter;  ///< one character
};
struct FixedLength {
  std::size_t length = 0;
};
struct PreTokenizer;
struct PreTokenizerSequence {
  std::vector<PreTokenizer> parts;
};

struct PreTokenizer {
  std::variant<BertPreTokenizer, ByteLevel, Split, Metaspace, WhitespaceWords, WhitespaceSplit, Punctuation,
               Digits, CharDelimiterSplit, FixedLength, PreTokenizerSequence>
      kind;
  /// Replaces the pieces by those they are split into.
  void apply(std::vector<Normalized>& pieces) const;
};

/// Throw FileError.
PreTokenizer read_pre_tokenizer(const nlohmann::json& value, const Where& where);
ByteLevel read_byte_level(const nlohmann::json& value, const Where& where);
Metaspace read_metaspace(const nlohmann::json& value, const Where& where);

/// The characters that \w stands for in the `regex` library of Rust, without the brackets of a class.
inline constexpr std::string_view kRustWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";

}  // namespace fovea::text::pipeline

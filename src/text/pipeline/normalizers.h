// The "normalizer" of tokenizer.json: what changes a text before it is split.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "text/pipeline/charsmap.h"
#include "text/pipeline/fields.h"
#include "text/pipeline/normalized.h"
#include "text/pipeline/regex.h"

namespace fovea::text::pipeline {

struct BertNormalizer {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
};
struct Lowercase {};
struct StripNormalizer {
  bool left = true, right = true;
};
struct StripAccents {};
struct Nmt {};
/// Also a decoder.
struct Replace {
  Regex pattern;
  std::string content;
};
struct Prepend {
  std::string text;
};
struct ByteLevelNormalizer {};
struct Normalizer;
struct NormalizerSequence {
  std::vector<Normalizer> parts;
};

struct Normalizer {
  std::variant<BertNormalizer, NormalForm, Lowercase, StripNormalizer, StripAccents, Nmt, Replace, Prepend,
               Charsmap, ByteLevelNormalizer, NormalizerSequence>
      kind;
  void apply(Normalized& text) const;
};

/// Throws FileError.
Normalizer read_normalizer(const nlohmann::json& value, const Where& where);
/// A pattern: {"String": ...} or {"Regex": ...}. Throws FileError.
Regex read_pattern(const Fields& fields, std::string_view key);
Replace read_replace(const nlohmann::json& value, const Where& where);

/// Spells every byte of the text as the character that GPT-2 has for it.
void spell_bytes(Normalized& text);
/// That character of a byte, in UTF-8.
const std::string& spelling_of(unsigned char byte);
/// The byte that such a character spells.
std::optional<unsigned char> byte_of(char32_t character);

}  // namespace fovea::text::pipeline

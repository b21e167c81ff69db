// The "decoder" of tokenizer.json: what makes a text of tokens.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "text/pipeline/fields.h"
#include "text/pipeline/normalizers.h"
#include "text/pipeline/pre_tokenizers.h"

namespace fovea::text::pipeline {

struct WordPieceDecoder {
  std::string prefix;
  bool cleanup = true;
};
struct ByteLevelDecoder {};
struct BpeDecoder {
  std::string suffix;
};
struct ByteFallback {};
struct Fuse {};
struct StripDecoder {
  std::string content;  ///< one character
  std::size_t start = 0, stop = 0;
};
struct Decoder;
struct DecoderSequence {
  std::vector<Decoder> parts;
};

struct Decoder {
  std::variant<WordPieceDecoder, ByteLevelDecoder, Metaspace, BpeDecoder, ByteFallback, Replace, Fuse,
               StripDecoder, DecoderSequence>
      kind;
  /// Changes the tokens, which joined are the text. Throws InvalidArgument if they become longer than `most`
  /// bytes.
  void apply(std::vector<std::string>& tokens, std::size_t most) const;
};

/// Throws FileError.
Decoder read_decoder(const nlohmann::json& value, const Where& where);
/// The text, with U+FFFD for each sequence of bytes that is no UTF-8, as the Unicode Standard recommends.
std::string with_valid_utf8(std::string_view bytes);

}  // namespace fovea::text::pipeline

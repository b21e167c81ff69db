// The pieces of a text with their places in it.
#pragma once

#include <sentencepiece_processor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/encoding.h"

namespace fovea::text {

/// Checks and loads a model. Throws FileError, also where the library throws: its trie refuses an empty piece
/// so.
void load_model(sentencepiece::SentencePieceProcessor& processor, std::string_view bytes,
                const std::string& name);

struct SpannedPiece {
  std::string piece;
  std::int32_t id = 0;  ///< that of the SentencePiece model
  ByteRange place;
};

/// Bytes of one character have its place. Throws InvalidArgument of `function` for a text that is not UTF-8.
std::vector<SpannedPiece> spanned_pieces(const sentencepiece::SentencePieceProcessor& processor,
                                         const char* function, std::string_view text);

/// The encoding of pieces, whose ids are those of the model. Words are what blanks divide.
Encoding encoding_of(std::string_view text, const std::vector<SpannedPiece>& pieces);
/// Appends an id that stands for no text.
void append_special(Encoding& encoding, std::int32_t id);

}  // namespace fovea::text

// Checks of a model file that SentencePiece itself does not make.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

/// A larger model file is not read. The largest known has 15 MB.
constexpr std::size_t kMaxModelBytes = std::size_t{256} << 20;

/// Walks the protocol buffer of an `spm.model`. Throws FileError unless it is well formed and its
/// normalisation trie stays inside its own bytes. The library follows that trie without checks, so a damaged
/// trie would read arbitrary memory.
void check_sentencepiece_model(std::string_view bytes, const std::string& name);

/// The same for the normalisation trie alone, which tokenizer.json has as precompiled_charsmap.
void check_charsmap(std::string_view blob, const std::string& name);

/// What a model file says, as far as it decides the ids. Views are into the file's bytes.
struct SentencePieceFile {
  /// Of the trainer, as the file numbers them.
  enum class Type : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  struct Piece {
    enum class Kind : std::uint8_t {
      normal = 1,
      unknown = 2,
      control = 3,
      user_defined = 4,
      unused = 5,
      byte = 6
    };
    std::string_view text;
    float score = 0;
    Kind kind = Kind::normal;
  };
  std::vector<Piece> pieces;
  Type type = Type::unigram;
  bool byte_fallback = false;
  std::string_view charsmap;  ///< empty if texts stay as they are
};

/// Reads a file that check_sentencepiece_model accepts. Throws FileError for a piece that is not UTF-8, and
/// for scores, kinds and types that are none.
SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& name);

/// Whether the pieces of such a checked model are single characters, as its training was told.
bool has_character_pieces(std::string_view bytes, const std::string& name);

}  // namespace fovea::text

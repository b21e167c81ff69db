// The tokens of a text as they are drawn, and its words.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/tokenizer_json.h"

namespace fovea::text {

/// The ids of a text, and what each of them shows. A token that begins a word begins with "▁". Where the
/// tokenizer marks those that go on with one, as WordPiece does, these begin with "##" instead.
struct Pieces {
  std::vector<std::int32_t> ids;
  std::vector<std::string> tokens;   ///< one for each id
  std::vector<std::size_t> word_of;  ///< the number of each token's word; a special id is a word of its own
  std::vector<std::string> words;
};

class PieceReader {
 public:
  virtual ~PieceReader() = default;
  /// The ids of a text that a model reads.
  virtual Pieces read(const std::string& text) const = 0;
  /// The same ids and the bytes that they stand for; or without those that stand for none, such as </s> at
  /// the end.
  virtual Encoding encode(const std::string& text, EncodeOptions::SpecialTokens special) const = 0;
  /// The ids of a text that a translator writes, without those that its decoder begins and ends with.
  virtual std::vector<std::int32_t> target(const std::string& text) const = 0;
  /// The ids that a model wrote, and what each of them shows.
  Pieces written(std::span<const std::int32_t> ids) const;
  /// The text of ids.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// The spelling of an id; "" for one without a token.
  virtual std::string token(std::int32_t id) const = 0;

 protected:
  /// The ids of a text by their places in it. `begins`: whether each begins a word.
  Pieces spanned(std::string_view text, const Encoding& encoding, const std::vector<bool>& begins) const;
};

/// The tokenizer of a folder: tokenizer.json, Marian's files, or one of ours. Throws FileError where there is
/// none that can be read.
std::unique_ptr<PieceReader> read_pieces(const std::filesystem::path& folder);

/// Ids without a tokenizer, shown as numbers.
Pieces number_pieces(std::vector<std::int32_t> ids);

}  // namespace fovea::text

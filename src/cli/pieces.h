// The tokens of a text as they are drawn, and its words.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/ids.h"
#include "fovea/inspect/data.h"

namespace fovea::cli {

/// The ids of a text, and what each of them shows. A token that begins a word begins with "▁". Where the
/// tokenizer marks those that go on with one, as WordPiece does, these begin with "##" instead.
struct Pieces {
  Ids ids;
  std::vector<std::string> tokens;
  inspect::TokenGroups words;  ///< a special id is a word of its own
};

class PieceReader {
 public:
  virtual ~PieceReader() = default;
  /// The ids of a text that a model reads.
  virtual Pieces read(const std::string& text) const = 0;
  /// The ids of a text that a translator writes, without those that its decoder begins and ends with.
  virtual Ids target(const std::string& text) const = 0;
  /// Ids that a model wrote.
  Pieces written(const Ids& ids) const;
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

 protected:
  /// The spelling of an id; "" for one without a token.
  virtual std::string token(std::int32_t id) const = 0;
};

/// The tokenizer of a folder: tokenizer.json, Marian's files, or one of ours. Throws FileError where there is
/// none that can be read.
std::unique_ptr<PieceReader> read_pieces(const std::filesystem::path& folder);

/// Ids without a tokenizer, shown as numbers.
Pieces number_pieces(Ids ids);

}  // namespace fovea::cli

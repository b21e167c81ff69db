// The tokenizer of Marian's translators: two models of SentencePiece that split texts, and one list of ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/encoding.h"

namespace fovea::text {

/// Immutable after construction; const calls may come from several threads at once.
class MarianTokenizer {
 public:
  /// Reads source.spm, target.spm and vocab.json of a folder. Throws FileError if one cannot be read, and for
  /// a vocab.json without </s> and <unk>.
  static MarianTokenizer read(const std::filesystem::path& folder);
  /// Whether a folder has these files.
  static bool is_in(const std::filesystem::path& folder);
  ~MarianTokenizer();
  MarianTokenizer(MarianTokenizer&&) noexcept;
  MarianTokenizer& operator=(MarianTokenizer&&) noexcept;

  /// Ids of a text in the source language, with </s> at the end. A language code at its beginning, ">>fr<<",
  /// is one id. Throws InvalidArgument for a text that is not UTF-8.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The same ids and their places in the text. A blank belongs to the piece that begins with it; bytes of a
  /// character share its place.
  Encoding encoding(std::string_view text) const;
  /// Ids of a text in the target language, with </s> at the end. Throws InvalidArgument for a text that is
  /// not UTF-8.
  std::vector<std::int32_t> encode_target(std::string_view text) const;
  /// The spelling of an id, such as "▁the"; "" for an id without a piece.
  std::string token(std::int32_t id) const;
  /// The text of ids, without </s>, <unk> and <pad>. An id without a piece is left out.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// The largest id and 1.
  std::int64_t size() const;

 private:
  struct Impl;
  explicit MarianTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea::text

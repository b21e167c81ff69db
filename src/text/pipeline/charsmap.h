// The precompiled_charsmap of SentencePiece: replacements of short texts, found by a double-array trie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/characters.h"

namespace fovea::text::pipeline {

class Charsmap {
 public:
  /// `blob` is the decoded map; `file` is named in errors. Throws FileError unless every edge and every value
  /// of the trie lies inside, and every replacement is UTF-8.
  Charsmap(std::string blob, const std::string& file);

  /// The changes that the map makes to `text`, as the `tokenizers` library applies it. A grapheme cluster of
  /// at most 5 bytes is looked up as a whole; otherwise its characters are, one by one.
  /// Throws InvalidArgument if there are more than `most`.
  std::vector<Change> apply(std::string_view text, std::size_t most) const;

 private:
  // The replacement of the shortest beginning of `text` that has one, or a view without data.
  std::string_view replacement(std::string_view text) const;
  std::uint32_t unit(std::size_t index) const;

  std::string blob_;
  std::size_t trie_bytes_ = 0;
};

}  // namespace fovea::text::pipeline

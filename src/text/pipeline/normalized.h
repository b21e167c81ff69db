// A text that is changed step by step while each of its bytes keeps the place in the source that it comes
// from. The arithmetic of the places is that of the `tokenizers` library, so that offsets agree with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/pipeline/characters.h"

namespace fovea::text::pipeline {

/// Bytes [begin, end) of the source text.
struct Place {
  std::uint32_t begin = 0, end = 0;
};

/// Bytes [begin, end) of a text: a match, or what lies between two.
struct Part {
  std::size_t begin = 0, end = 0;
  bool match = false;
};

/// What becomes of the matches when a text is split at them.
enum class SplitBehavior : std::uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous
};

/// The longest text that the parts of a file may make of one of `bytes`. Replacements one after another would
/// otherwise make terabytes of a letter.
constexpr std::size_t most_bytes(std::size_t bytes) {
  return 64 * bytes + (std::size_t{1} << 20);
}
/// Throws InvalidArgument by the name of `part`, such as "normalizer".
[[noreturn]] void refuse_growth(const char* part, std::size_t most);

class Normalized {
 public:
  /// `source` is UTF-8, of at most 2^32 - 1 bytes.
  explicit Normalized(std::string_view source);

  const std::string& text() const noexcept { return text_; }
  /// Where the piece began in the source when it was cut out.
  std::uint32_t begin() const noexcept { return begin_; }
  /// The place of bytes [begin, end) of the text.
  Place place(std::size_t begin, std::size_t end) const;

  /// How long the text may become: most_bytes() of what it was made from. What changes it throws
  /// InvalidArgument beyond.
  std::size_t most() const noexcept { return most_; }

  /// Replaces the whole text. The first `dropped` characters of the old one have no successor.
  void transform(std::span<const Change> changes, std::size_t dropped = 0);
  /// Puts `front` before a text that is not empty.
  void prepend(std::string_view front);
  /// Replaces each match; `parts` cover the text.
  void replace(std::span<const Part> parts, std::string_view content);
  /// Keeps the characters that `keep` accepts.
  template <class Keep>
  void filter(Keep&& keep);
  /// The pieces that are not empty; `parts` cover the text.
  std::vector<Normalized> split(std::span<const Part> parts, SplitBehavior behavior) const;
  Normalized slice(std::size_t begin, std::size_t end) const;

 private:
  Normalized() = default;

  std::string text_;
  std::vector<Place> places_;  // one for each byte
  std::uint32_t begin_ = 0;
  std::size_t most_ = 0;
};

/// The parts of `text` of which each match is one character that `accept` accepts.
template <class Accept>
std::vector<Part> parts_of(std::string_view text, Accept&& accept);

}  // namespace fovea::text::pipeline

#include "text/pipeline/normalized-inl.h"

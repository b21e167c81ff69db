// The ids of a text, and the bytes that they stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fovea::text {

/// Bytes [begin, end) of a text.
struct ByteRange {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// The ids of a text, or of two. All vectors have one element for each id.
struct Encoding {
  std::vector<std::int32_t> ids;
  /// Where each id stands in its text; {0, 0} for ids that stand for no text. Ids that share a character have
  /// the same range.
  std::vector<ByteRange> offsets;
  std::vector<std::uint8_t> special;  ///< 1: the template or padding put it there; 0: it stands for text
  std::vector<std::int32_t> types;    ///< of the table of token types: 0 or 1, as the template says
  std::vector<std::int32_t> texts;    ///< the text that the id stands in, 0 or 1; -1: in none
  std::vector<std::int32_t> words;    ///< the word of that text, from 0; -1: none

  std::size_t size() const noexcept { return ids.size(); }
};

/// A pair of texts as windows over its second text, each of at most `max_length` ids. Every window has all
/// ids of the first text and of the template, and a part of the second text's. A part begins `stride` ids
/// before the end of the part before it. Throws InvalidArgument if no more than `stride` ids of the second
/// text find room.
std::vector<Encoding> windows_of(const Encoding& pair, std::int64_t max_length, std::int64_t stride);

}  // namespace fovea::text

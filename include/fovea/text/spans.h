// Spans of words that have a type, such as names in a text, as tags of single words, and their F1.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fovea::text {

/// Words [begin, end).
struct Span {
  std::size_t begin = 0, end = 0;
  std::string type;
  auto operator<=>(const Span&) const = default;
};

/// The spans that tags say: B-x begins a span of type x, I-x goes on, O is outside; E-x and S-x, where they
/// are used, end one and are one. As conlleval has it (Tjong Kim Sang & Buchholz 2000), an I-x or E-x that no
/// span of type x stands before begins one, so that IOB1, BIO and IOBES are all read. Throws InvalidArgument
/// for any other tag.
std::vector<Span> spans_of(std::span<const std::string> tags);
/// The BIO tags of `words` words. Throws InvalidArgument for spans that are empty, overlap, or end beyond.
std::vector<std::string> tags_of(std::span<const Span> spans, std::size_t words);

/// How many proposed spans are right: begin, end and type.
struct SpanScore {
  std::int64_t proposed = 0, gold = 0, correct = 0;
  double precision() const noexcept;  ///< 0 when nothing is proposed
  double recall() const noexcept;     ///< 0 when there is nothing to find
  double f1() const noexcept;         ///< their harmonic mean; 0 when nothing is correct
  /// Counts one more sentence.
  void add(std::span<const Span> proposed_spans, std::span<const Span> gold_spans);
};

}  // namespace fovea::text

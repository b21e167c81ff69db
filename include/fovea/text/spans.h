// Typed spans of words, such as names in a text: their encoding as one tag for each word, and their F1.
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

/// The spans that tags encode. B-x begins a span of type x, I-x continues it, O is outside. Two tags
/// are optional: E-x ends a span, and S-x is a span of one word. An I-x or E-x that does not follow a span of
/// type x begins one, as in conlleval (Tjong Kim Sang & Buchholz 2000). So IOB1, BIO and IOBES can all be
/// read. Throws InvalidArgument for any other tag.
std::vector<Span> spans_of(std::span<const std::string> tags);
/// The BIO tags of a text of `words` words. Throws InvalidArgument for spans that are empty, overlap, or end
/// after the last word.
std::vector<std::string> tags_of(std::span<const Span> spans, std::size_t words);

/// Counts of spans. A proposed span is correct if a gold span has the same begin, end and type.
struct SpanScore {
  std::int64_t proposed = 0, gold = 0, correct = 0;
  double precision() const noexcept;  ///< 0 when nothing is proposed
  double recall() const noexcept;     ///< 0 when there are no gold spans
  double f1() const noexcept;         ///< harmonic mean of precision and recall; 0 when nothing is correct
  /// Counts one more sentence.
  void add(std::span<const Span> proposed_spans, std::span<const Span> gold_spans);
};

}  // namespace fovea::text

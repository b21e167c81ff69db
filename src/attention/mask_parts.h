// Helpers for the nodes of masks: limits, spans cut to the keys, lists as text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/attention/mask_definition.h"
#include "fovea/core/error.h"

namespace fovea::mask_parts {

/// Beyond every position. Sums of a few of these fit into 64 bits.
inline constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;

inline KeySpans span_within(std::int64_t begin, std::int64_t end, std::int64_t key_len) {
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min(end, key_len);
  return begin < end ? KeySpans{{begin, end}} : KeySpans{};
}

/// Appends [begin, end) cut to the keys. If it touches the last span, the two are joined. Begins must come in
/// order.
inline void append(KeySpans& spans, std::int64_t begin, std::int64_t end, std::int64_t key_len) {
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min(end, key_len);
  if (begin >= end) return;
  if (!spans.empty() && spans.back().end >= begin)
    spans.back().end = std::max(spans.back().end, end);
  else
    spans.push_back({begin, end});
}

inline std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

template <class Numbers>
std::string list_of(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(static_cast<std::int64_t>(number));
  return text;
}

/// One side of a window as text: a count, or "all".
inline std::string side(std::int64_t count) {
  return count == SlidingWindow::unlimited ? "all" : std::to_string(count);
}

[[noreturn]] inline void refuse(const char* mask, const char* argument, const std::string& expected,
                                const std::string& got) {
  throw InvalidArgument(mask, argument, expected, got);
}

inline void at_least(const char* mask, const char* argument, std::int64_t value, std::int64_t least,
                     std::int64_t most = far) {
  if (value < least || value > most)
    refuse(mask, argument, "a number in [" + std::to_string(least) + ", " + std::to_string(most) + "]",
           std::to_string(value));
}

/// Unites and intersects the spans row by row, for masks that have no formula for a block.
template <class RowSpans>
BlockSpans by_rows(const QueryBlock& block, RowSpans&& row_spans) {
  BlockSpans result;
  for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
    const KeySpans row = row_spans(query);
    const bool first = query == block.query_begin;
    result.some = first ? row : unite(result.some, row);
    result.all = first ? row : intersect(result.all, row);
  }
  return result;
}

}  // namespace fovea::mask_parts

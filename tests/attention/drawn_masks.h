// Random masks, and a comparison of their spans with brute force.
#pragma once

#include <gtest/gtest.h>

#include "fovea/attention/mask.h"
#include "fovea/attention/masks.h"
#include "fovea/attention/streaming_sinks.h"
#include "fovea/core/philox.h"

namespace fovea::testing {

inline Mask random_table(PhiloxStream& random) {
  const std::int64_t columns = 1 + random.next_below(5), rows = random.next_below(5);
  BlockTable table{1 + random.next_below(6), columns, {}};
  for (std::int64_t bit = 0; bit < rows * columns; ++bit) table.visible.push_back(random.next_below(2) == 1);
  return table;
}

inline Mask random_numbers(PhiloxStream& random, bool tree) {
  std::vector<std::int64_t> numbers;
  for (std::uint32_t n = random.next_below(24) + 1, i = 0; i < n; ++i)
    numbers.push_back(tree ? random.next_below(i + 1) : random.next_below(4));
  if (tree) return Tree{numbers};
  return Groups{numbers};
}

inline Mask random_documents(PhiloxStream& random) {
  std::vector<std::int64_t> boundaries{random.next_below(4)};
  for (std::uint32_t n = random.next_below(5); n > 0; --n)
    boundaries.push_back(boundaries.back() + random.next_below(9));
  return Documents{boundaries};
}

inline std::int64_t random_side(PhiloxStream& random) {
  return random.next_below(4) == 0 ? SlidingWindow::unlimited : random.next_below(6);
}

inline Mask random_mask(PhiloxStream& random, int depth) {
  switch (depth > 0 ? random.next_below(17) : 3 + random.next_below(14)) {
    case 16:
      return StreamingSinks{random.next_below(21)};
    case 3:
      return Prefix{{random.next_below(21), random.next_below(21)}};
    case 4:
      return random_documents(random);
    case 5:
      return Chunked{1 + random.next_below(9)};
    case 6:
      return Strided{1 + random.next_below(9)};
    case 7:
      return Dilated{random_side(random), random_side(random), 1 + random.next_below(5)};
    case 8:
      return random_table(random);
    case 9:
      return random_numbers(random, true);
    case 10:
      return random_numbers(random, false);
    case 11:
      return Everything{};
    case 12:
      return Causal{};
    case 13:
      return SlidingWindow{random.next_below(6), random_side(random)};
    case 14:
      return GlobalTokens{random.next_below(20), random.next_below(20)};
    case 15:
      return KeyLengths{{random.next_below(21), random.next_below(21)}};
    case 0:
      return random_mask(random, depth - 1) & random_mask(random, depth - 1);
    case 1:
      return random_mask(random, depth - 1) | random_mask(random, depth - 1);
    default:
      return ~random_mask(random, depth - 1);
  }
}

inline bool holds(const KeySpans& spans, std::int64_t key) {
  for (const KeySpan& span : spans) {
    if (key >= span.begin && key < span.end) return true;
  }
  return false;
}

inline void expect_canonical(const KeySpans& spans, std::int64_t key_len) {
  std::int64_t last = -1;
  for (const KeySpan& span : spans) {
    EXPECT_GT(span.begin, last);  // sorted, disjoint and not touching
    EXPECT_LT(span.begin, span.end);
    last = span.end;
  }
  EXPECT_LE(last, key_len);
}

// Compares with brute force. Spans are always sound, exact for one query, and tight for single masks.
inline void check(const Mask& mask, const QueryBlock& block, bool tight) {
  const BlockSpans spans = mask.node().spans(block);
  expect_canonical(spans.some, block.key_len);
  expect_canonical(spans.all, block.key_len);
  for (std::int64_t key = 0; key < block.key_len; ++key) {
    bool some = false, all = true;
    for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
      const bool seen = mask.node().allows(Site::at(block.batch, block.head, query, key), block);
      some = some || seen;
      all = all && seen;
    }
    if (some) ASSERT_TRUE(holds(spans.some, key)) << to_string(mask) << " key " << key;
    if (!all) ASSERT_FALSE(holds(spans.all, key)) << to_string(mask) << " key " << key;
    if (tight || block.query_end - block.query_begin == 1) {
      ASSERT_EQ(holds(spans.some, key), some) << to_string(mask) << " key " << key;
      ASSERT_EQ(holds(spans.all, key), all) << to_string(mask) << " key " << key;
    }
  }
}

}  // namespace fovea::testing

#include "fovea/attention/mask.h"

#include <gtest/gtest.h>

#include "fovea/attention/expression.h"
#include "fovea/core/philox.h"

namespace fovea {
namespace {

Mask random_mask(PhiloxStream& random, int depth) {
  switch (depth > 0 ? random.next_below(8) : random.next_below(5)) {
    case 0:
      return Everything{};
    case 1:
      return Causal{};
    case 2:
      return SlidingWindow{random.next_below(6),
                           random.next_below(4) == 0 ? SlidingWindow::unlimited : random.next_below(6)};
    case 3:
      return GlobalTokens{random.next_below(20), random.next_below(20)};
    case 4:
      return KeyLengths{{random.next_below(21), random.next_below(21)}};
    case 5:
      return random_mask(random, depth - 1) & random_mask(random, depth - 1);
    case 6:
      return random_mask(random, depth - 1) | random_mask(random, depth - 1);
    default:
      return ~random_mask(random, depth - 1);
  }
}

bool holds(const KeySpans& spans, std::int64_t key) {
  for (const KeySpan& span : spans) {
    if (key >= span.begin && key < span.end) return true;
  }
  return false;
}

void expect_canonical(const KeySpans& spans, std::int64_t key_len) {
  std::int64_t last = -1;
  for (const KeySpan& span : spans) {
    EXPECT_GT(span.begin, last);  // sorted, disjoint and not touching
    EXPECT_LT(span.begin, span.end);
    last = span.end;
  }
  EXPECT_LE(last, key_len);
}

// Against brute force: sound always; exact for one query; tight for single masks.
void check(const Mask& mask, const QueryBlock& block, bool tight) {
  const BlockSpans spans = mask.node().spans(block);
  expect_canonical(spans.some, block.key_len);
  expect_canonical(spans.all, block.key_len);
  for (std::int64_t key = 0; key < block.key_len; ++key) {
    bool some = false, all = true;
    for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
      const bool seen = mask.node().allows({block.batch, 0, query, key}, block);
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

TEST(Mask, SpansAgainstBruteForce) {
  PhiloxStream random(1);
  for (int trial = 0; trial < 4000; ++trial) {
    const bool single = trial % 2 == 0;
    const Mask mask = random_mask(random, single ? 0 : 3);
    const std::int64_t begin = static_cast<std::int64_t>(random.next_below(30)) - 6;
    const QueryBlock block{random.next_below(2), begin, begin + 1 + random.next_below(9),
                           random.next_below(21)};
    check(mask, block, single);
    if (HasFatalFailure()) return;
  }
}

TEST(Mask, ClassifyIsSound) {
  PhiloxStream random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const Mask mask = random_mask(random, 2);
    const QueryBlock block{0, 3, 9, 20};
    const BlockSpans spans = mask.node().spans(block);
    const std::int64_t begin = random.next_below(20),
                       end = begin + 1 + random.next_below(static_cast<std::uint32_t>(20 - begin));
    const TileClass tile = classify(spans, begin, end);
    for (std::int64_t query = 3; query < 9; ++query) {
      for (std::int64_t key = begin; key < end; ++key) {
        const bool seen = mask.node().allows({0, 0, query, key}, block);
        if (tile == TileClass::empty) ASSERT_FALSE(seen) << to_string(mask);
        if (tile == TileClass::full) ASSERT_TRUE(seen) << to_string(mask);
      }
    }
  }
}

TEST(Expression, ParseOfPrintIsTheSame) {
  PhiloxStream random(3);
  for (int trial = 0; trial < 3000; ++trial) {
    const Mask mask = random_mask(random, 4);
    const std::string text = to_string(mask);
    ASSERT_EQ(to_string(parse_mask(text)), text);
  }
  EXPECT_EQ(to_string(parse_mask(" ~ ( causal|window( 127 , 0 ))& global(0,5) ")),
            "~(causal | window(127,0)) & global(0,5)");
  EXPECT_EQ(to_string(parse_mask("causal & (causal & causal)")), "causal & (causal & causal)");
}

TEST(Expression, MistakesNameTheColumn) {
  const auto column = [](const char* text) -> std::size_t {
    try {
      parse_mask(text);
    } catch (const ExpressionError& error) {
      EXPECT_FALSE(error.expected().empty());
      return error.column();
    }
    return 0;
  };
  EXPECT_EQ(column(""), 1u);
  EXPECT_EQ(column("causal &"), 9u);
  EXPECT_EQ(column("causal casual"), 8u);
  EXPECT_EQ(column("window(1;2)"), 9u);
  EXPECT_EQ(column("window(-1,0)"), 8u);
  EXPECT_EQ(column("(causal"), 8u);
  EXPECT_EQ(column("lengths(3,)"), 11u);
  EXPECT_EQ(column("window(99999999999999999999,0)"), 8u);
}

TEST(Expression, WhatStandsThereIsShownWhole) {
  try {
    parse_mask("causal & \xc3\xa9t\xc3\xa9");
    FAIL();
  } catch (const ExpressionError& error) {
    EXPECT_EQ(error.got(), "'\xc3\xa9'");
  }
}

TEST(Mask, DepthIsLimited) {
  Mask deep = Causal{};
  for (int i = 1; i < deepest_mask; ++i) deep = i % 2 ? ~deep : deep | Causal{};
  EXPECT_FALSE(to_string(deep).empty());
  const QueryBlock block{0, 3, 4, 9, {}};
  const BlockSpans spans = deep.node().spans(block);
  for (std::int64_t key = 0; key < 9; ++key) {
    EXPECT_EQ(classify(spans, key, key + 1) == TileClass::full, deep.node().allows({0, 0, 3, key}, block));
  }
  EXPECT_THROW(~deep, InvalidArgument);
  EXPECT_THROW(deep & Mask(Causal{}), InvalidArgument);
  EXPECT_THROW(Mask(std::shared_ptr<const MaskNode>()), InvalidArgument);
  // A long text is refused at the operator that is one too many.
  std::string text = "causal";
  for (int i = 1; i < deepest_mask; ++i) text += "|causal";
  EXPECT_NO_THROW(parse_mask(text));
  try {
    parse_mask(text + "|causal");
    FAIL();
  } catch (const ExpressionError& error) {
    EXPECT_EQ(error.column(), text.size() + 1);
  }
}

TEST(Mask, PositionsToTheEndOfTheNumbers) {
  const Mask mask = GlobalTokens{2, std::numeric_limits<std::int64_t>::max()};
  const BlockSpans spans = mask.node().spans({0, 0, 2, 9, {}});
  EXPECT_EQ(spans.some, (KeySpans{{2, 3}}));
}

TEST(Expression, NoTextCrashesTheParser) {
  PhiloxStream random(4);
  const std::string letters = "causlwindogbleth()&|~,0123 \t\xc3\x00";
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text;
    for (std::uint32_t n = random.next_below(30); n > 0; --n)
      text += letters[random.next_below(static_cast<std::uint32_t>(letters.size()))];
    try {
      parse_mask(text);
    } catch (const ExpressionError&) {
    }
  }
  EXPECT_THROW(parse_mask(std::string(100000, '~')), ExpressionError);
  EXPECT_THROW(parse_mask(std::string(100000, '(')), ExpressionError);
}

}  // namespace
}  // namespace fovea

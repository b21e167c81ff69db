#include "fovea/attention/mask.h"

#include <gtest/gtest.h>

#include "attention/drawn_masks.h"
#include "fovea/attention/expression.h"

namespace fovea {
namespace {

using testing::check;
using testing::random_mask;

TEST(Mask, SpansAgainstBruteForce) {
  PhiloxStream random(1);
  for (int trial = 0; trial < 12000; ++trial) {
    const bool single = trial % 2 == 0;
    const Mask mask = random_mask(random, single ? 0 : 3);
    const std::int64_t begin = static_cast<std::int64_t>(random.next_below(30)) - 6;
    const QueryBlock block{.batch = random.next_below(2),
                           .query_begin = begin,
                           .query_end = begin + 1 + random.next_below(9),
                           .key_len = random.next_below(21)};
    check(mask, block, single);
    if (HasFatalFailure()) return;
  }
}

// Each query sees exactly the keys between the diagonals.
TEST(Mask, BandsAgainstBruteForce) {
  PhiloxStream random(3);
  int bands = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const Mask mask = random_mask(random, trial % 3);
    const std::int64_t begin = static_cast<std::int64_t>(random.next_below(30)) - 6;
    const QueryBlock block{.batch = random.next_below(2),
                           .query_begin = begin,
                           .query_end = begin + 1 + random.next_below(9),
                           .key_len = random.next_below(21)};
    const std::optional<KeyBand> band = mask.node().band(block);
    if (!band) continue;
    ++bands;
    for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
      for (std::int64_t key = 0; key < block.key_len; ++key) {
        const bool inside = key >= std::max(query + band->first, band->begin) &&
                            key < std::min(query + band->last, band->end);
        ASSERT_EQ(inside, mask.node().allows(Site::at(block.batch, 0, query, key), block)) << to_string(mask);
      }
    }
    EXPECT_GE(band->begin, 0);
    EXPECT_LE(band->end, block.key_len);
  }
  EXPECT_GT(bands, 500);
}

TEST(Mask, ClassifyIsSound) {
  PhiloxStream random(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const Mask mask = random_mask(random, 2);
    const QueryBlock block{.query_begin = 3, .query_end = 9, .key_len = 20};
    const BlockSpans spans = mask.node().spans(block);
    const std::int64_t begin = random.next_below(20),
                       end = begin + 1 + random.next_below(static_cast<std::uint32_t>(20 - begin));
    const TileClass tile = classify(spans, begin, end);
    for (std::int64_t query = 3; query < 9; ++query) {
      for (std::int64_t key = begin; key < end; ++key) {
        const bool seen = mask.node().allows(Site::at(0, 0, query, key), block);
        if (tile == TileClass::empty) ASSERT_FALSE(seen) << to_string(mask);
        if (tile == TileClass::full) ASSERT_TRUE(seen) << to_string(mask);
      }
    }
  }
}

// The definitions by their formulas, independent of spans.
TEST(Mask, Formulas) {
  const QueryBlock block{.batch = 1, .query_end = 1, .key_len = 30};
  const auto sees = [&](const Mask& mask, std::int64_t query, std::int64_t key) {
    return mask.node().allows(Site::at(1, 0, query, key), block);
  };
  const std::vector<std::int64_t> documents{2, 5, 5, 9}, groups{0, 0, 2, 1, 1}, parents{0, 0, 1, 0, 3};
  for (std::int64_t p = 0; p < 12; ++p) {
    for (std::int64_t j = 0; j < 12; ++j) {
      EXPECT_EQ(sees(Prefix{{9, 4}}, p, j), j < 4 || j <= p);
      const bool same = (p >= 2 && p < 5 && j >= 2 && j < 5) || (p >= 5 && p < 9 && j >= 5 && j < 9);
      EXPECT_EQ(sees(Documents{documents}, p, j), same);
      EXPECT_EQ(sees(Chunked{5}, p, j), p / 5 == j / 5);
      EXPECT_EQ(sees(StreamingSinks{3}, p, j), j < 3);
      EXPECT_EQ(sees(Strided{3}, p, j), (p - j) % 3 == 0);
      EXPECT_EQ(sees(Dilated{2, 1, 3}, p, j), j == p || j == p - 3 || j == p - 6 || j == p + 3);
      EXPECT_EQ(sees(Groups{groups}, p, j), p < 5 && j < 5 && groups[j] <= groups[p]);
      EXPECT_EQ(sees(BlockTable{2, 3, {true, false, true, false, true, false}}, p, j),
                p < 4 && j < 6 && (p / 2 + j / 2) % 2 == 0);
    }
  }
  const std::vector<std::vector<std::int64_t>> paths{{0}, {0, 1}, {0, 1, 2}, {0, 3}, {0, 3, 4}};
  for (std::int64_t p = 0; p < 12; ++p) {
    for (std::int64_t j = 0; j < 12; ++j)
      EXPECT_EQ(sees(Tree{parents}, p, j), p < 5 && std::count(paths[p].begin(), paths[p].end(), j) == 1);
  }
  // BigBird: its window, its global blocks, and at most `random` further blocks.
  const BlockTable table =
      block_table({.length = 200, .size = 10, .window = 1, .global = 2, .random = 3, .seed = 5});
  ASSERT_EQ(table.columns, 20);
  for (std::int64_t row = 0; row < 20; ++row) {
    std::int64_t extra = 0;
    for (std::int64_t column = 0; column < 20; ++column) {
      const bool must = std::abs(row - column) <= 1 || row < 2 || column < 2,
                 bit = table.visible[row * 20 + column];
      if (must) EXPECT_TRUE(bit);
      extra += bit && !must;
    }
    EXPECT_LE(extra, 3);
  }
  EXPECT_EQ(to_string(parse_mask("bigbird(200,10,1,2,3,5)")), to_string(Mask(table)));
}

TEST(Mask, RefusesInvalidMasks) {
  EXPECT_THROW(Mask(Chunked{0}), InvalidArgument);
  EXPECT_THROW(Mask(Strided{0}), InvalidArgument);
  EXPECT_THROW(Mask(Dilated{1, 1, 0}), InvalidArgument);
  EXPECT_THROW(Mask(Documents{{3, 2}}), InvalidArgument);
  EXPECT_THROW(Mask(Tree{{0, 2}}), InvalidArgument);
  EXPECT_THROW(Mask(Prefix{}), InvalidArgument);
  EXPECT_THROW(Mask(StreamingSinks{-1}), InvalidArgument);
  EXPECT_THROW(Mask(BlockTable{4, 2, {true, false, true}}), InvalidArgument);
  constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(Mask(BlockTable{huge / 4, 6, std::vector<bool>(6)}), InvalidArgument);
  EXPECT_THROW(Mask(BigBird{.length = std::int64_t{1} << 38}), InvalidArgument);
  EXPECT_THROW(Mask(BigBird{.length = 100, .random = std::int64_t{1} << 60}), InvalidArgument);
  EXPECT_THROW(Mask(Groups{{-1}}), InvalidArgument);
  for (const Mask& empty : {Mask(Documents{}), Mask(Tree{}), Mask(Groups{}), Mask(BlockTable{2, 3, {}})})
    EXPECT_EQ(to_string(parse_mask(to_string(empty))), to_string(empty));
  EXPECT_THROW(parse_mask("chunked(0)"), ExpressionError);
  EXPECT_THROW(parse_mask("blocks(1,2,1)"), ExpressionError);
  EXPECT_THROW(parse_mask("tree(1)"), ExpressionError);
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

TEST(Expression, ErrorsShowWholeCharacters) {
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
  const QueryBlock block{.query_begin = 3, .query_end = 4, .key_len = 9};
  const BlockSpans spans = deep.node().spans(block);
  for (std::int64_t key = 0; key < 9; ++key) {
    EXPECT_EQ(classify(spans, key, key + 1) == TileClass::full,
              deep.node().allows(Site::at(0, 0, 3, key), block));
  }
  EXPECT_THROW(~deep, InvalidArgument);
  EXPECT_THROW(deep & Mask(Causal{}), InvalidArgument);
  EXPECT_THROW(Mask(std::shared_ptr<const MaskNode>()), InvalidArgument);
  // A long text is refused at the first operator over the limit.
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
  const BlockSpans spans = mask.node().spans({.query_end = 2, .key_len = 9});
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

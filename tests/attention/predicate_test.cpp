// Masks given by a function of the site, by a table of bytes, or as spans.
#include <gtest/gtest.h>

#include "attention/drawn_masks.h"
#include "fovea/attention/spec.h"

namespace fovea {
namespace {

using testing::check;
using testing::random_mask;

// Checks every block of queries of every head and entry, from before the sites to behind them.
void check_all(const Mask& mask, const Predicate::Sites& sites, bool tight) {
  for (std::int64_t batch = 0; batch < sites.batch; ++batch) {
    for (std::int64_t head = 0; head < sites.heads; ++head) {
      for (std::int64_t begin = sites.query_begin - 1; begin < sites.query_end + 1; ++begin) {
        for (std::int64_t end = begin + 1; end < sites.query_end + 2; ++end)
          check(mask, {batch, head, begin, end, sites.key_len}, tight);
      }
    }
  }
}

// Checks that the mask gives the answer of `visible` for every site, and hides everything outside the sites.
void expect_says(const Predicate& predicate, const Predicate::Visible& visible) {
  const Predicate::Sites& s = predicate.sites();
  const Mask mask = predicate;
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for (std::int64_t head = 0; head < s.heads; ++head) {
      for (std::int64_t query = s.query_begin - 2; query < s.query_end + 2; ++query) {
        const bool inside = query >= s.query_begin && query < s.query_end;
        for (std::int64_t key = 0; key < s.key_len; ++key) {
          const Site site = Site::at(batch, head, query, key);
          ASSERT_EQ(mask.node().allows(site, {}), inside && visible(site))
              << "batch " << batch << " head " << head << " query " << query << " key " << key;
        }
      }
    }
  }
}

TEST(Predicate, IsAskedOnceForEachSite) {
  std::int64_t asked = 0;
  const auto visible = [](const Site& at) {
    return (at.batch + at.query + at.key) % (3 + at.head) != 0 && (at.head != 2 || at.key < at.query);
  };
  const Predicate::Sites sites{.batch = 2, .heads = 3, .query_begin = -1, .query_end = 6, .key_len = 9};
  const Predicate counted("counted", sites, [&](const Site& at) {
    ++asked;
    return visible(at);
  });
  EXPECT_EQ(asked, 2 * 3 * 7 * 9);
  check_all(counted, sites, true);
  expect_says(counted, visible);
  EXPECT_EQ(asked, 2 * 3 * 7 * 9);
}

// Heads differ, also inside an expression. The spans must be sound for each head.
TEST(Predicate, ByHeadInsideExpressions) {
  PhiloxStream random(5);
  const Predicate::Sites sites{.batch = 2, .heads = 3, .query_begin = -2, .query_end = 5, .key_len = 12};
  for (int trial = 0; trial < 60; ++trial) {
    const std::uint32_t among = 2 + random.next_below(4);
    const Predicate mine("mine", sites, [&](const Site&) { return random.next_below(among) == 0; });
    const Mask other = random_mask(random, 1),
               masks[] = {mine & other, mine | other, ~Mask(mine), other & ~(mine | Causal{})};
    check_all(masks[trial % 4], sites, false);
    if (HasFatalFailure()) return;
  }
}

TEST(Predicate, SaysWhetherHeadsDiffer) {
  const auto visible = [](const Site&) { return true; };
  const Mask by_head = Predicate("a", {.heads = 2, .query_end = 3, .key_len = 4}, visible),
             shared = Predicate("b", {.query_end = 3, .key_len = 4}, visible);
  for (const Mask& mask : {by_head, by_head & Causal{}, Causal{} | by_head, ~by_head, shared & ~by_head})
    EXPECT_TRUE(mask.node().by_head()) << to_string(mask);
  for (const Mask& mask : {shared, shared & Causal{}, ~shared, Mask(StreamingSinks{}), Mask(Everything{})})
    EXPECT_FALSE(mask.node().by_head()) << to_string(mask);
}

// A mask type in user code, defined entirely in its header, that reads the head.
struct EverySecondHead {
  bool allows(const Site& site) const { return site.head % 2 == 0; }
  BlockSpans spans(const QueryBlock& block) const {
    if (block.head % 2 != 0 || block.key_len == 0) return {};
    return {{{0, block.key_len}}, {{0, block.key_len}}};
  }
  std::string print() const { return "every-second-head"; }
  void validate() const {}
  bool by_head() const { return true; }
};

TEST(Predicate, ADefinitionMayReadTheHead) {
  check_all(EverySecondHead{}, {.heads = 3, .query_end = 2, .key_len = 5}, true);
  EXPECT_TRUE((Causal{} & EverySecondHead{}).node().by_head());
}

// Tables with all ways to share and to reverse axes, with any byte values, and with lengths around a word.
TEST(Predicate, ATableOfBytes) {
  PhiloxStream random(6);
  for (int trial = 0; trial < 400; ++trial) {
    const Predicate::Sites sites{.batch = 1 + random.next_below(3),
                                 .heads = 1 + random.next_below(3),
                                 .query_begin = static_cast<std::int64_t>(random.next_below(7)) - 3,
                                 .query_end = 4 + random.next_below(4),
                                 .key_len = random.next_below(40)};
    const std::int64_t sizes[] = {sites.batch, sites.heads, sites.query_end - sites.query_begin,
                                  sites.key_len};
    // Long runs, single keys, and rows that are all ones or all zeros.
    const std::uint32_t turn = 1 + random.next_below(12);
    const std::int64_t count = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
    bool seen = random.next_below(2) == 1;
    for (std::uint8_t& byte : bytes) {
      if (random.next_below(turn) == 0) seen = !seen;
      byte = seen ? static_cast<std::uint8_t>(1 + random.next_below(255)) : 0;
    }
    // Axes in any order, each possibly shared or reversed.
    std::size_t order[] = {0, 1, 2, 3};
    for (std::uint32_t n = trial % 3 == 0 ? 0 : 3; n > 0; --n)
      std::swap(order[n], order[random.next_below(n + 1)]);
    std::int64_t strides[4], begin = 0, next = 1;
    for (std::size_t n = 4; n-- > 0;) {
      const std::size_t axis = order[n];
      strides[axis] = next;
      next *= sizes[axis];
      const std::uint32_t way = random.next_below(4);
      if (way == 0 && axis != 3) strides[axis] = 0;
      if (way == 1 && sizes[axis] > 0) {
        begin += strides[axis] * (sizes[axis] - 1);
        strides[axis] = -strides[axis];
      }
    }
    const Predicate table("table", sites, bytes.data() + begin,
                          {strides[0], strides[1], strides[2], strides[3]});
    expect_says(table, [&](const Site& at) {
      return bytes[static_cast<std::size_t>(begin + at.batch * strides[0] + at.head * strides[1] +
                                            (at.query - sites.query_begin) * strides[2] +
                                            at.key * strides[3])] != 0;
    });
    EXPECT_EQ(table.by_head(), sites.heads > 1 && strides[1] != 0);
    // Rows of many runs are stored as bits; the spans of several queries are then coarse.
    bool bits = false;
    for (std::int64_t query = sites.query_begin; query < sites.query_end; ++query) {
      for (std::int64_t head = 0; head < sites.batch * sites.heads; ++head)
        bits = bits || table.row(head / sites.heads, head % sites.heads, query)->by_bits();
    }
    check_all(table, sites, !bits);
    if (HasFatalFailure()) return;
  }
}

// The padding of keys is one row an entry, however many heads and queries use it.
TEST(Predicate, SharedRowsAreKeptOnce) {
  const std::uint8_t bytes[] = {1, 1, 0, 1, 0, 0};
  const Predicate padding("padding", {.batch = 2, .heads = 5, .query_end = 1 << 20, .key_len = 3}, bytes,
                          {.batch = 3});
  EXPECT_EQ(padding.row(1, 0, 0), padding.row(1, 4, (1 << 20) - 1));
  EXPECT_NE(padding.row(0, 0, 0), padding.row(1, 0, 0));
  EXPECT_EQ(padding.row(0, 2, 7)->spans(), (KeySpans{{0, 2}}));
  EXPECT_EQ(padding.row(1, 2, 7)->spans(), (KeySpans{{0, 1}}));
}

// A row of many spans is stored as one bit a key. A block of such rows has few spans, because a kernel makes
// a tile of each.
TEST(Predicate, ManySpansBecomeBits) {
  constexpr std::int64_t length = 1024;
  const Predicate::Sites sites{.query_end = length, .key_len = length};
  const auto board = [](const Site& at) { return ((at.query ^ at.key) & 1) == 0; };
  const auto stripes = [](const Site& at) { return at.key % 3 == 0; };
  const auto halves = [](const Site& at) { return at.key < 300 ? at.key % 2 == 0 : at.key < 700; };
  const auto runs = [](const Site& at) { return at.key / 100 % 2 == at.query % 2; };
  for (const Predicate::Visible& visible : {Predicate::Visible(board), Predicate::Visible(stripes),
                                            Predicate::Visible(halves), Predicate::Visible(runs)}) {
    const Predicate mine("mine", sites, visible);
    const Mask mask = mine;
    for (std::int64_t query : {0, 1, 500}) {
      const BlockSpans block = mask.node().spans({0, 0, query, query + 48, length});
      EXPECT_LE(block.some.size(), length / 33);
      EXPECT_LE(block.all.size(), length / 33);
      check(mask, {0, 0, query, query + 48, length}, false);
      check(mask, {0, 0, query, query + 1, length}, true);
      check(mask, {0, 0, query, query + 48, length - 5}, false);
      check(mask, {0, 0, query, query + 1, length - 5}, true);
      check(mask, {0, 0, query, query + 1, length + 70}, true);
      check(mask, {0, 0, length - 3, length + 3, length}, false);
    }
    expect_says(Predicate("few", {.query_end = 3, .key_len = length}, visible), visible);
  }
  const Predicate dense("dense", sites, board), sparse("sparse", sites, runs);
  EXPECT_TRUE(dense.row(0, 0, 7)->by_bits());
  EXPECT_FALSE(sparse.row(0, 0, 7)->by_bits());
  // Keys that all rows see form whole spans.
  const Predicate half("half", sites, halves);
  EXPECT_EQ(Mask(half).node().spans({0, 0, 0, 48, length}).all, (KeySpans{{300, 700}}));
  EXPECT_EQ(Mask(half).node().spans({0, 0, 0, 48, length}).some, (KeySpans{{0, 700}}));
}

// The same row in every input form, at lengths around a word, cut or not.
TEST(Predicate, RowsOfBitsAndOfSpansAgree) {
  PhiloxStream random(8);
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t length = random.next_below(300);
    const std::uint32_t among = 1 + random.next_below(20);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length));
    bool seen = false;
    for (std::uint8_t& byte : bytes) {
      if (random.next_below(among) == 0) seen = !seen;
      byte = seen ? 255 : 0;
    }
    const KeyRow row(bytes.data(), length);
    const KeySpans spans = row.spans();
    EXPECT_EQ(spans, spans_of(bytes.data(), length));
    EXPECT_EQ(KeyRow(spans, length).spans(), spans);
    EXPECT_EQ(KeyRow(spans, length).by_bits(), row.by_bits());
    EXPECT_EQ(row.by_bits(),
              static_cast<std::int64_t>(spans.size()) > std::max<std::int64_t>(6, length / 128));
    for (std::int64_t key = -1; key <= length + 64; ++key) {
      const bool wanted = key >= 0 && key < length && bytes[static_cast<std::size_t>(key)] != 0;
      ASSERT_EQ(row.sees(key), wanted) << key << " of " << length;
      if (key >= 0) {
        ASSERT_EQ((row.word(key / 64) >> key % 64 & 1) != 0, wanted) << key << " of " << length;
      }
    }
  }
}

TEST(Predicate, AsSpans) {
  const Predicate::Sites sites{.batch = 2, .heads = 2, .query_end = 1, .key_len = 5};
  const Predicate mine("mine", sites, {{{0, 2}, {3, 5}}, {}, {{1, 2}}, {{4, 5}}});
  const bool wanted[2][2][5] = {{{true, true, false, true, true}, {}},
                                {{false, true, false, false, false}, {false, false, false, false, true}}};
  expect_says(mine, [&](const Site& at) { return wanted[at.batch][at.head][at.key]; });
  check_all(mine, sites, true);
}

TEST(Predicate, RefusesInvalidArguments) {
  const Predicate mine("mine", {.batch = 2, .heads = 3, .query_end = 4, .key_len = 9},
                       [](const Site&) { return true; });
  const auto fits = [&](std::int64_t batch, std::int64_t heads, std::int64_t key_len) {
    try {
      (Causal{} & ~Mask(mine))
          .node()
          .validate({.batch = batch, .num_query_heads = heads, .num_kv_heads = 1, .key_len = key_len});
      return true;
    } catch (const InvalidArgument&) {
      return false;
    }
  };
  EXPECT_TRUE(fits(2, 3, 9));
  EXPECT_TRUE(fits(2, 3, 8));
  EXPECT_FALSE(fits(3, 3, 9));
  EXPECT_FALSE(fits(2, 3, 10));
  EXPECT_FALSE(fits(2, 1, 9));
  EXPECT_FALSE(fits(2, 6, 9));
  const std::vector<KeySpans> one(1);
  EXPECT_THROW(Predicate("bad", {.query_end = 1, .key_len = 5}, {{{0, 2}, {1, 5}}}), InvalidArgument);
  EXPECT_THROW(Predicate("bad", {.query_end = 1, .key_len = 5}, {{{0, 6}}}), InvalidArgument);
  EXPECT_THROW(Predicate("bad", {.heads = 2, .query_end = 1, .key_len = 5}, one), InvalidArgument);
  EXPECT_THROW(Predicate("bad", {.heads = 0, .query_end = 1, .key_len = 5}, one), InvalidArgument);
  EXPECT_THROW(Predicate("bad", {.query_end = 1, .key_len = 5}, nullptr, {}), InvalidArgument);
  constexpr std::int64_t huge = std::int64_t{1} << 60, large = std::int64_t{1} << 25;
  EXPECT_THROW(Predicate("huge", {.batch = huge, .query_end = 16}, one), InvalidArgument);
  EXPECT_THROW(Predicate("huge", {.batch = large, .heads = large, .query_end = large}, one), InvalidArgument);
}

}  // namespace
}  // namespace fovea

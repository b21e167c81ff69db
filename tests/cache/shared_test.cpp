// SharedVector: copies that share everything until one of them is written.
#include "cache/shared.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace fovea::cache {
namespace {

// Three elements a leaf, so that a few thousand of them are a tree of three levels.
using Vector = SharedVector<int, 3>;

struct Pair {
  Vector shared;
  std::vector<int> plain;
};

void expect_equal(const Pair& pair) {
  ASSERT_EQ(pair.shared.size(), std::ssize(pair.plain));
  for (std::int64_t n = 0; n < pair.shared.size(); ++n)
    ASSERT_EQ(pair.shared[n], pair.plain[static_cast<std::size_t>(n)]) << n;
}

TEST(SharedVector, IsAPlainVectorUnderRandomForksAppendsCutsAndWrites) {
  std::mt19937_64 random(7);
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  std::vector<Pair> pairs(4);
  int next = 0;
  for (int step = 0; step < 3000; ++step) {
    Pair& pair = pairs[static_cast<std::size_t>(below(4))];
    const std::int64_t size = pair.shared.size();
    switch (below(5)) {
      case 0:
        pair = pairs[static_cast<std::size_t>(below(4))];
        break;
      case 1:
      case 2:
        for (std::int64_t n = below(step % 10 == 0 ? 4000 : 7); n > 0; --n) {
          pair.shared.push_back(++next);
          pair.plain.push_back(next);
        }
        break;
      case 3: {
        const std::int64_t kept = std::max<std::int64_t>(0, size - below(step % 50 == 0 ? size + 1 : 9));
        pair.shared.shrink(kept);
        pair.plain.resize(static_cast<std::size_t>(kept));
        break;
      }
      default:
        if (size == 0) break;
        const std::int64_t n = below(size);
        pair.shared.own(n) = pair.plain[static_cast<std::size_t>(n)] = ++next;
        EXPECT_TRUE(pair.shared.is_own(n));
    }
    if (step % 20 == 0) {
      for (const Pair& one : pairs) expect_equal(one);
    }
  }
  for (const Pair& one : pairs) expect_equal(one);
}

TEST(SharedVector, SharesWhatWasNotWritten) {
  Vector first;
  for (int n = 0; n < 1000; ++n) first.push_back(n);
  EXPECT_TRUE(first.is_own(0));
  Vector second = first;
  EXPECT_FALSE(first.is_own(0));
  second.own(999) = -1;
  EXPECT_TRUE(second.is_own(999));
  EXPECT_FALSE(second.is_own(0));  // far from the element that was written
  EXPECT_EQ(&first[0], &second[0]);
  EXPECT_EQ(first[999], 999);
  first = {};
  EXPECT_TRUE(second.is_own(0));
}

// KvCache::commit takes back what it appended when memory runs out, and must not need memory for that.
TEST(SharedVector, CopiesNoLeafThatACutLeavesWhole) {
  for (const int size : {3, 96, 999, 3072}) {
    Vector first;
    for (int n = 0; n < size; ++n) first.push_back(n);
    Vector second = first;
    for (int n = 0; n < 100; ++n) second.push_back(-n);
    second.shrink(size);
    EXPECT_EQ(second.size(), size);
    EXPECT_EQ(&first[size - 1], &second[size - 1]) << size;
    second.push_back(7);
    EXPECT_EQ(second[size], 7);
    EXPECT_EQ(second[size - 1], size - 1);
  }
}

}  // namespace
}  // namespace fovea::cache

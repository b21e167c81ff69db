#include "fovea/text/word_features.h"

#include <gtest/gtest.h>

#include <set>

#include "fovea/core/error.h"

namespace fovea::text {
namespace {

using Ids = std::vector<std::int32_t>;

// Only whole words and shapes, in so many buckets that no two share one.
Ids plain(std::string_view word) {
  return word_features(word, {.buckets = 1 << 30, .longest = 0});
}

TEST(WordFeatures, WordIsLowerCased) {
  EXPECT_EQ(plain("Paris")[1], plain("PARIS")[1]);
  EXPECT_EQ(plain("Élan")[1], plain("élan")[1]);
  EXPECT_NE(plain("Paris")[1], plain("Parts")[1]);
}

TEST(WordFeatures, Shape) {
  EXPECT_EQ(plain("Paris")[0], plain("Élan")[0]);
  EXPECT_EQ(plain("U.S.")[0], plain("A.B.")[0]);
  EXPECT_EQ(plain("1961")[0], plain("2026")[0]);
  EXPECT_EQ(plain("12345")[0], plain("1961")[0]) << "four digits or more";
  std::set<std::int32_t> shapes;
  for (const char* word : {"paris", "Paris", "PARIS", "McAdam", "U.S.", "1", "19", "1961", "x-ray", ","})
    shapes.insert(plain(word)[0]);
  EXPECT_EQ(shapes.size(), 10u);
}

TEST(WordFeatures, NgramsAreOfCodePoints) {
  // "<ab>" has two 3-grams. "<éa>" has two as well, although it has one byte more.
  EXPECT_EQ(word_features("ab", {.shortest = 3, .longest = 3}).size(), 4u);
  EXPECT_EQ(word_features("éa", {.shortest = 3, .longest = 3}).size(), 4u);
  EXPECT_EQ(word_features("abcd", {.shortest = 2, .longest = 4}).size(), 2u + 5u + 4u + 3u);
  EXPECT_EQ(word_features("a", {.shortest = 4, .longest = 5}).size(), 2u);
}

TEST(WordFeatures, WordsOfOneEndingShareIt) {
  const WordFeatureOptions options{.buckets = 1 << 30, .shortest = 4, .longest = 4};
  const Ids a = word_features("Hartville", options), b = word_features("Bonville", options);
  EXPECT_EQ(a.back(), b.back());
  EXPECT_NE(a[2], b[2]);
  EXPECT_EQ(word_features("1961", options)[3], word_features("1987", options)[3]) << "digits count as 0";
}

TEST(WordFeatures, RefusesWrongArguments) {
  EXPECT_THROW(word_features(""), InvalidArgument);
  EXPECT_THROW(word_features("caf\xE9"), InvalidArgument);
  EXPECT_THROW(word_features("a", {.buckets = 0}), InvalidArgument);
  EXPECT_THROW(word_features("a", {.shortest = 0}), InvalidArgument);
  EXPECT_THROW(word_features("a", {.shortest = 5, .longest = 4}), InvalidArgument);
  for (const std::int32_t id : word_features("antidisestablishmentarianism", {.buckets = 7})) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 7);
  }
}

}  // namespace
}  // namespace fovea::text

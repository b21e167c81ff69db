#include "fovea/inspect/graph.h"

#include <gtest/gtest.h>

#include "fovea/core/error.h"
#include "inspect/samples.h"

namespace fovea::inspect {
namespace {

AttentionMap words(const std::vector<std::string>& queries, const std::vector<std::string>& keys) {
  AttentionMap map = samples::map(2, static_cast<int>(queries.size()), static_cast<int>(keys.size()));
  map.query_tokens = queries;
  map.key_tokens = keys;
  return map;
}

TEST(FindWord, WholeWordsAmongQueriesBeforeKeys) {
  using Places = std::vector<PickedWord>;
  const AttentionMap plain = words({"The", "cat", "sat", "on", "the", "sat"}, {"le", "chat"});
  EXPECT_EQ(find_word(plain, "sat"), (Places{{Side::query, 2}, {Side::query, 5}}));
  EXPECT_EQ(find_word(plain, "chat"), (Places{{Side::key, 1}}));
  EXPECT_EQ(find_word(plain, "dog"), Places{});
  EXPECT_EQ(find_word(plain, ""), Places{});
  const AttentionMap pieces =
      words({"▁The", "▁m", "at", "▁at", "▁o", "▁n", "."}, {"an@@", "other", "play", "##ing"});
  EXPECT_EQ(find_word(pieces, "mat"), (Places{{Side::query, 1, 2}}));
  EXPECT_EQ(find_word(pieces, "at"), (Places{{Side::query, 2}, {Side::query, 3}}));
  EXPECT_EQ(find_word(pieces, "on"), Places{}) << "two words";
  EXPECT_EQ(find_word(pieces, "another"), (Places{{Side::key, 0, 2}}));
  EXPECT_EQ(find_word(pieces, "playing"), (Places{{Side::key, 2, 2}}));
  EXPECT_EQ(text_of(pieces, {Side::query, 1, 2}), "mat");
}

TEST(Arcs, AreTheWeightsOfTheirWordWeakestFirst) {
  const AttentionMap map = samples::map(3, 4, 5);
  const PickedWord key{Side::key, 1, 2};
  const std::vector<Arc> arcs = arcs_of(map, {0, 2}, &key, 0.25F);
  std::size_t expected = 0;
  for (const std::size_t head : {0U, 2U}) {
    for (std::size_t query = 0; query < 4; ++query) {
      for (const std::size_t at : {1U, 2U}) expected += map.weights[(head * 4 + query) * 5 + at] >= 0.25F;
    }
  }
  EXPECT_EQ(arcs.size(), expected);
  for (std::size_t i = 0; i < arcs.size(); ++i) {
    EXPECT_EQ(arcs[i].weight,
              map.weights[(static_cast<std::size_t>(arcs[i].head) * 4 + arcs[i].query) * 5 + arcs[i].key]);
    if (i > 0) {
      EXPECT_LE(arcs[i - 1].weight, arcs[i].weight);
    }
  }
}

TEST(Shares, MeanOverPiecesOfAQuerySumOverPiecesOfAKey) {
  AttentionMap map = samples::map(1, 2, 2);
  map.weights = {0.25F, 0.75F, 0.5F, 0.5F};
  EXPECT_EQ(shares_of(map, {}, {Side::query, 0, 2}), (std::vector<float>{0.375F, 0.625F}));
  EXPECT_EQ(shares_of(map, {}, {Side::key, 0, 2}), (std::vector<float>{1, 1}));
  EXPECT_THROW(shares_of(map, {}, {Side::key, 1, 2}), InvalidArgument);
  EXPECT_THROW(shares_of(map, {1}, {Side::key, 0}), InvalidArgument);
  EXPECT_THROW(shares_of(map, {}, {Side::key, static_cast<std::size_t>(-1), 2}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::inspect

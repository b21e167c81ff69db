#include "fovea/train/batching.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fovea/core/philox.h"

namespace fovea::train {
namespace {

std::vector<Example> examples_of(std::size_t count) {
  PhiloxStream random(11, 0);
  std::vector<Example> examples(count);
  for (Example& example : examples) {
    example.source.resize(1 + random.next_below(40), 5);
    example.target.resize(1 + random.next_below(40), 6);
  }
  return examples;
}

std::size_t widest(const std::vector<Example>& examples, const std::vector<std::size_t>& batch) {
  std::size_t width = 0;
  for (const std::size_t i : batch)
    width = std::max({width, examples[i].source.size() + 1, examples[i].target.size() + 1});
  return width;
}

TEST(Batching, EveryPairOnceAnEpochWithinTheLimit) {
  const auto examples = examples_of(1000);
  for (const std::size_t group : {std::size_t{1}, std::size_t{128}, std::size_t{20000}}) {
    std::vector<int> seen(examples.size(), 0);
    for (const auto& batch : make_batches(examples, 200, 1, 0, group)) {
      ASSERT_FALSE(batch.empty());
      EXPECT_LE(batch.size() * widest(examples, batch), 200u);
      for (const std::size_t i : batch) ++seen[i];
    }
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; })) << "group " << group;
  }
}

TEST(ShuffledBatches, EachExampleOnceAnEpochInANewOrder) {
  ShuffledBatches batches(103, 10, 7);
  std::vector<std::vector<std::size_t>> epochs;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::size_t> seen;
    for (int i = 0; i < 10; ++i) {
      const auto batch = batches(epoch * 10 + i + 1);
      ASSERT_EQ(batch.size(), 10u);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    epochs.push_back(seen);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
    EXPECT_LT(seen.back(), 103u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  // A batch is a function of seed and update alone: asked in reverse order, the batches are the same.
  ShuffledBatches again(103, 10, 7), other(103, 10, 8);
  const auto last = again(20), first = again(1);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), epochs[0].begin()));
  EXPECT_NE(std::vector(first.begin(), first.end()), std::vector(other(1).begin(), other(1).end()));
  EXPECT_EQ(last.size(), 10u);
  EXPECT_EQ(ShuffledBatches(3, 10, 1)(5).size(), 3u);
  EXPECT_THROW(ShuffledBatches(0, 10, 1), InvalidArgument);
  EXPECT_THROW(ShuffledBatches(3, 0, 1), InvalidArgument);
  EXPECT_THROW(ShuffledBatches(3, 1, 1)(0), InvalidArgument);
}

TEST(Batching, AnExampleBeyondTheLimitIsABatchOfItsOwn) {
  const auto examples = examples_of(50);
  std::size_t seen = 0;
  for (const auto& batch : make_batches(examples, 10, 1, 0)) {
    EXPECT_TRUE(batch.size() == 1 || batch.size() * widest(examples, batch) <= 10);
    seen += batch.size();
  }
  EXPECT_EQ(seen, examples.size());
}

TEST(Batching, AFunctionOfSeedAndEpoch) {
  const auto examples = examples_of(300);
  EXPECT_EQ(make_batches(examples, 200, 1, 4), make_batches(examples, 200, 1, 4));
  EXPECT_NE(make_batches(examples, 200, 1, 4), make_batches(examples, 200, 1, 5));
  EXPECT_NE(make_batches(examples, 200, 1, 4), make_batches(examples, 200, 2, 4));
}

TEST(Batching, SortingKeepsPaddingSmall) {
  const auto examples = examples_of(2000);
  // `unsorted` is the padding of batches of the same sizes that are filled in the order of the corpus.
  std::size_t next = 0, sorted = 0, unsorted = 0;
  for (const auto& batch : make_batches(examples, 400, 1, 0)) {
    std::size_t longest = 0, longest_unsorted = 0;
    for (std::size_t row = 0; row < batch.size(); ++row) {
      longest = std::max(longest, examples[batch[row]].source.size());
      longest_unsorted = std::max(longest_unsorted, examples[next + row].source.size());
    }
    for (std::size_t row = 0; row < batch.size(); ++row) {
      sorted += longest - examples[batch[row]].source.size();
      unsorted += longest_unsorted - examples[next++].source.size();
    }
  }
  EXPECT_LT(sorted * 5, unsorted);
}

TEST(BatchesInOrder, TheLastOneIsShorter) {
  using Batches = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(batches_in_order(5, 2), (Batches{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(batches_in_order(4, 4), (Batches{{0, 1, 2, 3}}));
  EXPECT_TRUE(batches_in_order(0, 3).empty());
  EXPECT_THROW(batches_in_order(3, 0), InvalidArgument);
}

TEST(Batching, PaddingIsMarkedByLengthsAndIgnoredTargets) {
  const std::vector<Example> examples{{{7, 8, 9}, {4}}, {{5}, {6, 7}}};
  const models::Batch batch = gather_batch(examples, {0, 1});
  EXPECT_EQ(batch.source, (std::vector<std::int32_t>{7, 8, 9, 3, 5, 3, 0, 0}));
  EXPECT_EQ(batch.source_lengths, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(batch.target_input, (std::vector<std::int32_t>{2, 4, 0, 2, 6, 7}));
  EXPECT_EQ(batch.target_output, (std::vector<std::int32_t>{4, 3, -1, 6, 7, 3}));
  EXPECT_EQ(batch.target_lengths, (std::vector<std::int64_t>{2, 3}));
}

}  // namespace
}  // namespace fovea::train

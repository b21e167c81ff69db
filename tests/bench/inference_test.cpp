// The rows of `fovea bench translate` and `fovea bench generate`: what they count, not how fast they are.
#include "bench/inference.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "fovea/core/error.h"

namespace fovea::testing {
namespace {

using autograd::WeightType;
using bench::InferenceBench;
using bench::InferenceRow;

double sum_of_parts(const InferenceRow& row) {
  double sum = 0.0;
  for (const auto& [name, share] : row.parts) sum += share;
  return sum;
}

TEST(InferenceBench, TranslationHasARowForEachCombination) {
  const InferenceBench bench{.models = {"transformer", "rnn"},
                             .threads = {1, 2},
                             .weights = {WeightType::f32, WeightType::int8},
                             .widths = {1, 3},
                             .rounds = 1,
                             .vocabulary = 64,
                             .sentences = 5,
                             .batch = 2};
  std::set<std::tuple<std::string, WeightType, std::int64_t, int>> seen;
  bench::measure_translation(bench, [&](const InferenceRow& row) {
    seen.insert({row.model, row.weights, row.width, row.threads});
    EXPECT_GT(row.seconds, 0.0);
    EXPECT_NEAR(row.per_second * row.seconds, 5.0, 1e-9);
    // Three batches, each as long as its longest sentence of 8 to 20 tokens.
    const double tokens = row.tokens_per_second * row.seconds;
    EXPECT_GE(tokens, 5 * 8 - 1e-6);
    EXPECT_LE(tokens, 5 * 20 + 1e-6);
    EXPECT_NEAR(sum_of_parts(row), 1.0, 1e-6);
    EXPECT_GT(row.share, 0.0);
  });
  EXPECT_EQ(seen.size(), 16u);
}

TEST(InferenceBench, GenerationWritesTheTokensOfEachText) {
  const InferenceBench bench{
      .models = {"characters"}, .threads = {1}, .widths = {1, 3}, .rounds = 1, .prompt = 5, .tokens = 7};
  std::int64_t rows = 0;
  bench::measure_generation(bench, [&](const InferenceRow& row) {
    ++rows;
    EXPECT_NEAR(row.tokens_per_second * row.seconds, 7.0 * static_cast<double>(row.width), 1e-9);
    EXPECT_NEAR(row.per_second * row.seconds, static_cast<double>(row.width), 1e-9);
    EXPECT_NEAR(sum_of_parts(row), 1.0, 1e-6);
  });
  EXPECT_EQ(rows, 2);
}

TEST(InferenceBench, UnknownModelsAreRefused) {
  EXPECT_THROW(bench::measure_translation({.models = {"small"}}, {}), InvalidArgument);
  EXPECT_THROW(bench::measure_generation({.models = {"rnn"}}, {}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::testing

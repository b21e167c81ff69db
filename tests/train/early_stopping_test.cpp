// Sequences of validations, written by hand.
#include "train/early_stopping.h"

#include <gtest/gtest.h>

namespace fovea::train {
namespace {

struct Step {
  double bleu, cross_entropy;
};

struct Outcome {
  int stopped_at = -1;  ///< index of the validation at which patience ran out
  int best = -1;
};

Outcome run(const std::vector<Step>& steps, int patience, Metric metric = Metric::bleu) {
  std::vector<Validation> curve;
  Outcome outcome;
  int without = 0;
  for (const Step& step : steps) {
    Validation v{.bleu = step.bleu};
    v.cross_entropy = step.cross_entropy;
    without = count_validation(curve, without, metric, v);
    if (v.improved) outcome.best = static_cast<int>(curve.size());
    curve.push_back(v);
    if (without >= patience) {
      outcome.stopped_at = static_cast<int>(curve.size()) - 1;
      break;
    }
  }
  return outcome;
}

// A Transformer at the beginning of training: BLEU is 0.00, with noise in the third decimal, while the loss
// falls.
TEST(EarlyStopping, ContinuesWhileTheLossFalls) {
  std::vector<Step> steps;
  for (int i = 0; i < 50; ++i) steps.push_back({i == 0 ? 0.004 : 0.002, 7.0 - 0.05 * i});
  EXPECT_EQ(run(steps, 10).stopped_at, -1);
  EXPECT_EQ(run(steps, 10).best, 49) << "of equals by the metric, the lower loss";
  EXPECT_EQ(run(steps, 1).stopped_at, -1);
}

TEST(EarlyStopping, StopsWhenNeitherImproves) {
  // BLEU and loss are best at 2; then both are worse, or equal.
  const std::vector<Step> steps{{0, 5}, {10, 4}, {20, 3}, {20, 3}, {19, 3.1}, {20, 3.2}, {21, 3}, {21, 3.1}};
  EXPECT_EQ(run(steps, 3).stopped_at, 5);
  EXPECT_EQ(run(steps, 3).best, 2);
  EXPECT_EQ(run(steps, 4).stopped_at, -1) << "6 improves BLEU, and patience starts again";
  EXPECT_EQ(run(steps, 4).best, 6);
}

TEST(EarlyStopping, EitherImprovementStartsPatienceAgain) {
  // The loss rises while BLEU improves at every second validation; then only the loss improves, below all
  // before.
  const std::vector<Step> steps{{10, 3},   {11, 3.1}, {11, 3.2}, {12, 3.3}, {12, 3.4},
                                {12, 2.9}, {9, 2.8},  {9, 2.85}, {9, 2.85}};
  EXPECT_EQ(run(steps, 2).stopped_at, 8);
  EXPECT_EQ(run(steps, 2).best, 5);
  // A loss below the last one, but not below all, is no improvement.
  EXPECT_EQ(run({{10, 3}, {9, 4}, {9, 3.9}, {9, 3.8}}, 3).stopped_at, 3);
}

TEST(EarlyStopping, ByPerplexityBleuIsIgnored) {
  const std::vector<Step> steps{{0, 3}, {10, 3.1}, {20, 3.2}, {30, 3.3}};
  EXPECT_EQ(run(steps, 3, Metric::perplexity).stopped_at, 3);
  EXPECT_EQ(run(steps, 3, Metric::perplexity).best, 0);
  EXPECT_EQ(run(steps, 3, Metric::bleu).stopped_at, -1);
}

}  // namespace
}  // namespace fovea::train

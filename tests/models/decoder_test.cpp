#include "fovea/models/decoder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "fovea/nn/optimizer.h"

namespace fovea::models {
namespace {

struct Small {
  nn::ParameterSet set{7};
  Decoder decoder{set, "d", {.vocabulary = 9, .dim = 12, .feed_forward = 16, .heads = 3, .layers = 2}};
  Tensor memory = set.normal("memory", {3, 5, 12}, 1.0f).value;
};

TEST(Decoder, KeptKeysGiveTheSameTokensAsComputingAllAgain) {
  Small small;
  const std::vector<std::int64_t> lengths{5, 2, 4};
  const DecoderMemory memory{small.memory, lengths};
  const Written kept = small.decoder.greedy(memory, 12), again = small.decoder.greedy(memory, 12, Reuse::off);
  EXPECT_EQ(kept.ids, again.ids);
  ASSERT_EQ(kept.read.size(), 2u);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (std::size_t b = 0; b < 3; ++b) {
      for (std::size_t step = 0; step < kept.ids[b].size(); ++step) {
        const auto row = kept.row(layer, b, step), other = again.row(layer, b, step);
        ASSERT_EQ(row.size(), 5u);
        for (std::size_t j = 0; j < 5; ++j) {
          EXPECT_NEAR(row[j], other[j], 1e-5);
          if (static_cast<std::int64_t>(j) >= lengths[b]) {
            EXPECT_EQ(row[j], 0.0f);
          }
        }
        EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0f), 1.0f, 1e-5);
      }
    }
  }
  EXPECT_THROW(kept.row(2, 0, 0), InvalidArgument);
  EXPECT_THROW(kept.row(0, 0, 14), InvalidArgument);
}

// The other sequences of a batch do not change a sequence's loss: neither by their padding nor by their
// memory.
TEST(Decoder, LossIsAScaledSumOverTokensAndSeesNoPadding) {
  Small small;
  const std::vector<std::vector<std::int32_t>> three{{4, 5}, {}, {8, 7, 6, 5, 4}};
  nn::Context context;
  const float mean = Decoder::mean_scale(three);
  EXPECT_FLOAT_EQ(mean, 0.1f);
  const double together = *small.decoder.loss(context, three, {small.memory}, {.reduction = {.scale = mean}})
                               .value()
                               .data<float>();
  double sum = 0.0;
  for (std::int64_t b = 0; b < 3; ++b) {
    const Tensor own = Tensor::copy_of(small.memory.view().slice(0, b, 1));
    autograd::CrossEntropyStats stats;
    small.decoder.loss(context, std::span(three).subspan(static_cast<std::size_t>(b), 1), {own}, {}, &stats);
    EXPECT_EQ(stats.tokens, static_cast<std::int64_t>(three[static_cast<std::size_t>(b)].size()) + 1);
    sum += stats.loss;
  }
  EXPECT_NEAR(together, sum / 10.0, 1e-5);
  EXPECT_THROW(small.decoder.loss(context, std::span(three).first(2), {small.memory}), InvalidArgument);
}

// After training the decoder writes each memory's own sequence, and its end.
TEST(Decoder, LearnsTheSequenceOfEachMemory) {
  Small small;
  const std::vector<std::vector<std::int32_t>> three{{4, 5}, {6}, {8, 7, 6, 5, 4}};
  autograd::Tape tape;
  nn::Adam adam(small.set, {});
  for (int step = 0; step < 150; ++step) {
    nn::Context training{.tape = &tape};
    const nn::Var loss = small.decoder.loss(training, three, {small.memory},
                                            {.reduction = {.scale = Decoder::mean_scale(three)}});
    tape.backward(loss);
    tape.clear();
    adam.step(1e-2);
  }
  EXPECT_EQ(small.decoder.greedy({small.memory}, 9).ids, three);
  EXPECT_EQ(small.decoder.greedy({small.memory}, 2).ids[2], (std::vector<std::int32_t>{8, 7}));
}

}  // namespace
}  // namespace fovea::models

// Steps of a training that has seen its batches take nothing from the system: no region for tensors, no large
// block of malloc beside them, oneDNN's included, and few small ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/counted_malloc.h"
#include "fovea/core/memory.h"
#include "fovea/models/language_model.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/nn/module.h"
#include "fovea/nn/optimizer.h"

namespace fovea::models {
namespace {

constexpr std::int64_t vocabulary = 3000;

Batch sentences(std::int64_t size, std::int64_t source_len, std::int64_t target_len) {
  Batch batch;
  batch.size = size;
  batch.source_len = source_len;
  batch.target_len = target_len;
  for (std::int64_t i = 0; i < size; ++i) {
    batch.source_lengths.push_back(source_len - i % 5);
    batch.target_lengths.push_back(target_len - i % 3);
  }
  for (std::int64_t i = 0; i < size * source_len; ++i)
    batch.source.push_back(static_cast<std::int32_t>(4 + i * 37 % (vocabulary - 4)));
  for (std::int64_t i = 0; i < size * target_len; ++i)
    batch.target_input.push_back(static_cast<std::int32_t>(4 + i * 41 % (vocabulary - 4)));
  batch.target_output = batch.target_input;
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t t = batch.target_lengths[static_cast<std::size_t>(i)]; t < target_len; ++t)
      batch.target_output[static_cast<std::size_t>(i * target_len + t)] = -1;
  }
  return batch;
}

using Loss = std::function<nn::Var(nn::Context&, std::size_t batch)>;

// Rounds over batches of several shapes. Threads have buffers of their own, and which thread meets the
// largest product is left to chance. So on several threads a later round may be the first that asks for no
// large block. A step may ask for `most_small(batch)` small blocks: lists of the layers and of the model.
// What the tape records, and tensors with their counters, are none of them.
void expect_no_requests(nn::ParameterSet& parameters, autograd::Operands precision,
                        const std::function<std::int64_t(std::size_t batch)>& most_small, const Loss& loss) {
  if (!FOVEA_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer replaces malloc, or this is not glibc";
  std::optional<nn::Adam> adam(std::in_place, parameters, nn::AdamOptions{.clip_norm = 1.0});
  for (const int threads : {1, 2}) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    nn::use_threads(threads);
    constexpr int warm = 2;
    const int most = threads == 1 ? warm : 12;
    std::int64_t large = -1;
    for (int round = 0; round <= most && large != 0; ++round) {
      const std::int64_t requests = tensor_memory().requests, large_before = counting::large_blocks;
      for (const std::size_t batch : {0, 1, 2, 3}) {
        const std::int64_t before = counting::small_blocks;
        {
          autograd::Tape tape(precision);
          nn::Context context{&tape, static_cast<std::uint64_t>(round), 0};
          tape.backward(loss(context, batch));
          adam->step(0.001);
        }
        if (round >= warm)
          EXPECT_LE(counting::small_blocks - before, most_small(batch))
              << "round " << round << ", batch " << batch;
      }
      if (round < warm) continue;
      EXPECT_EQ(tensor_memory().requests, requests) << "round " << round;
      large = counting::large_blocks - large_before;
    }
    EXPECT_EQ(large, 0);
  }
  nn::use_threads(0);
  constexpr std::size_t kept_without_adam = std::size_t{64} << 20;
  EXPECT_GT(tensor_memory().taken, kept_without_adam) << "too small a step to show anything";
  adam.reset();
  EXPECT_LE(tensor_memory().taken, 2 * kept_without_adam) << tensor_memory().used << " in use";
}

class StepMemory : public ::testing::Test {
 protected:
  // Of up to 1,440 rows.
  const Batch batches_[4] = {sentences(96, 12, 13), sentences(40, 30, 36), sentences(64, 20, 17),
                             sentences(11, 60, 50)};
};

TEST_F(StepMemory, OfATransformer) {
  for (const autograd::Operands precision : {autograd::Operands::f32, autograd::Operands::bf16}) {
    SCOPED_TRACE(autograd::to_string(precision));
    const auto model = make_transformer({.vocabulary = vocabulary,
                                         .dim = 128,
                                         .feed_forward = 512,
                                         .encoder_layers = 4,
                                         .decoder_layers = 4,
                                         .dropout = 0.1f},
                                        1);
    // Some ten for each of the twelve attentions. It was 3,469.
    expect_no_requests(
        model->parameters(), precision, [](std::size_t) { return 150; },
        [&](nn::Context& context, std::size_t batch) {
          autograd::CrossEntropyStats stats;
          return model->loss(context, batches_[batch], {.smoothing = 0.1f}, &stats);
        });
  }
}

TEST_F(StepMemory, OfAnRnn) {
  for (const autograd::Operands precision : {autograd::Operands::f32, autograd::Operands::bf16}) {
    SCOPED_TRACE(autograd::to_string(precision));
    const auto model =
        make_rnn({.vocabulary = vocabulary, .embedding = 256, .hidden = 256, .dropout = 0.1f}, 1);
    // Each step of the decoder is a call of attention with lists of its own. It was 3,424 for 50 steps.
    expect_no_requests(
        model->parameters(), precision,
        [&](std::size_t batch) { return 50 + 14 * batches_[batch].target_len; },
        [&](nn::Context& context, std::size_t batch) {
          autograd::CrossEntropyStats stats;
          return model->loss(context, batches_[batch], {.smoothing = 0.1f}, &stats);
        });
  }
}

TEST_F(StepMemory, OfALanguageModel) {
  LanguageModel model({.vocabulary = 256, .dropout = 0.1f}, 1);
  Padded texts[4];
  for (std::size_t n = 0; n < 4; ++n) {
    texts[n].size = std::int64_t{1} << n;
    texts[n].length = 1700 >> n;
    texts[n].lengths.assign(static_cast<std::size_t>(texts[n].size), texts[n].length);
    for (std::int64_t i = 0; i < texts[n].size * texts[n].length; ++i)
      texts[n].ids.push_back(static_cast<std::int32_t>(i * 37 % 256));
  }
  expect_no_requests(
      model.parameters(), autograd::Operands::f32, [](std::size_t) { return 150; },
      [&](nn::Context& context, std::size_t batch) {
        autograd::CrossEntropyStats stats;
        return model.loss(context, texts[batch], {}, &stats);
      });
}

}  // namespace
}  // namespace fovea::models

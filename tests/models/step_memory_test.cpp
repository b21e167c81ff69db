// Steps of a training that has seen its batches take nothing from the system: no region for tensors, and no
// block of malloc beside them, large or small.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "core/counted_malloc.h"
#include "fovea/core/memory.h"
#include "fovea/models/language_model.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/nn/module.h"
#include "fovea/nn/optimizer.h"
#include "models/configs.h"
#include "models/mixer_names.h"

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

// The fewest blocks that a round over the four batches asks for, once the first rounds have seen them.
// Threads have buffers of their own, and which thread meets the largest product is left to chance. So on
// several threads a later round may be the first that asks for nothing.
std::int64_t fewest_blocks(nn::Adam& adam, autograd::Operands precision, const Loss& loss) {
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (int round = 0; round < 12 && fewest != 0; ++round) {
    const std::int64_t requests = tensor_memory().requests, before = counting::blocks;
    for (const std::size_t batch : {0, 1, 2, 3}) {
      autograd::Tape tape(precision);
      nn::Context context{&tape, static_cast<std::uint64_t>(round), 0};
      tape.backward(loss(context, batch));
      adam.step(0.001);
    }
    if (round < 2) continue;
    EXPECT_EQ(tensor_memory().requests, requests) << "round " << round;
    fewest = std::min(fewest, counting::blocks - before);
  }
  return fewest;
}

void expect_no_blocks(nn::ParameterSet& parameters, autograd::Operands precision, const Loss& loss) {
  nn::Adam adam(parameters, {.clip_norm = 1.0});
  for (const int threads : {1, 2}) {
    nn::use_threads(threads);
    EXPECT_EQ(fewest_blocks(adam, precision, loss), 0) << threads << " threads";
  }
  nn::use_threads(0);
}

// The same for no block, with tensors that take more memory than is kept when the optimiser has ended.
void expect_no_requests(nn::ParameterSet& parameters, autograd::Operands precision, const Loss& loss) {
  if (!FOVEA_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer replaces malloc, or this is not glibc";
  constexpr std::size_t kept_without_adam = std::size_t{64} << 20;
  std::size_t most_taken = 0;
  expect_no_blocks(parameters, precision, [&](nn::Context& context, std::size_t batch) {
    most_taken = std::max(most_taken, tensor_memory().taken);
    return loss(context, batch);
  });
  EXPECT_GT(most_taken, kept_without_adam) << "too small a step to show anything";
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
    // It was 3,469 blocks an update.
    expect_no_requests(model->parameters(), precision, [&](nn::Context& context, std::size_t batch) {
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
    // Each step of the decoder is a call of attention. It was 3,424 blocks for 50 steps.
    expect_no_requests(model->parameters(), precision, [&](nn::Context& context, std::size_t batch) {
      autograd::CrossEntropyStats stats;
      return model->loss(context, batches_[batch], {.smoothing = 0.1f}, &stats);
    });
  }
}

Padded texts(std::int64_t size, std::int64_t length, std::int64_t words) {
  Padded all{.size = size, .length = length};
  all.lengths.assign(static_cast<std::size_t>(size), length);
  for (std::int64_t i = 0; i < size * length; ++i)
    all.ids.push_back(static_cast<std::int32_t>(i * 37 % words));
  return all;
}

TEST_F(StepMemory, OfALanguageModel) {
  constexpr std::int64_t words = 256;
  LanguageModel model({.vocabulary = words, .dropout = 0.1f}, 1);
  const Padded batches[] = {texts(1, 1700, words), texts(2, 850, words), texts(4, 425, words),
                            texts(8, 212, words)};
  expect_no_requests(model.parameters(), autograd::Operands::f32,
                     [&](nn::Context& context, std::size_t batch) {
                       autograd::CrossEntropyStats stats;
                       return model.loss(context, batches[batch], {}, &stats);
                     });
}

TEST_F(StepMemory, OfEveryRnn) {
  if (!FOVEA_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer replaces malloc, or this is not glibc";
  using enum RnnAttention;
  for (const RnnAttention attention : {none, additive, dot, scaled_dot, general, low_rank}) {
    for (const QueryState query : {QueryState::before, QueryState::after}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(attention)) + ", " +
                   std::to_string(static_cast<int>(query)));
      const auto model = make_rnn({.vocabulary = vocabulary,
                                   .embedding = 32,
                                   .hidden = 32,
                                   .cell = autograd::Cell::lstm,
                                   .attention = attention,
                                   .query = query,
                                   .dropout = 0.1f},
                                  1);
      expect_no_blocks(model->parameters(), autograd::Operands::f32,
                       [&](nn::Context& context, std::size_t batch) {
                         return model->loss(context, batches_[batch], {.smoothing = 0.1f}, nullptr);
                       });
    }
  }
}

class StepMemoryOfMixers : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, StepMemoryOfMixers, testing::language_mixer_names(), testing::test_name);

TEST_P(StepMemoryOfMixers, WithActivationsKeptAndRecomputed) {
  if (!FOVEA_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer replaces malloc, or this is not glibc";
  constexpr std::int64_t words = 64, layers = 2;
  LanguageModel model({.vocabulary = words,
                       .dim = 32,
                       .feed_forward = 64,
                       .heads = 2,
                       .layers = layers,
                       .dropout = 0.1f,
                       .mixers = parse_mixers(GetParam(), layers)},
                      1);
  const Padded batches[] = {texts(2, 150, words), texts(4, 80, words), texts(1, 300, words),
                            texts(3, 65, words)};
  for (const nn::Activations activations : {nn::Activations::kept, nn::Activations::recomputed}) {
    SCOPED_TRACE(activations == nn::Activations::recomputed ? "recomputed" : "kept");
    expect_no_blocks(model.parameters(), autograd::Operands::f32,
                     [&](nn::Context& context, std::size_t batch) {
                       context.activations = activations;
                       return model.loss(context, batches[batch]);
                     });
  }
}

}  // namespace
}  // namespace fovea::models

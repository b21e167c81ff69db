// Training gives the same bits for any number of threads: every product, sum and update is cut by shape.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "fovea/core/executor.h"
#include "fovea/models/language_model.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/nn/optimizer.h"
#include "models/mixer_names.h"

namespace fovea::models {
namespace {

// Wide and long enough that products, sums of columns and Adam have several units of work.
constexpr std::int64_t small_vocabulary = 700, dim = 64, size = 24, length = 20;

Batch some_batch() {
  Batch batch;
  batch.size = size;
  batch.source_len = batch.target_len = length;
  for (std::int64_t n = 0; n < size; ++n) {
    batch.source_lengths.push_back(length - n % 5);
    batch.target_lengths.push_back(length - n % 7);
    for (std::int64_t t = 0; t < length; ++t) {
      const auto id = static_cast<std::int32_t>(4 + (n * 131 + t * 17) % (small_vocabulary - 4));
      batch.source.push_back(t < length - n % 5 ? id : 0);
      batch.target_input.push_back(t < length - n % 7 ? id : 0);
      batch.target_output.push_back(t < length - n % 7 ? id : -1);
    }
  }
  return batch;
}

using LossWithStats = std::function<nn::Var(nn::Context&, autograd::CrossEntropyStats*)>;

void update_three_times(nn::ParameterSet& parameters, autograd::Operands precision,
                        const LossWithStats& loss) {
  nn::Adam adam(parameters, {.clip_norm = 1.0});
  for (std::uint64_t step = 0; step < 3; ++step) {
    autograd::Tape tape(precision);
    nn::Context context{&tape, step, 0};
    autograd::CrossEntropyStats stats;
    tape.backward(loss(context, &stats));
    adam.step(0.01);
  }
}

// `make` trains a fresh model on the default executor, in this precision, and returns it.
template <class Make>
void expect_the_same_bits_in(autograd::Operands precision, Make&& make) {
  SCOPED_TRACE(autograd::to_string(precision));
  const auto trained = [&](Executor& executor) {
    struct Installed {
      explicit Installed(Executor& now) { set_default_executor(&now); }
      ~Installed() { set_default_executor(nullptr); }
    } const installed(executor);
    return make(precision);
  };
  const auto alone = trained(serial_executor());
  for (const int threads : {2, 5}) {
    const auto pool = make_thread_pool(threads);
    const auto other = trained(*pool);
    auto a = alone->parameters().all().begin();
    for (const nn::Parameter& b : other->parameters().all()) {
      EXPECT_EQ(std::memcmp(a->value.raw(), b.value.raw(), static_cast<std::size_t>(4 * b.value.count())), 0)
          << b.name << " with " << threads << " threads";
      ++a;
    }
  }
}

template <class Make>
void expect_the_same_bits(Make&& make) {
  for (const auto precision : {autograd::Operands::f32, autograd::Operands::bf16})
    expect_the_same_bits_in(precision, make);
}

template <class Make>
void expect_the_same_translator(Make&& make) {
  const Batch batch = some_batch();
  expect_the_same_bits([&](autograd::Operands precision) {
    std::unique_ptr<SequenceToSequence> model = make();
    update_three_times(
        model->parameters(), precision, [&](nn::Context& context, autograd::CrossEntropyStats* stats) {
          return model->loss(context, batch, {.smoothing = 0.1f, .reduction = {.scale = 0.01f}}, stats);
        });
    return model;
  });
}

TEST(Threads, DoNotChangeTheBitsOfATransformer) {
  expect_the_same_translator([] {
    return make_transformer({.vocabulary = small_vocabulary,
                             .dim = dim,
                             .feed_forward = 300,
                             .heads = 4,
                             .encoder_layers = 1,
                             .decoder_layers = 2,
                             .dropout = 0.1f},
                            7);
  });
}

TEST(Threads, DoNotChangeTheBitsOfAnRnn) {
  for (const autograd::Cell cell : {autograd::Cell::gru, autograd::Cell::lstm}) {
    expect_the_same_translator([cell] {
      return make_rnn(
          {.vocabulary = small_vocabulary, .embedding = dim, .hidden = 96, .cell = cell, .dropout = 0.1f}, 7);
    });
  }
}

// The memory of a padded batch is more than one thread copies.
TEST(Threads, ShareTheMemoryOfAPaddedBatch) {
  const auto model = make_transformer({.vocabulary = small_vocabulary,
                                       .dim = 4 * dim,
                                       .feed_forward = 300,
                                       .heads = 4,
                                       .encoder_layers = 1,
                                       .decoder_layers = 1},
                                      7);
  const Batch batch = some_batch();
  const std::vector<std::int32_t> first(static_cast<std::size_t>(size), 2);
  const auto rows_by = [&](int threads) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    const auto state = model->start(batch.source, length, batch.source_lengths);
    const Tensor rows = model->advance(*state, first).value();
    set_default_executor(nullptr);
    return rows;
  };
  const Tensor rows = rows_by(1);
  for (const int threads : {2, 5})
    EXPECT_EQ(std::memcmp(rows.raw(), rows_by(threads).raw(), rows.bytes()), 0) << threads << " threads";
  for (std::int64_t n = 0; n < size; ++n) {
    const std::int64_t words = batch.source_lengths[static_cast<std::size_t>(n)], own[] = {words};
    const auto source = std::span(batch.source)
                            .subspan(static_cast<std::size_t>(n * length), static_cast<std::size_t>(words));
    const auto state = model->start(source, words, own);
    const Tensor row = model->advance(*state, std::span(first).first(1)).value();
    for (std::int64_t d = 0; d < 4 * dim; ++d)
      ASSERT_NEAR(rows.data<float>()[n * 4 * dim + d], row.data<float>()[d], 1e-4f) << n << ", " << d;
  }
}

class ThreadsOfMixers : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Mixers, ThreadsOfMixers, testing::language_mixer_names(), testing::test_name);

TEST_P(ThreadsOfMixers, DoNotChangeTheBitsOfALanguageModel) {
  // Long enough for attention in bf16.
  Padded text;
  text.size = 4;
  text.length = 140;
  text.lengths.assign(4, 140);
  for (std::int32_t n = 0; n < 4 * 140; ++n) text.ids.push_back(n * 37 % 200);
  expect_the_same_bits([&](autograd::Operands precision) {
    auto model = std::make_unique<LanguageModel>(LanguageModelConfig{.vocabulary = 200,
                                                                     .dim = dim,
                                                                     .feed_forward = 256,
                                                                     .heads = 2,
                                                                     .layers = 2,
                                                                     .dropout = 0.1f,
                                                                     .mixers = parse_mixers(GetParam(), 2)},
                                                 7);
    update_three_times(model->parameters(), precision,
                       [&](nn::Context& context, autograd::CrossEntropyStats* stats) {
                         return model->loss(context, text, {.reduction = {.scale = 0.01f}}, stats);
                       });
    return model;
  });
}

}  // namespace
}  // namespace fovea::models

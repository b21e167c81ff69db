#include "fovea/models/encoder.h"

#include <gtest/gtest.h>

#include <cstring>

#include "fovea/models/text_encoder.h"

namespace fovea::models {
namespace {

using Sequences = std::vector<std::vector<std::int32_t>>;

TEST(Pad, FillsUpWithTheIdGiven) {
  const Padded padded = pad(Sequences{{5, 6, 7}, {8}}, 9);
  EXPECT_EQ(padded.ids, (std::vector<std::int32_t>{5, 6, 7, 8, 9, 9}));
  EXPECT_EQ(padded.lengths, (std::vector<std::int64_t>{3, 1}));
  EXPECT_THROW(pad({}), InvalidArgument);
  EXPECT_THROW(pad(Sequences{{1}, {}}), InvalidArgument);
}

TEST(Encoder, SeesNoPaddingAndEveryWord) {
  nn::ParameterSet set(2);
  const Encoder encoder(set, "encoder", {.vocabulary = 20, .dim = 16, .feed_forward = 32, .heads = 2});
  nn::Context context;
  const auto rows = [&](const Sequences& sequences) { return encoder(context, pad(sequences)).value(); };
  const Tensor alone = rows({{3, 4, 5}}), beside = rows({{3, 4, 5}, {6, 7, 8, 9, 10}});
  ASSERT_EQ(beside.shape(), Shape({2, 5, 16}));
  for (std::int64_t i = 0; i < 3 * 16; ++i)
    EXPECT_NEAR(alone.data<float>()[i], beside.data<float>()[i], 1e-5);
  const Tensor other_end = rows({{3, 4, 11}}), other_order = rows({{4, 3, 5}});
  EXPECT_NE(std::memcmp(alone.raw(), other_end.raw(), 16 * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(alone.data<float>() + 32, other_order.data<float>() + 32, 16 * sizeof(float)), 0);
}

TEST(Encoder, RefusesTokensThatDoNotBelongTogether) {
  nn::ParameterSet set(2);
  const Encoder encoder(set, "encoder", {.vocabulary = 20, .dim = 16, .feed_forward = 32, .heads = 2});
  nn::Context context;
  EXPECT_THROW(encoder(context, {}), InvalidArgument);
  EXPECT_THROW(encoder(context, {.size = 1, .length = 2, .ids = {3, 4}}), InvalidArgument);
  EXPECT_THROW(encoder(context, {.size = 1, .length = 2, .ids = {3, 4}, .lengths = {3}}), InvalidArgument);
  EXPECT_THROW(encoder.embed(context, {.size = 2, .length = 2, .ids = {3, 4}, .lengths = {2, 2}}),
               InvalidArgument);
}

TEST(TextEncoder, TheHeadRefusesRowsOfOtherSequences) {
  const TextEncoder model(
      {.vocabulary = 20,
       .stack = nn::stack_of({.layers = 1, .dim = 8, .feed_forward = 12, .heads = 2}),
       .head = HeadSpec{.outputs = 3, .pooling = SentencePooling::Kind::mean}},
      [](const std::string&, const Shape& shape) { return Tensor::zeros(DType::f32, shape); });
  const Sequences sequences{{3, 4, 5}, {6}};
  nn::Context context;
  const nn::Var hidden = model.hidden(context, sequences);
  EXPECT_EQ(model.head_rows(hidden, sequences).shape(), Shape({2, 8}));
  for (const Sequences& others :
       {Sequences{{3, 4, 5}, {6, 7}}, Sequences{{3, 4, 5}}, Sequences{}, Sequences{{3, 4, 5}, {}, {6}}})
    EXPECT_THROW(model.head_rows(hidden, others), InvalidArgument);
  EXPECT_THROW(model.head_rows(Tensor::zeros(DType::f32, {8, 4}), sequences), InvalidArgument);
  EXPECT_THROW(model.logits(Tensor::zeros(DType::f32, {8, 4})), InvalidArgument);
  EXPECT_THROW(model.logits(nn::Var()), InvalidArgument);
}

TEST(TextEncoder, RefusesSequencesLongerThanItsPositionsByName) {
  nn::StackSpec stack = nn::stack_of({.layers = 1, .dim = 8, .feed_forward = 12, .heads = 2});
  stack.positions = nn::LearnedPositions{.count = 3, .first_row = 1};
  const TextEncoder model(
      {.vocabulary = 20, .stack = stack, .pad_id = 1},
      [](const std::string&, const Shape& shape) { return Tensor::zeros(DType::f32, shape); });
  nn::Context context;
  EXPECT_NO_THROW(model.hidden(context, Sequences{{3, 4, 5}}));
  try {
    model.hidden(context, Sequences{{3}, {3, 4, 5, 6}});
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "TextEncoder::hidden");
    EXPECT_EQ(error.argument(), "sequences");
  }
}

// Masks that hide all keys but a row's own leave what a row makes of its id and position.
TEST(TextEncoder, IdsBehindPaddingCountOnAsIfItWereNotThere) {
  nn::StackSpec stack = nn::stack_of({.layers = 1, .dim = 8, .feed_forward = 12, .heads = 2});
  stack.positions = nn::LearnedPositions{.count = 4, .first_row = 2};
  std::uint64_t seed = 0;
  const TextEncoder model(
      {.vocabulary = 20, .stack = stack, .mask = Causal{} & SlidingWindow{0}, .pad_id = 1},
      [&](const std::string&, const Shape& shape) { return Tensor::normal(shape, ++seed); });
  nn::Context context;
  const auto row = [&](const Tensor& rows, std::int64_t n) { return rows.data<float>() + n * 8; };
  const Tensor with = model.hidden(context, Sequences{{5, 1, 1, 6}, {1, 6}}).value(),
               without = model.hidden(context, Sequences{{5, 6}, {6}}).value();
  const auto equal = [&](std::int64_t padded, std::int64_t alone) {
    return std::memcmp(row(with, padded), row(without, alone), 8 * sizeof(float)) == 0;
  };
  EXPECT_TRUE(equal(0, 0));
  EXPECT_TRUE(equal(3, 1));
  EXPECT_TRUE(equal(5, 2));
  EXPECT_FALSE(equal(5, 1));  // the same id at another position

  stack.positions = nn::LearnedPositions{.count = 4};
  const auto zeros = [](const std::string&, const Shape& shape) { return Tensor::zeros(DType::f32, shape); };
  EXPECT_THROW(TextEncoder({.vocabulary = 20, .stack = stack, .pad_id = 1}, zeros), InvalidArgument);
}

}  // namespace
}  // namespace fovea::models

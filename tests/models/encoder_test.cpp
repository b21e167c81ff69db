#include "fovea/models/encoder.h"

#include <gtest/gtest.h>

#include <cstring>

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

}  // namespace
}  // namespace fovea::models

// Hard attention as an op: one key drawn by the call's seed.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "fovea/autograd/ops.h"
#include "fovea/core/error.h"

namespace fovea::autograd {
namespace {

TEST(SampledWeights, OneKeyDrawnFromTheSoftmaxBySeed) {
  // 4000 equal queries: each draws its own key.
  constexpr std::int64_t kRows = 4000, kKeys = 3;
  Tensor query(DType::f32, {1, kRows, 1});
  query.fill(1.0);
  const float keys[] = {0.0f, 1.0f, 2.0f};
  const Tensor key = Tensor::from<float>(keys, {1, kKeys, 1});
  const AttentionSpec soft{.score = Dot{}}, hard{.score = Dot{}, .normalizer = HardSample{}};
  const Tensor shares = attention_weights({.spec = soft}, query, key).value();
  const auto drawn = [&](std::uint64_t seed) {
    const AttentionCall call{.spec = hard, .sample_seed = seed};
    return attention_weights(call, query, key).value().reshape({kRows, kKeys});
  };
  const Tensor first = drawn(1), again = drawn(1), other = drawn(2);
  std::vector<double> counts(kKeys);
  int different = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    float sum = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) {
      const float weight = first.data<float>()[row * kKeys + j];
      EXPECT_TRUE(weight == 0.0f || weight == 1.0f);
      EXPECT_EQ(weight, again.data<float>()[row * kKeys + j]);
      different += weight != other.data<float>()[row * kKeys + j];
      counts[static_cast<std::size_t>(j)] += weight;
      sum += weight;
    }
    EXPECT_EQ(sum, 1.0f);
  }
  EXPECT_GT(different, 0);
  for (std::size_t j = 0; j < kKeys; ++j) {
    const double p = shares.data<float>()[j];
    EXPECT_NEAR(counts[j] / kRows, p, 5 * std::sqrt(p * (1 - p) / kRows)) << "five standard deviations";
  }
}

TEST(ArgmaxRows, TheFirstOfTheLargest) {
  const float values[] = {1, 3, 2, 5, 5, -1, -3, -2, -2};
  EXPECT_EQ(argmax_rows(Tensor::from<float>(values, {3, 3})), (std::vector<std::int32_t>{1, 0, 1}));
  EXPECT_TRUE(argmax_rows(Tensor(DType::f32, {0, 3})).empty());
  EXPECT_THROW(argmax_rows(Tensor(DType::f32, {3})), InvalidArgument);
  EXPECT_THROW(argmax_rows(Tensor(DType::f32, {3, 0})), InvalidArgument);
}

}  // namespace
}  // namespace fovea::autograd

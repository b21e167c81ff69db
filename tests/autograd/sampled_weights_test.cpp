// Hard attention as an op: one key drawn by the call's seed.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "fovea/autograd/ops.h"
#include "fovea/core/error.h"
#include "fovea/core/philox.h"

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

// The scores learn by REINFORCE: the gradient of a recorded call is that of Σ advantage · ln P(drawn key).
TEST(SampledWeights, ScoresLearnByTheAdvantage) {
  const auto values = [](const Shape& shape, std::uint64_t seed) {
    Tensor tensor(DType::f32, shape);
    PhiloxStream random(seed);
    for (std::int64_t n = 0; n < shape.count(); ++n)
      tensor.data<float>()[n] = 2.0f * random.next_uniform() - 1.0f;
    return tensor;
  };
  constexpr std::int64_t kRows = 6, kKeys = 5;
  Parameter query{"q", values({1, kRows, 3}, 1), Tensor::zeros(DType::f32, {1, kRows, 3})},
      slope{"s", values({1, 1, 1, 1}, 2), Tensor::zeros(DType::f32, {1, 1, 1, 1})};
  const Tensor key = values({1, kKeys, 3}, 3), value = values({1, kKeys, 2}, 4);
  const Tensor advantage(DType::f32, {1, 1, kRows});
  const auto call_of = [&](const Normalizer& normalizer, const Var& slopes) {
    return AttentionCall{.spec = {.mods = {AlibiBias{}}, .normalizer = normalizer},
                         .sample_seed = 5,
                         .arguments = {{"mods[0].slope", slopes}}};
  };
  const Tensor drawn = attention_weights(call_of(HardSample{}, slope.value), query.value, key).value();
  Tape tape;
  AttentionCall call = call_of(HardSample{}, tape.use(slope));
  call.advantage = advantage;
  const Var output = attention(call, tape.use(query), key, value);
  // Known only after the call, as a reward is.
  for (std::int64_t row = 0; row < kRows; ++row)
    advantage.data<float>()[row] = 0.3f * static_cast<float>(row) - 0.7f;
  tape.backward(squared_error(output, Tensor::zeros(DType::f32, {1, kRows, 2})));
  const auto likelihood = [&] {
    const Tensor soft = attention_weights(call_of(Softmax{}, slope.value), query.value, key).value();
    double sum = 0.0;
    for (std::int64_t n = 0; n < kRows * kKeys; ++n) {
      if (drawn.data<float>()[n] == 1.0f)
        sum += static_cast<double>(advantage.data<float>()[n / kKeys]) *
               std::log(static_cast<double>(soft.data<float>()[n]));
    }
    return sum;
  };
  for (Parameter* p : {&query, &slope}) {
    for (std::int64_t n = 0; n < p->value.count(); ++n) {
      float& x = p->value.data<float>()[n];
      const float at = x;
      x = at + 1e-2f;
      const double up = likelihood();
      x = at - 1e-2f;
      const double down = likelihood();
      x = at;
      const double gradient = static_cast<double>(p->gradient.data<float>()[n]);
      EXPECT_NEAR((up - down) / 2e-2, gradient, 3e-3 * (1.0 + std::abs(gradient))) << p->name << n;
    }
  }
}

// Without an advantage the values still learn, and a recorded score is refused.
TEST(SampledWeights, ScoresWithoutAnAdvantageAreRefused) {
  Parameter p{"p", Tensor::zeros(DType::f32, {1, 2, 3}), Tensor::zeros(DType::f32, {1, 2, 3})};
  const AttentionCall call{.spec = {.normalizer = HardSample{}}};
  const Tensor target = Tensor::zeros(DType::f32, {1, 2, 3});
  for (const bool of_scores : {false, true}) {
    Tape tape;
    const Var x = tape.use(p), fixed = p.value;
    const Var loss =
        squared_error(attention(call, of_scores ? x : fixed, fixed, of_scores ? fixed : x), target);
    if (of_scores)
      EXPECT_THROW(tape.backward(loss), InvalidArgument);
    else
      EXPECT_NO_THROW(tape.backward(loss));
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

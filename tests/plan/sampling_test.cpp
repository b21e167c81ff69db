// Random results are right on average: dropout, hard samples, and the gradients that they estimate.
// A mean of n draws lies within 5 standard deviations of its expectation, except
// once in two million.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

constexpr std::int64_t H = 2, Q = 3, K = 6, D = 4, Dv = 3;
constexpr int trials = 4000;
const AttentionShape shape{
    .num_query_heads = H, .num_kv_heads = 1, .query_len = Q, .key_len = K, .head_dim = D, .value_dim = Dv};

// Sums over many draws, element by element.
class Mean {
 public:
  void add(const Tensor& x) {
    sum_.resize(static_cast<std::size_t>(x.count()));
    square_.resize(sum_.size());
    ++count_;
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      const double value = element(x, static_cast<std::int64_t>(i));
      sum_[i] += value;
      square_[i] += value * value;
    }
  }
  void expect(const Tensor& want, const char* name) const {
    ASSERT_EQ(want.count(), static_cast<std::int64_t>(sum_.size())) << name;
    double varies = 0.0;
    for (std::size_t i = 0; i < sum_.size(); ++i) {
      const double mean = sum_[i] / count_, variance = std::max(square_[i] / count_ - mean * mean, 0.0);
      EXPECT_NEAR(mean, element(want, static_cast<std::int64_t>(i)), 5 * std::sqrt(variance / count_) + 1e-12)
          << name << "[" << i << "]";
      varies += variance;
    }
    EXPECT_GT(varies, 0.0) << name;
  }

 private:
  std::vector<double> sum_, square_;
  int count_ = 0;
};

struct Example {
  Tensor query = random_tensor(DType::f64, {1, H, Q, D}, 1), key = random_tensor(DType::f64, {1, 1, K, D}, 2),
         value = random_tensor(DType::f64, {1, 1, K, Dv}, 3),
         d_output = random_tensor(DType::f64, {1, H, Q, Dv}, 4), output = unwritten_like(d_output),
         lse = unwritten(DType::f64, {1, H, Q}), weights = unwritten(DType::f64, {1, H, Q, K}),
         d_query = unwritten_like(query), d_key = unwritten_like(key), d_value = unwritten_like(value);
  Mask mask = ~Mask(KeyLengths{{1}});

  AttentionPlan plan(const Normalizer& normalizer, double dropout = 0.0) const {
    return make_plan({.score = Dot{}, .mask = mask, .normalizer = normalizer, .dropout = {dropout}}, shape,
                     {.dtype = DType::f64});
  }
  AttentionInputs inputs(int seed) const {
    AttentionInputs in{.query = query, .key = key, .value = value};
    in.sample_seed = in.dropout_seed = static_cast<std::uint64_t>(seed);
    return in;
  }
  void forward(const AttentionPlan& plan, int seed) const {
    attend(plan, inputs(seed), {.output = output, .log_sum_exp = lse, .weights = weights});
  }
  // For the loss Σ d_output·output.
  void backward(const AttentionPlan& plan, int seed, ConstTensorView advantage = {}) const {
    AttentionLoss loss;
    loss.output = output;
    loss.log_sum_exp = lse;
    loss.d_output = d_output;
    loss.advantage = advantage;
    attend_backward(plan, inputs(seed), loss, {.query = d_query, .key = d_key, .value = d_value});
  }
};

TEST(Sampling, TheMeanOfSamplesIsTheSoftOutput) {
  const Example soft;
  soft.forward(soft.plan(Softmax{}), 0);
  for (const Normalizer& normalizer : {Normalizer(HardSample{}), Normalizer(GumbelSample{0.7})}) {
    const Example e;
    const AttentionPlan plan = e.plan(normalizer);
    Mean output, weights;
    for (int seed = 0; seed < trials; ++seed) {
      e.forward(plan, seed);
      for (std::int64_t row = 0; row < H * Q; ++row) {  // one key in each row
        double sum = 0.0;
        for (std::int64_t j = 0; j < K; ++j) {
          const double w = element(e.weights, row * K + j);
          ASSERT_TRUE(w == 0.0 || w == 1.0);
          sum += w;
        }
        ASSERT_EQ(sum, 1.0);
      }
      output.add(e.output);
      weights.add(e.weights);
      expect_near(e.lse, soft.lse, 1e-13, "log_sum_exp");
    }
    output.expect(soft.output, "output");
    weights.expect(soft.weights, "weights");
  }
}

// The score-function estimate, advantage · d ln P, for a loss that is linear in the output. Its expectation
// is therefore the loss of the soft output. A baseline changes the variance, but not the mean.
TEST(Sampling, TheMeanOfReinforceGradientsIsTheGradientOfTheExpectedLoss) {
  const Example soft;
  const AttentionPlan exact = soft.plan(Softmax{});
  soft.forward(exact, 0);
  soft.backward(exact, 0);
  for (const double baseline : {0.0, 0.7}) {
    const Example e;
    const AttentionPlan plan = e.plan(HardSample{});
    const Tensor advantage(DType::f64, {1, H, Q});
    Mean d_query, d_key, d_value;
    for (int seed = 0; seed < trials; ++seed) {
      e.forward(plan, seed);
      for (std::int64_t row = 0; row < H * Q; ++row) {
        double loss = 0.0;
        for (std::int64_t i = row * Dv; i < (row + 1) * Dv; ++i)
          loss += element(e.output, i) * element(e.d_output, i);
        set_element(advantage, row, loss - baseline);
      }
      e.backward(plan, seed, advantage);
      d_query.add(e.d_query);
      d_key.add(e.d_key);
      d_value.add(e.d_value);
    }
    d_query.expect(soft.d_query, "d_query");
    d_key.expect(soft.d_key, "d_key");
    d_value.expect(soft.d_value, "d_value");
  }
}

TEST(Sampling, TheMeanOfDropoutIsThePlainOutput) {
  const Example plain;
  const AttentionPlan all = plain.plan(Softmax{});
  plain.forward(all, 0);
  plain.backward(all, 0);
  const Example e;
  const AttentionPlan plan = e.plan(Softmax{}, 0.5);
  Mean output, d_query, d_key, d_value;
  for (int seed = 0; seed < trials; ++seed) {
    e.forward(plan, seed);
    e.backward(plan, seed);
    output.add(e.output);
    d_query.add(e.d_query);
    d_key.add(e.d_key);
    d_value.add(e.d_value);
  }
  // The loss is linear in the weights, so the gradients' means are right too.
  output.expect(plain.output, "output");
  d_query.expect(plain.d_query, "d_query");
  d_key.expect(plain.d_key, "d_key");
  d_value.expect(plain.d_value, "d_value");
}

}  // namespace
}  // namespace fovea::testing

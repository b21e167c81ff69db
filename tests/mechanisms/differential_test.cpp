// Differential attention against its definition, its limit at lambda 0, and central differences.
#include "fovea/mechanisms/differential.h"

#include <gtest/gtest.h>

#include "fovea/core/executor.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

constexpr std::int64_t B = 2, H = 4, Hkv = 2, Q = 6, K = 9, D = 5, Dv = 3;
const AttentionShape shape{.batch = B,
                           .num_query_heads = H,
                           .num_kv_heads = Hkv,
                           .query_len = Q,
                           .key_len = K,
                           .head_dim = D,
                           .value_dim = Dv};

// Has everything that both halves can share: mods with arguments, a sink, dropout, a score's matrix.
const AttentionSpec shared_spec{.score = Bilinear{},
                                .scale = 0.7,
                                .mods = {SoftCap{3}, AlibiBias{}, DenseBias{}},
                                .mask = Causal{},
                                .normalizer = SoftmaxWithSink{},
                                .dropout = {0.25}};

struct Example {
  DType dtype, wide;
  Tensor query, key, value, lambda, W, sink, slope, bias, d_output;
  Tensor output, d_query, d_key, d_value, d_lambda, dW, d_sink, d_slope, d_bias;

  explicit Example(DType type) : dtype(type), wide(type == DType::f64 ? DType::f64 : DType::f32) {
    query = random_tensor(dtype, {B, 2 * H, Q, D}, 1);
    key = random_tensor(dtype, {B, 2 * Hkv, K, D}, 2);
    value = random_tensor(dtype, {B, Hkv, K, Dv}, 3);
    d_output = random_tensor(dtype, {B, H, Q, Dv}, 4);
    lambda = random_tensor(wide, {H}, 5);
    W = random_tensor(wide, {D, D}, 6);
    sink = random_tensor(wide, {H}, 7);
    slope = random_tensor(wide, {1, H, 1, 1}, 8);
    bias = random_tensor(wide, {1, 1, Q, K}, 9);
    output = unwritten_like(d_output);
  }
  DifferentialInputs inputs(bool everything) const {
    DifferentialInputs in{.attention = {.query = query, .key = key, .value = value}, .lambda = lambda};
    if (everything) {
      in.attention.arguments.set("score.W", W);
      in.attention.arguments.set("normalizer.sink", sink);
      in.attention.arguments.set("mods[1].slope", slope);
      in.attention.arguments.set("mods[2].bias", bias);
      in.attention.dropout_seed = 11;
    }
    return in;
  }
  // Computes every gradient of a call of shared_spec.
  void backward(Executor& executor = default_executor()) {
    const AttentionPlan plan = make_plan(shared_spec, shape, {.dtype = dtype});
    const DifferentialState state = attend_differential(plan, inputs(true), output, {.executor = &executor});
    d_query = unwritten_like(query);
    d_key = unwritten_like(key);
    d_value = unwritten_like(value);
    d_lambda = unwritten_like(lambda);
    dW = unwritten_like(W);
    d_sink = unwritten_like(sink);
    d_slope = unwritten_like(slope);
    d_bias = unwritten_like(bias);
    DifferentialGradients g{.attention = {.query = d_query, .key = d_key, .value = d_value},
                            .lambda = d_lambda};
    g.attention.arguments.set("score.W", dW);
    g.attention.arguments.set("normalizer.sink", d_sink);
    g.attention.arguments.set("mods[1].slope", d_slope);
    g.attention.arguments.set("mods[2].bias", d_bias);
    attend_differential_backward(plan, inputs(true), state, d_output, g, {.executor = &executor});
  }
};

TEST(Differential, IsItsDefinition) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f64, 1e-14}, {DType::f32, 1e-6}, {DType::bf16, 3e-2}, {DType::f16, 4e-3}}) {
    Example run(dtype);
    attend_differential(make_plan({.mask = Causal{}}, shape, {.dtype = dtype}), run.inputs(false),
                        run.output);
    Tensor want(dtype, run.output.shape());
    for (std::int64_t row = 0; row < B * H * Q; ++row) {
      const std::int64_t b = row / Q / H, h = row / Q % H, i = row % Q, kv = h / (H / Hkv);
      std::vector<double> weights[2];
      for (std::int64_t half = 0; half < 2; ++half) {
        std::vector<double> scores(K, -std::numeric_limits<double>::infinity());
        for (std::int64_t j = 0; j <= i + K - Q; ++j) {
          scores[j] = 0.0;
          for (std::int64_t d = 0; d < D; ++d)
            scores[j] += element(run.query, ((b * 2 * H + 2 * h + half) * Q + i) * D + d) *
                         element(run.key, ((b * 2 * Hkv + 2 * kv + half) * K + j) * D + d) / std::sqrt(D);
        }
        weights[half] = softmax(scores);
      }
      for (std::int64_t d = 0; d < Dv; ++d) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < K; ++j)
          sum += (weights[0][j] - element(run.lambda, h) * weights[1][j]) *
                 element(run.value, ((b * Hkv + kv) * K + j) * Dv + d);
        set_element(want, row * Dv + d, sum);
      }
    }
    expect_near(run.output, want, tolerance, std::string(to_string(dtype)));
  }
}

TEST(Differential, LambdaZeroIsPlainAttention) {
  Example run(DType::f32);
  run.lambda.fill(0.0);
  const AttentionPlan plan = make_plan({.mask = Causal{}}, shape);
  attend_differential(plan, run.inputs(false), run.output);
  const std::int64_t query_strides[] = {2 * H * Q * D, 2 * Q * D, D, 1},
                     key_strides[] = {2 * Hkv * K * D, 2 * K * D, D, 1};
  const Tensor plain(DType::f32, run.output.shape());
  attend(plan, {run.query.raw(), DType::f32, {B, H, Q, D}, query_strides},
         {run.key.raw(), DType::f32, {B, Hkv, K, D}, key_strides}, run.value, plain);
  expect_near(run.output, plain, 0.0, "output");
}

TEST(Differential, GradientsAreDerivatives) {
  Example run(DType::f64);
  run.backward();
  const AttentionPlan plan = make_plan(shared_spec, shape, {.dtype = DType::f64});
  const Tensor output(DType::f64, run.d_output.shape());
  const auto loss = [&] {
    attend_differential(plan, run.inputs(true), output);
    return inner_product(output, run.d_output);
  };
  expect_derivatives(loss, {{"query", run.query, run.d_query},
                            {"key", run.key, run.d_key},
                            {"value", run.value, run.d_value},
                            {"lambda", run.lambda, run.d_lambda},
                            {"W", run.W, run.dW},
                            {"sink", run.sink, run.d_sink},
                            {"slope", run.slope, run.d_slope},
                            {"bias", run.bias, run.d_bias}});
}

// Tolerance: eps of the type times 16 · the longest sum, as in the case table.
TEST(Differential, NarrowGradientsFollowTheWideOnes) {
  Example wide(DType::f64);
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f32, 2e-5}, {DType::f16, 0.03}, {DType::bf16, 0.25}}) {
    Example run(dtype);
    run.backward();
    for (const auto& [to, from] : {std::pair{wide.query, run.query},
                                   {wide.key, run.key},
                                   {wide.value, run.value},
                                   {wide.d_output, run.d_output}}) {
      for (std::int64_t i = 0; i < to.count(); ++i) set_element(to, i, element(from, i));
    }
    wide.backward();
    for (const auto& [got, want] : {std::pair{run.d_query, wide.d_query},
                                    {run.d_key, wide.d_key},
                                    {run.d_value, wide.d_value},
                                    {run.d_lambda, wide.d_lambda}}) {
      for (std::int64_t i = 0; i < got.count(); ++i)
        ASSERT_NEAR(element(got, i), element(want, i), tolerance) << to_string(dtype);
    }
  }
}

TEST(Differential, SameBitsForEveryThreadCount) {
  expect_same_bits_for_every_thread_count([](Executor& executor) {
    Example run(DType::f32);
    run.backward(executor);
    return std::vector<Tensor>{run.output, run.d_query, run.d_key,   run.d_value, run.d_lambda,
                               run.dW,     run.d_sink,  run.d_slope, run.d_bias};
  });
}

// A row that sees no key is 0. A NaN in its d_output reaches no gradient.
TEST(Differential, RowsWithoutKeys) {
  Example run(DType::f32);
  run.d_output.fill(std::numeric_limits<double>::quiet_NaN());
  const AttentionPlan plan = make_plan({.mask = ~Mask(Everything{})}, shape);
  const DifferentialState state = attend_differential(plan, run.inputs(false), run.output);
  const Tensor d_query = unwritten_like(run.query), d_lambda = unwritten_like(run.lambda),
               d_value = unwritten_like(run.value);
  attend_differential_backward(
      plan, run.inputs(false), state, run.d_output,
      {.attention = {.query = d_query, .key = {}, .value = d_value}, .lambda = d_lambda});
  for (const Tensor& zero : {run.output, d_query, d_lambda, d_value})
    expect_near(zero, Tensor::zeros(zero.dtype(), zero.shape()), 0.0, "zero");
}

TEST(Differential, RefusesInvalidArguments) {
  Example run(DType::f32);
  const AttentionPlan plan = make_plan({}, shape);
  const auto forward = [&](const DifferentialInputs& in, const Tensor& output) {
    return [&plan, in, output] { attend_differential(plan, in, output); };
  };
  const char* name = "attend_differential";
  const Tensor halved(DType::f32, {B, H, Q, D}), wide(DType::f64, {H}), three(DType::f32, {3});
  DifferentialInputs in = run.inputs(false);
  in.attention.query = halved;
  expect_refused(forward(in, run.output), name, "query");
  in = run.inputs(false);
  in.attention.key = run.value;
  EXPECT_NO_THROW(forward(run.inputs(false), run.output)());
  expect_refused(forward(in, run.output), name, "key");
  for (const Tensor& lambda : {wide, three}) {
    in = run.inputs(false);
    in.lambda = lambda;
    expect_refused(forward(in, run.output), name, "lambda");
  }
  expect_refused(forward(run.inputs(false), run.value), name, "output");
  in = run.inputs(false);
  in.attention.arguments.set("mods[7].slope", run.slope);
  expect_refused(forward(in, run.output), name, "mods[7].slope");
  const DifferentialState state = attend_differential(plan, run.inputs(false), run.output);
  const auto backward = [&](const DifferentialState& s, const Tensor& d_output, const Tensor& d_query,
                            const Tensor& d_lambda) {
    return [&plan, &run, s, d_output, d_query, d_lambda] {
      DifferentialGradients g;
      if (d_query) g.attention.query = d_query;
      if (d_lambda) g.lambda = d_lambda;
      attend_differential_backward(plan, run.inputs(false), s, d_output, g);
    };
  };
  name = "attend_differential_backward";
  const Tensor d_lambda(DType::f32, {H});
  EXPECT_NO_THROW(backward(state, run.d_output, {}, d_lambda)());
  expect_refused(backward({}, run.d_output, {}, d_lambda), name, "state.output");
  expect_refused(backward(state, run.query, {}, d_lambda), name, "d_output");
  expect_refused(backward(state, run.d_output, halved, {}), name, "gradients.query");
  expect_refused(backward(state, run.d_output, {}, three), name, "gradients.lambda");
  expect_refused(backward(state, run.d_output, {}, run.lambda), name, "gradients.lambda");
}

}  // namespace
}  // namespace fovea::testing

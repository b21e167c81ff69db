// Extreme numbers and paths: mods at hidden sites, noise and transitions beside huge scores, and calls that
// take another path than the plan's largest.
#include <gtest/gtest.h>

#include <cmath>

#include "fovea/attention/make_mod.h"
#include "fovea/core/executor.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

Tensor filled(const Shape& shape, const std::vector<double>& values, DType dtype = DType::f32) {
  Tensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    set_element(tensor, i, values[static_cast<std::size_t>(i) % values.size()]);
  return tensor;
}

// A weight mod that is infinite at the first key ahead of the query, under a causal mask.
TEST(Edges, WeightModsOfHiddenKeysNeverMatter) {
  const Mod pole = make_mod("pole", [](auto weight, Site at) {
    using T = elementwise::Scalar<decltype(weight)>;
    return weight / (T(at.query - at.key) + T(1));
  });
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const std::int64_t length : {3, 20, 150}) {
      for (const Score& score : {Score(ScaledDot{}), Score(Coverage{})}) {
        Case c{.name = "pole",
               .spec = {.score = score, .mask = Causal{}, .weight_mods = {pole}},
               .shape = {.query_len = length, .key_len = length, .head_dim = 8, .value_dim = 4, .hidden = 8}};
        const Operands o(c, DType::f32);
        for (const auto& [name, tensor] : run_case(c, o, DType::f32, info.isa).all()) {
          for (std::int64_t i = 0; tensor && i < tensor.count(); ++i)
            ASSERT_TRUE(std::isfinite(element(tensor, i))) << info.isa << " " << length << " " << name;
        }
      }
    }
  }
}

// Noise is added to the difference between a score and the best score. So exactly one key is drawn, and the
// frequencies of the keys do not depend on the size of the scores.
TEST(Edges, SamplesBesideHugeScores) {
  const std::int64_t rows = 4000;
  const Tensor zeros = Tensor::zeros(DType::f32, {1, 1, rows, 1}), weights(DType::f32, {1, 1, rows, 4});
  const double expected[] = {0.0321, 0.0871, 0.2369, 0.6439};  // softmax(0, 1, 2, 3)
  for (const double base : {0.0, 1e5, 1e7}) {
    const Tensor bias = filled({1, 1, 1, 4}, {base, base + 1, base + 2, base + 3}), keys = zeros;
    AttentionInputs in{.query = zeros, .key = ConstTensorView(zeros).slice(2, 0, 4), .value = {}};
    in.arguments.set("mods[0].bias", bias);
    in.sample_seed = 7;
    attend(make_plan({.mods = {DenseBias{}}, .normalizer = HardSample{}},
                     {.query_len = rows, .key_len = 4, .head_dim = 1, .value_dim = 0}),
           in, {.output = {}, .weights = weights});
    double count[4] = {};
    for (std::int64_t i = 0; i < weights.count(); ++i) {
      ASSERT_TRUE(element(weights, i) == 0.0 || element(weights, i) == 1.0) << base;
      count[i % 4] += element(weights, i);
    }
    for (int j = 0; j < 4; ++j) {
      const double deviation = std::sqrt(expected[j] * (1 - expected[j]) / static_cast<double>(rows));
      EXPECT_NEAR(count[j] / static_cast<double>(rows), expected[j], 5 * deviation) << base;
    }
  }
}

// If the neighbour is certainly chosen, a key's weight is sigmoid(transition). A huge potential must not
// swallow the transition.
TEST(Edges, TransitionsBesideHugePotentials) {
  const double transition = 0.37, expected = 1.0 / (1.0 + std::exp(-transition));
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const double potential : {1e2, 1e4, 1e6, 1e8}) {
      for (const bool first : {true, false}) {
        const Tensor zeros = Tensor::zeros(dtype, {1, 1, 1, 1}), keys = Tensor::zeros(dtype, {1, 1, 2, 1}),
                     weights(dtype, {1, 1, 1, 2}),
                     bias = filled({1, 1, 1, 2}, {first ? potential : 0.0, first ? 0.0 : potential}, dtype),
                     transitions = filled({2, 2}, {0, 0, 0, transition}, dtype);
        AttentionInputs in{.query = zeros, .key = keys, .value = {}};
        in.arguments.set("mods[0].bias", bias);
        in.arguments.set("normalizer.transitions", transitions);
        attend(make_plan({.mods = {DenseBias{}}, .normalizer = LinearChain{}},
                         {.query_len = 1, .key_len = 2, .head_dim = 1, .value_dim = 0}, {.dtype = dtype}),
               in, {.output = {}, .weights = weights});
        EXPECT_NEAR(element(weights, first ? 1 : 0), expected, 1e-6) << potential << " " << first;
      }
    }
  }
}

// A call of few queries may run on another kernel than the plan's largest call. The promised workspace must
// be enough for that kernel too.
TEST(Edges, WorkspaceOfADirectCallOfATiledPlan) {
  const AttentionShape shape{.query_len = 5, .key_len = 16, .head_dim = 4096, .value_dim = 1};
  const AttentionPlan plan = make_plan({}, shape);
  const auto pool = make_thread_pool(16);
  std::vector<std::byte> memory(workspace_bytes(plan, 16) + 63),
      back(backward_workspace_bytes(plan, 16) + 63);
  const Case one{
      .name = "one", .spec = {}, .shape = {.query_len = 1, .key_len = 16, .head_dim = 4096, .value_dim = 1}};
  const Operands o(one, DType::f32);
  const Tensor out(DType::f32, {1, 1, 1, 1}), lse(DType::f32, {1, 1, 1}),
      d_query(DType::f32, o.query.shape());
  EXPECT_NO_THROW(attend(plan, o.inputs(one), {.output = out, .log_sum_exp = lse}, {pool.get(), memory}));
  EXPECT_NO_THROW(
      attend_backward(plan, o.inputs(one), out, lse, o.d_output, {.query = d_query}, {pool.get(), back}));
}

// Many equal keys: rows of entmax still sum to 1.
TEST(Edges, EntmaxOfManyEqualKeys) {
  const std::int64_t keys = 100000;
  const Tensor zero = Tensor::zeros(DType::f32, {1, 1, keys, 1}), weights(DType::f32, {1, 1, 1, keys});
  for (const double alpha : {1.01, 1.2, 1.5, 2.0}) {
    attend(make_plan({.normalizer = Entmax{alpha}},
                     {.query_len = 1, .key_len = keys, .head_dim = 1, .value_dim = 0}),
           {.query = ConstTensorView(zero).slice(2, 0, 1), .key = zero, .value = {}},
           {.output = {}, .weights = weights});
    double sum = 0.0;
    for (std::int64_t j = 0; j < keys; ++j) sum += element(weights, j);
    // All weights are equal, so the relative error of a weight is the error of the sum. For alpha 1.5 and 2
    // the search for the threshold adds up 1e5 terms in f32, whose rounding errors can reach 1.5e-4 of the
    // sum. At alpha 1.01 a weight is the 100th power of a rounded number: an error of about 100 eps = 1.2e-5.
    EXPECT_NEAR(sum, 1.0, 2e-4) << alpha;
  }
}

}  // namespace
}  // namespace fovea::testing

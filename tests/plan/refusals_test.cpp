// Refusals of scores, normalisers, weight mods and losses, by the name of the argument.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/alternatives.h"
#include "plan/draws.h"

namespace fovea::testing {
namespace {

const AttentionShape small{.batch = 2,
                           .num_query_heads = 2,
                           .num_kv_heads = 2,
                           .query_len = 4,
                           .key_len = 5,
                           .head_dim = 8,
                           .value_dim = 6,
                           .hidden = 3};
const std::vector<Normalizer> normalizers = alternatives<Normalizer>();

void plan_refused(const AttentionSpec& spec, const PlanOptions& options, const char* argument) {
  expect_refused([&] { make_plan(spec, small, options); }, "make_plan", argument);
}

TEST(Refusals, NormalizersWithoutADerivative) {
  for (const Normalizer& normalizer : normalizers) {
    const PlanOptions required{.derivatives = Derivatives::required};
    if (std::holds_alternative<HardArgmax>(normalizer))
      plan_refused({.normalizer = normalizer}, required, "spec.normalizer");
    else
      EXPECT_NO_THROW(make_plan({.normalizer = normalizer}, small, required));
  }
}

TEST(Refusals, SpecsThatPartsOfTheKeysCannotServe) {
  const PlanOptions part{.keys = Keys::part};
  for (const Normalizer& normalizer : normalizers) {
    if (std::holds_alternative<Softmax>(normalizer) || std::holds_alternative<Sigmoid>(normalizer))
      EXPECT_NO_THROW(make_plan({.normalizer = normalizer}, small, part));
    else
      plan_refused({.normalizer = normalizer}, part, "spec.normalizer");
  }
  plan_refused({.score = Coverage{}}, part, "spec.score");
  // Forward results of these can be merged; their gradients need whole rows.
  const AttentionSpec local{.score = Additive{}, .weight_mods = {LocalGaussian{}}},
      relative{.mods = {AlibiBias{}, RelativeKeyBias{2}}};
  EXPECT_NO_THROW(make_plan(local, small, part));
  EXPECT_NO_THROW(make_plan(relative, small, part));
  const PlanOptions both{.derivatives = Derivatives::required, .keys = Keys::part};
  plan_refused(local, both, "spec.weight_mods");
  plan_refused(relative, both, "spec.mods");
  EXPECT_NO_THROW(make_plan({.score = Additive{}, .mods = {AlibiBias{}}}, small, both));
}

TEST(Refusals, WorkspacesOfNoThreads) {
  const AttentionPlan plan = make_plan({}, small);
  for (const int threads : {0, -1, std::numeric_limits<int>::min()}) {
    expect_refused([&] { workspace_bytes(plan, threads); }, "workspace_bytes", "threads");
    expect_refused([&] { backward_workspace_bytes(plan, threads); }, "backward_workspace_bytes", "threads");
  }
}

TEST(Refusals, ParametersOfNormalizers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double alpha : {1.0, 1.009, 2.001, 0.0, -1.5, nan})
    plan_refused({.normalizer = Entmax{alpha}}, {}, "spec.normalizer");
  for (const double alpha : {1.01, 2.0}) EXPECT_NO_THROW(make_plan({.normalizer = Entmax{alpha}}, small));
  for (const double temperature : {0.0, 9e-4, -1.0, 2e6, nan})
    plan_refused({.normalizer = GumbelSample{temperature}}, {}, "spec.normalizer");
  for (const double bias : {1e30, -1e31, nan})
    plan_refused({.normalizer = Sigmoid{bias}}, {}, "spec.normalizer");
  for (const double value : {0.0, -1.0, 1e31, nan}) {
    expect_refused([&] { Mod(Temperature{value}); }, "Temperature", "value");
    expect_refused([&] { Mod(LocalGaussian{value}); }, "LocalGaussian", "deviation");
  }
  for (const double reach : {-1.0, 1e31, nan})
    expect_refused([&] { Mod(LocalWindow{reach}); }, "LocalWindow", "reach");
  for (const std::int64_t distance : {-1, (1 << 20) + 1})
    expect_refused([&] { Mod(RelativeKeyBias{distance}); }, "RelativeKeyBias", "max_distance");
  plan_refused({.weight_mods = Mods(9, Mod(SoftCap{}))}, {}, "spec.weight_mods");
  plan_refused({.mods = {LocalWindow{2}, SoftCap{5}}}, {}, "spec.mods[1]");
  EXPECT_NO_THROW(make_plan({.mods = {SoftCap{5}, LocalWindow{2}, LocalWindow{3}}}, small));
}

// Operands of a call of `small`, which each test spoils in another way.
struct Example {
  Tensor query = random_tensor(DType::f32, {2, 2, 4, 8}, 1), key = random_tensor(DType::f32, {2, 2, 5, 8}, 2),
         value = random_tensor(DType::f32, {2, 2, 5, 6}, 3), output{DType::f32, {2, 2, 4, 6}},
         weights{DType::f32, {2, 2, 4, 5}}, lse{DType::f32, {2, 2, 4}},
         d_output = random_tensor(DType::f32, {2, 2, 4, 6}, 4);
  Tensor transitions = random_tensor(DType::f32, {2, 2, 2}, 5), W = random_tensor(DType::f32, {3, 8}, 6),
         U = random_tensor(DType::f32, {3, 8}, 7), v = random_tensor(DType::f32, {3}, 8),
         rows = random_tensor(DType::f32, {5, 8}, 9);

  AttentionInputs inputs() const { return {.query = query, .key = key, .value = value}; }
  void refused(const AttentionSpec& spec, const AttentionInputs& in, const char* argument) const {
    expect_refused([&] { attend(make_plan(spec, small), in, {.output = output}); }, "attend", argument);
  }
};

TEST(Refusals, Transitions) {
  const Example e;
  const AttentionSpec chain{.normalizer = LinearChain{}};
  AttentionInputs in = e.inputs();
  e.refused(chain, in, "normalizer.transitions");
  in.arguments.set("normalizer.transitions", e.transitions);
  EXPECT_NO_THROW(attend(make_plan(chain, small), in, {.output = e.output}));
  e.refused({}, in, "normalizer.transitions");  // this normaliser does not have them
  const Tensor wide(DType::f64, {2, 2}), three(DType::f32, {3, 2, 2}), flat(DType::f32, {4});
  for (const Tensor& wrong : {wide, three, flat}) {
    in.arguments.set("normalizer.transitions", wrong);
    e.refused(chain, in, "normalizer.transitions");
  }
  for (const double potential : {minus_infinity, -minus_infinity, std::nan("")}) {
    const Tensor wrong = e.transitions.clone();
    set_element(wrong, 5, potential);
    in.arguments.set("normalizer.transitions", wrong);
    e.refused(chain, in, "normalizer.transitions");
  }
  const std::int64_t apart[] = {8, 2, 1};
  const Tensor memory(DType::f32, {16});
  in.arguments.set("normalizer.transitions", ConstTensorView(memory.raw(), DType::f32, {2, 2, 2}, apart));
  e.refused(chain, in, "normalizer.transitions");
}

TEST(Refusals, ParametersOfScores) {
  const Example e;
  AttentionInputs in = e.inputs();
  in.arguments = {{"score.W", e.W}, {"score.U", e.U}, {"score.v", e.v}};
  const AttentionSpec coverage{.score = Coverage{}};
  e.refused(coverage, in, "score.w");
  in.arguments.set("score.w", e.v);
  EXPECT_NO_THROW(attend(make_plan(coverage, small), in, {.output = e.output}));
  e.refused({.score = Additive{}}, in, "score.w");
  in.arguments = {{"score.w", e.v}};
  e.refused({}, in, "score.w");
  const Tensor four(DType::f32, {4});
  in.arguments = {{"score.W", e.W}, {"score.U", e.U}, {"score.v", e.v}, {"score.w", four}};
  e.refused(coverage, in, "score.w");

  AttentionInputs location = e.inputs();
  location.arguments.set("score.W", e.rows);
  e.refused({.score = Location{}}, location, "key");
  location.key = {};
  EXPECT_NO_THROW(attend(make_plan({.score = Location{}}, small), location, {.output = e.output}));
  location.arguments = {};
  e.refused({.score = Location{}}, location, "score.W");
  const Tensor short_rows(DType::f32, {4, 8}), narrow(DType::f32, {5, 7});
  for (const Tensor& wrong : {short_rows, narrow}) {
    location.arguments.set("score.W", wrong);
    e.refused({.score = Location{}}, location, "score.W");
  }
  location.arguments = {{"score.W", e.rows}, {"score.U", e.U}};
  e.refused({.score = Location{}}, location, "score.U");
}

TEST(Refusals, WeightsAlone) {
  const Example e;
  AttentionShape pointer = small;
  pointer.value_dim = 0;
  const AttentionPlan plan = make_plan({}, pointer);
  AttentionInputs in = e.inputs();
  const auto refused = [&](const AttentionOutputs& outputs, const char* argument) {
    expect_refused([&] { attend(plan, in, outputs); }, "attend", argument);
  };
  refused({.output = {}, .weights = e.weights}, "value");
  in.value = {};
  EXPECT_NO_THROW(attend(plan, in, {.output = {}, .weights = e.weights}));
  refused({.output = e.output, .weights = e.weights}, "output");
  refused({.output = {}}, "weights");
}

TEST(Refusals, ChosenHeadsAndRows) {
  const Example e;
  const AttentionPlan plan = make_plan({}, small);
  const auto chosen = [&](std::vector<std::int64_t> heads, std::vector<std::int64_t> rows,
                          const Tensor& weights, const char* argument) {
    expect_refused(
        [&] {
          attend(plan, e.inputs(),
                 {.output = e.output, .weights = weights, .weight_heads = heads, .weight_rows = rows});
        },
        "attend", argument);
    AttentionLoss loss;
    loss.d_weights = weights;
    loss.weight_heads = heads;
    loss.weight_rows = rows;
    const std::string name = argument == std::string("weights") ? "d_weights" : argument;
    expect_refused([&] { attend_backward(plan, e.inputs(), loss, {}); }, "attend_backward", name);
  };
  AttentionLoss nothing;
  const std::int64_t first[] = {0};
  nothing.output = nothing.d_output = e.d_output;
  nothing.log_sum_exp = e.lse;
  nothing.weight_heads = first;
  expect_refused([&] { attend_backward(plan, e.inputs(), nothing, {}); }, "attend_backward", "d_weights");
  nothing.weight_heads = {};
  EXPECT_NO_THROW(attend_backward(plan, e.inputs(), nothing, {}));
  nothing.d_weights = e.weights;
  expect_refused(
      [&] { attend_backward(make_plan({}, small, {.keys = Keys::part}), e.inputs(), nothing, {}); },
      "attend_backward", "d_weights");
  const Tensor one_head(DType::f32, {2, 1, 4, 5}), one_row(DType::f32, {2, 2, 1, 5});
  for (const std::int64_t wrong : {-1, 2}) chosen({wrong}, {}, one_head, "weight_heads");
  for (const std::int64_t wrong : {-1, 4}) chosen({}, {wrong}, one_row, "weight_rows");
  chosen({0}, {}, one_row, "weights");
  chosen({}, {0, 1}, one_row, "weights");
}

TEST(Refusals, LossesOfNormalizersWithoutADerivative) {
  const Example e;
  const Tensor d_query(DType::f32, {2, 2, 4, 8}), d_value(DType::f32, {2, 2, 5, 6}),
      d_bias(DType::f32, {1, 1, 1, 5}), bias = random_tensor(DType::f32, {1, 1, 1, 5}, 9);
  AttentionInputs in = e.inputs();
  in.arguments = {{"mods[0].bias", bias}};
  AttentionGradients by_scores{.query = d_query}, by_values{.value = d_value},
      by_mods{.arguments = {{"mods[0].bias", d_bias}}};
  for (const auto& [normalizer, argument] :
       {std::pair<Normalizer, const char*>{HardArgmax{}, "gradients"}, {HardSample{}, "loss.advantage"}}) {
    const AttentionPlan plan = make_plan({.mods = {DenseBias{}}, .normalizer = normalizer}, small);
    attend(plan, in, {.output = e.output, .log_sum_exp = e.lse});
    AttentionLoss loss;
    loss.output = e.output;
    loss.log_sum_exp = e.lse;
    loss.d_output = e.d_output;
    for (const AttentionGradients& wanted : {by_scores, by_mods})
      expect_refused([&] { attend_backward(plan, in, loss, wanted); }, "attend_backward", argument);
    EXPECT_NO_THROW(attend_backward(plan, in, loss, by_values));
    if (std::holds_alternative<HardArgmax>(normalizer)) continue;
    loss.advantage = e.lse;
    EXPECT_NO_THROW(attend_backward(plan, in, loss, by_scores));
    // No other normaliser takes an advantage.
    const AttentionPlan soft = make_plan({.mods = {DenseBias{}}}, small);
    expect_refused([&] { attend_backward(soft, in, loss, by_scores); }, "attend_backward", "advantage");
    const Tensor wrong(DType::f32, {2, 2, 5});
    loss.advantage = wrong;
    expect_refused([&] { attend_backward(plan, in, loss, by_scores); }, "attend_backward", "advantage");
  }
}

TEST(Refusals, WeightModsByName) {
  const Example e;
  AttentionInputs in = e.inputs();
  const AttentionSpec spec{.weight_mods = {LocalGaussian{}}};
  e.refused(spec, in, "weight_mods[0].center");
  const Tensor wide(DType::f64, {2, 1, 4, 1}), three(DType::f32, {3, 1, 4, 1});
  for (const Tensor& wrong : {wide, three}) {
    in.arguments.set("weight_mods[0].center", wrong);
    e.refused(spec, in, "weight_mods[0].center");
  }
}

}  // namespace
}  // namespace fovea::testing

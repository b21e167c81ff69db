#include "fovea/train/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fovea/train/trainer.h"

namespace fovea::train {
namespace {

// Least squares of a line through points that lie on it: the minimum is known.
struct Line {
  nn::ParameterSet set{1};
  nn::Parameter& slope = set.constant("slope", {1, 1}, 0.0f);
  nn::Parameter& bias = set.constant("bias", {1}, 0.0f);
  nn::Var loss(nn::Context& context) {
    const std::vector<float> x{-1, 0, 1, 2}, y{-1, 1, 3, 5};  // y = 2 x + 1
    const Tensor inputs = Tensor::from<float>(x, {4, 1}), targets = Tensor::from<float>(y, {4, 1});
    return autograd::squared_error(autograd::linear(inputs, context.use(slope), context.use(bias)), targets);
  }
};

TEST(Fit, FindsAKnownMinimum) {
  Line line;
  std::vector<FitStep> steps;
  const FitStep last = fit(
      line.set, {.updates = 400, .schedule = nn::WarmupCosine{.peak = 0.1, .warmup = 10}},
      [&](nn::Context& context, std::int64_t) { return line.loss(context); },
      [&](const FitStep& step) { steps.push_back(step); });
  EXPECT_NEAR(*line.slope.value.data<float>(), 2.0, 1e-3);
  EXPECT_NEAR(*line.bias.value.data<float>(), 1.0, 1e-3);
  ASSERT_EQ(steps.size(), 400u);
  EXPECT_EQ(steps.front().update, 1);
  EXPECT_EQ(last.update, 400);
  EXPECT_LT(last.loss, 1e-4 * steps.front().loss);
  EXPECT_NEAR(last.learning_rate, 0.0, 1e-12);  // the schedule ends with the training
}

TEST(Fit, RepeatsItselfToTheBit) {
  float slopes[2];
  for (float& slope : slopes) {
    Line line;
    fit(line.set, {.updates = 20, .seed = 5}, [&](nn::Context& context, std::int64_t) {
      return autograd::add(line.loss(context), autograd::sum(context.dropout(context.use(line.bias), 0.5f)));
    });
    slope = *line.slope.value.data<float>();
  }
  EXPECT_EQ(slopes[0], slopes[1]);
}

TEST(Fit, StopsAtALossThatIsNotFinite) {
  Line line;
  std::int64_t seen = 0;
  const auto broken = [&](nn::Context& context, std::int64_t update) {
    seen = update;
    return autograd::scale(line.loss(context), update == 3 ? NAN : 1.0f);
  };
  EXPECT_THROW(fit(line.set, {.updates = 10}, broken), TrainingError);
  EXPECT_EQ(seen, 3);
  EXPECT_TRUE(std::isfinite(*line.slope.value.data<float>()));
}

TEST(Fit, RefusesWhatCannotBeTrained) {
  Line line;
  const auto good = [&](nn::Context& context, std::int64_t) { return line.loss(context); };
  EXPECT_THROW(fit(line.set, {.updates = -1}, good), InvalidArgument);
  EXPECT_THROW(fit(line.set, {.updates = 1}, {}), InvalidArgument);
  EXPECT_THROW(fit(line.set, {.updates = 1}, [](auto&, auto) { return nn::Var(); }), InvalidArgument);
  EXPECT_THROW(
      fit(line.set, {.updates = 1}, [](auto&, auto) { return nn::Var(Tensor::zeros(DType::f32, {2})); }),
      InvalidArgument);
  EXPECT_THROW(fit(line.set, {.updates = 1, .schedule = nn::Constant{-1.0}}, good), InvalidArgument);
  EXPECT_THROW(fit(line.set, {.updates = 1, .adam = {.beta1 = 2.0}}, good), InvalidArgument);
  EXPECT_EQ(*line.slope.value.data<float>(), 0.0f);
}

}  // namespace
}  // namespace fovea::train

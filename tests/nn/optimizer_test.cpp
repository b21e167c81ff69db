// Adam over several units of work against the paper's algorithm in double; its saved state, and bad
// gradients.
#include "fovea/nn/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/core/philox.h"

namespace fovea::nn {
namespace {

void set_gradient(Parameter& parameter, std::uint64_t seed) {
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < parameter.gradient.count(); ++i)
    parameter.gradient.data<float>()[i] = 2.0f * random.next_uniform() - 1.0f;
}

TEST(AdamState, FollowsThePaperForManyElements) {
  ParameterSet set(1);
  Parameter& p = set.normal("p", {33, 1000}, 1.0f);  // more than one unit of work
  const AdamOptions options{.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-9};
  Adam adam(set, options);
  const auto count = static_cast<std::size_t>(p.value.count());
  std::vector<double> value(p.value.data<float>(), p.value.data<float>() + count), m(count), v(count);
  constexpr double rate = 0.01, scale = 0.5;
  constexpr int steps = 5;
  for (int t = 1; t <= steps; ++t) {
    set_gradient(p, static_cast<std::uint64_t>(t));
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      const double g = scale * static_cast<double>(p.gradient.data<float>()[i]);
      sum += g * g;
      m[i] = options.beta1 * m[i] + (1.0 - options.beta1) * g;
      v[i] = options.beta2 * v[i] + (1.0 - options.beta2) * g * g;
      const double m_hat = m[i] / (1.0 - std::pow(options.beta1, t));
      const double v_hat = v[i] / (1.0 - std::pow(options.beta2, t));
      value[i] -= rate * m_hat / (std::sqrt(v_hat) + options.epsilon);
    }
    EXPECT_NEAR(adam.step(rate, scale), std::sqrt(sum), 1e-6 * std::sqrt(sum));
    EXPECT_EQ(adam.steps(), t);
    for (std::size_t i = 0; i < count; ++i) {
      // A step rounds the value once (eps/2 of |value| < 4) and moves it by at most about rate/(1-beta1) with
      // a relative error of some eps, most of it from 1 - beta2 in f32: 1e-5.
      EXPECT_NEAR(static_cast<double>(p.value.data<float>()[i]), value[i], t * (2.4e-7 + 1e-5 * rate));
      EXPECT_EQ(p.gradient.data<float>()[i], 0.0f);
    }
  }
}

// The update of one number after the other, of which each operation is rounded: no vectors, and no fused
// multiply-adds (volatile).
TEST(AdamState, HasTheBitsOfOneNumberAfterTheOther) {
  ParameterSet set(1);
  Parameter& p = set.normal("p", {33001}, 1.0f);
  Adam adam(set, {.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-9});
  const auto count = static_cast<std::size_t>(p.value.count());
  std::vector<float> value(p.value.data<float>(), p.value.data<float>() + count), m(count), v(count);
  for (int t = 1; t <= 3; ++t) {
    set_gradient(p, static_cast<std::uint64_t>(t));
    const auto rate = static_cast<float>(0.01 / (1.0 - std::pow(0.9, t))),
               correction = static_cast<float>(1.0 / (1.0 - std::pow(0.98, t)));
    for (std::size_t i = 0; i < count; ++i) {
      const volatile float g = p.gradient.data<float>()[i] * 0.3f;
      const volatile float old_m = 0.9f * m[i], new_m = (1.0f - 0.9f) * g;
      const volatile float old_v = 0.98f * v[i], half_v = (1.0f - 0.98f) * g, new_v = half_v * g;
      m[i] = old_m + new_m;
      v[i] = old_v + new_v;
      const volatile float root = std::sqrt(v[i] * correction) + 1e-9f, step = rate * m[i] / root;
      value[i] -= step;
    }
    adam.step(0.01, 0.3f);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(p.value.data<float>()[i], value[i]) << t << ", " << i;
  }
}

TEST(AdamState, ScalesGradientsBeforeItClips) {
  // With beta1 = 0 the first moment is the gradient that was used.
  ParameterSet set(1);
  Parameter &a = set.constant("a", {2}, 0.0f), &b = set.constant("b", {1}, 0.0f);
  a.gradient.data<float>()[0] = 3.0f;
  a.gradient.data<float>()[1] = 0.0f;
  b.gradient.data<float>()[0] = 4.0f;
  Adam adam(set, {.beta1 = 0.0, .clip_norm = 1.0});
  EXPECT_NEAR(adam.step(0.1), 5.0, 1e-6);  // the norm before clipping
  EXPECT_NEAR(adam.first_moments()[0].data<float>()[0], 0.6, 1e-6);
  EXPECT_NEAR(adam.first_moments()[1].data<float>()[0], 0.8, 1e-6);
  // Below the limit nothing is scaled; gradient_scale acts before clipping.
  a.gradient.data<float>()[0] = 3.0f;
  b.gradient.data<float>()[0] = 4.0f;
  EXPECT_NEAR(adam.step(0.1, 0.1), 0.5, 1e-6);
  EXPECT_NEAR(adam.first_moments()[0].data<float>()[0], 0.3, 1e-6);
  EXPECT_NEAR(adam.first_moments()[1].data<float>()[0], 0.4, 1e-6);
}

// p = c·x, so the gradient by x is c times the gradient by p. c is a power of two, so that both give the
// same bits.
TEST(AdamState, ARateFactorIsAMultiplierOfAHiddenParameter) {
  constexpr float c = 0.125f;
  ParameterSet hidden_set(1), set(1);
  Parameter &x = hidden_set.normal("x", {50}, 1.0f), &p = set.constant("p", {50}, 0.0f);
  for (int i = 0; i < 50; ++i) p.value.data<float>()[i] = c * x.value.data<float>()[i];
  p.rate_factor = c;
  Adam hidden(hidden_set, {.clip_norm = 0.5}), adam(set, {.clip_norm = 0.5});
  for (std::uint64_t t = 1; t <= 5; ++t) {
    set_gradient(x, t);
    set_gradient(p, t);
    for (int i = 0; i < 50; ++i) p.gradient.data<float>()[i] /= c;
    EXPECT_EQ(adam.step(0.01), hidden.step(0.01));
    for (int i = 0; i < 50; ++i) EXPECT_EQ(p.value.data<float>()[i], c * x.value.data<float>()[i]);
  }
}

TEST(AdamState, ABadGradientChangesNothingAndIsNamed) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ParameterSet set(1);
    Parameter& good = set.normal("encoder.good", {5}, 1.0f);
    Parameter& culprit = set.normal("decoder.culprit", {70000}, 1.0f);  // more than one unit of work
    Adam adam(set, {.clip_norm = 1.0});
    set_gradient(good, 1);
    set_gradient(culprit, 2);
    EXPECT_EQ(adam.first_bad_gradient(), "");
    culprit.gradient.data<float>()[69999] = bad;
    const Tensor before = good.value.clone();
    EXPECT_FALSE(std::isfinite(adam.step(0.1)));
    EXPECT_EQ(adam.first_bad_gradient(), "decoder.culprit");
    EXPECT_EQ(adam.steps(), 0);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(good.value.data<float>()[i], before.data<float>()[i]);
      EXPECT_EQ(adam.first_moments()[0].data<float>()[i], 0.0f);
    }
  }
}

TEST(AdamState, RefusesNumbersThatAreNone) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ParameterSet set(1);
  Parameter& one = set.constant("one", {1}, 2.0f);
  for (const AdamOptions& bad :
       {AdamOptions{.beta1 = 1.0}, AdamOptions{.beta1 = -0.1}, AdamOptions{.beta2 = 1.0},
        AdamOptions{.beta2 = nan}, AdamOptions{.epsilon = 0.0}, AdamOptions{.epsilon = nan},
        AdamOptions{.clip_norm = -1.0}, AdamOptions{.clip_norm = nan}})
    EXPECT_THROW(Adam(set, bad), InvalidArgument);
  Adam adam(set, {});
  one.gradient.fill(1.0);
  for (const double rate : {nan, -0.1, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(adam.step(rate), InvalidArgument);
  EXPECT_EQ(adam.steps(), 0);
  EXPECT_EQ(one.value.data<float>()[0], 2.0f);
  EXPECT_EQ(one.gradient.data<float>()[0], 1.0f);
}

// The parameters of a model that was read packed have shapes and no values.
TEST(AdamState, RefusesParametersWithoutValuesByName) {
  ParameterSet set([](const std::string& name, const Shape& shape) {
    return name == "packed" ? Tensor::without_elements(DType::f32, shape) : Tensor::zeros(DType::f32, shape);
  });
  set.normal("whole", {4}, 1.0f);
  EXPECT_NO_THROW(Adam(set, {}));
  set.normal("packed", {2, 3}, 1.0f);
  try {
    Adam(set, {});
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "Adam");
    EXPECT_EQ(error.argument(), "packed");
  }
}

TEST(AdamState, ContinuesFromItsSavedState) {
  const auto run = [](int steps, Adam& adam, Parameter& p, int from) {
    for (int t = from; t < from + steps; ++t) {
      set_gradient(p, static_cast<std::uint64_t>(t));
      adam.step(0.01);
    }
  };
  ParameterSet whole_set(3), first_set(3), second_set(3);
  Parameter &whole = whole_set.normal("p", {9}, 1.0f), &first = first_set.normal("p", {9}, 1.0f),
            &second = second_set.normal("p", {9}, 1.0f);
  Adam unbroken(whole_set, {}), before(first_set, {}), after(second_set, {});
  run(6, unbroken, whole, 0);
  run(3, before, first, 0);
  second.value = first.value.clone();
  after.first_moments()[0] = before.first_moments()[0].clone();
  after.second_moments()[0] = before.second_moments()[0].clone();
  after.set_steps(before.steps());
  run(3, after, second, 3);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(second.value.data<float>()[i], whole.value.data<float>()[i]);
}

// Vaswani et al. 2017, eq. 3: dim^-0.5 · min(step^-0.5, step · warmup^-1.5) has the same shape.
TEST(LearningRate, HasTheShapeOfThePaper) {
  const InverseSquareRoot decay{.peak = 8e-4, .warmup = 100};
  for (const std::int64_t step : {1, 7, 99, 100, 101, 5000}) {
    const auto t = static_cast<double>(step);
    const double shape = std::min(std::pow(t, -0.5), t * std::pow(100.0, -1.5)) * std::sqrt(100.0);
    EXPECT_NEAR(learning_rate(decay, step), 8e-4 * shape, 1e-15);
  }
  EXPECT_GT(learning_rate(InverseSquareRoot{.peak = 1.0, .warmup = 0}, 1), 0.0);
}

}  // namespace
}  // namespace fovea::nn

// The gradient of a whole model against central differences of its loss, parameter by parameter. This shows
// mistakes that the tests of single ops miss: a Var used twice, a detached path, a wrong slice.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "models/tiny.h"

namespace fovea::models {
namespace {

class Gradient : public testing::TestWithParam<Kind> {};

struct Evaluated {
  double loss;
  std::int64_t tokens;
};

// Dropout is a pure function of the seed, so a loss with dropout can be differentiated too.
Evaluated evaluate(SequenceToSequence& model, const Batch& batch, bool backward) {
  autograd::Tape tape;
  nn::Context context{.tape = &tape, .dropout_seed = 11};
  autograd::CrossEntropyStats stats;
  const nn::Var loss = model.loss(context, batch, {.smoothing = 0.1f}, &stats);
  EXPECT_NEAR(loss.value().data<float>()[0], stats.loss, 1e-5 * stats.loss);
  if (backward) tape.backward(loss);
  return {stats.loss, stats.tokens};
}

double along(SequenceToSequence& model, const Batch& batch, nn::Parameter& parameter,
             const std::vector<double>& direction, double step) {
  const Tensor kept = parameter.value.clone();
  const auto loss_at = [&](double distance) {
    for (std::size_t i = 0; i < direction.size(); ++i) {
      parameter.value.data<float>()[i] =
          static_cast<float>(static_cast<double>(kept.data<float>()[i]) + distance * direction[i]);
    }
    return evaluate(model, batch, false).loss;
  };
  const double difference = (loss_at(step) - loss_at(-step)) / (2.0 * step);
  std::copy_n(kept.data<float>(), kept.count(), parameter.value.data<float>());
  return difference;
}

void unit(std::vector<double>& v) {
  double squares = 0.0;
  for (const double x : v) squares += x * x;
  for (double& x : v) x /= std::sqrt(squares);
}

// RWKV-7's mixture of a layer's values with those of the first has no use in the first.
bool mixes_no_values(const std::string& name) {
  return name.find("layers.0.mixer") != std::string::npos &&
         (name.find(".v_down.") != std::string::npos || name.find(".v_up.") != std::string::npos);
}

void check(SequenceToSequence& model, const Batch& batch, double step) {
  const Evaluated at = evaluate(model, batch, true);
  // Each token's loss is a log-sum-exp of f32 logits. Its error is a few roundings of numbers about as
  // large as itself.
  const double noise = 4.0 * std::numeric_limits<float>::epsilon() * at.loss;
  PhiloxStream random(5);
  for (nn::Parameter& parameter : model.parameters().all()) {
    SCOPED_TRACE(parameter.name);
    if (mixes_no_values(parameter.name)) continue;
    const float* g = parameter.gradient.data<float>();
    const auto count = static_cast<std::size_t>(parameter.gradient.count());
    std::vector<double> steepest(g, g + count), scattered(count);
    double norm = 0.0;
    for (const double x : steepest) norm += x * x;
    norm = std::sqrt(norm);
    ASSERT_GT(norm, 0.0) << "the loss does not reach this parameter";
    for (double& x : scattered) x = random.next_uniform() < 0.5f ? -1.0 : 1.0;
    unit(steepest);
    unit(scattered);
    for (const auto& direction : {steepest, scattered}) {
      double expected = 0.0;
      for (std::size_t i = 0; i < count; ++i) expected += static_cast<double>(g[i]) * direction[i];
      const double fine = along(model, batch, parameter, direction, step),
                   coarse = along(model, batch, parameter, direction, 2.0 * step);
      // The truncation error falls with step²: the difference of the two results is about three times the
      // error of `fine`.
      const double tolerance = std::abs(coarse - fine) + noise / step;
      EXPECT_NEAR(fine, expected, tolerance);
      EXPECT_LT(tolerance, 0.1 * norm + 2.0 * noise / step) << "too coarse to tell right from wrong";
    }
  }
  EXPECT_EQ(at.tokens, 3 + 6 + 2);
}

// A central difference across a ReLU's corner is no derivative. Large biases keep every ReLU on one of its
// two sides, half of them open. The op's own test covers the corner.
void open_or_shut_relus(SequenceToSequence& model) {
  for (nn::Parameter& parameter : model.parameters().all()) {
    if (!parameter.name.ends_with("fc1.bias")) continue;
    for (std::int64_t i = 0; i < parameter.value.count(); ++i)
      parameter.value.data<float>()[i] = i % 2 == 0 ? 6.0f : -6.0f;
  }
}

Batch batch_of_three() {
  return make_batch({{4, 5, 6}, {7, 8, 9, 10, 5}, {12}}, {{5, 4}, {9, 8, 7, 6, 11}, {12}});
}

TEST_P(Gradient, EqualsCentralDifferences) {
  const auto model = GetParam().make(0.0f, 3);
  perturb(*model, 17);
  open_or_shut_relus(*model);
  check(*model, batch_of_three(), GetParam().step);
}

TEST_P(Gradient, HoldsThroughDropout) {
  const auto model = GetParam().make(0.25f, 4);
  perturb(*model, 18);
  open_or_shut_relus(*model);
  check(*model, batch_of_three(), GetParam().step);
}

INSTANTIATE_TEST_SUITE_P(Models, Gradient, testing::ValuesIn(every_kind()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(WithoutConfig, Gradient, testing::ValuesIn(kinds_without_config()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fovea::models

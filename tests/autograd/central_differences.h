// Gradients of an op against central differences. Values are f32, the loss is summed in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "fovea/autograd/ops.h"
#include "fovea/core/philox.h"

namespace fovea::autograd {

using Function = std::function<Var(const std::vector<Var>&)>;

inline Parameter parameter(Shape shape, std::uint64_t seed, float away_from_zero = 0.0f) {
  Parameter p{"p" + std::to_string(seed), Tensor(DType::f32, shape), Tensor::zeros(DType::f32, shape)};
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    const float value = 2.0f * random.next_uniform() - 1.0f;
    p.value.data<float>()[i] = value + (value < 0 ? -away_from_zero : away_from_zero);
  }
  return p;
}

// Σ w_i y_i with fixed weights, so that every output element matters differently.
inline double weigh(const Tensor& y) {
  PhiloxStream random(99);
  double sum = 0.0;
  for (std::int64_t i = 0; i < y.count(); ++i)
    sum += (2.0 * random.next_uniform() - 1.0) * static_cast<double>(y.data<float>()[i]);
  return sum;
}

// The same sum as a recorded op.
inline Var weighed(const Var& y) {
  Tensor weights(DType::f32, {1, y.value().count()});
  PhiloxStream random(99);
  for (std::int64_t i = 0; i < weights.count(); ++i)
    weights.data<float>()[i] = static_cast<float>(2.0 * random.next_uniform() - 1.0);
  return linear(reshape(y, {1, y.value().count()}), Var(weights), Var());
}

// Central differences of step h: error h²·(third derivative) + eps·|y|·sqrt(n)/h. With h = 1e-2 and values of
// order 1 both are near 1e-4.
inline void check(std::vector<Parameter> parameters, const Function& function, double tolerance = 3e-3) {
  {
    Tape tape;
    std::vector<Var> vars;
    for (Parameter& p : parameters) vars.push_back(tape.use(p));
    const Var y = function(vars);
    tape.backward(y.value().count() == 1 ? y : reshape(weighed(y), {1}));
  }
  const auto loss = [&] {
    std::vector<Var> vars;
    for (const Parameter& p : parameters) vars.emplace_back(p.value);
    const Tensor y = function(vars).value();
    return y.count() == 1 ? static_cast<double>(y.data<float>()[0]) : weigh(y);
  };
  const float h = 1e-2f;
  for (Parameter& p : parameters) {
    for (std::int64_t i = 0; i < p.value.count(); i += 1 + p.value.count() / 23) {
      float& x = p.value.data<float>()[i];
      const float at = x;
      x = at + h;
      const double up = loss();
      x = at - h;
      const double down = loss();
      x = at;
      const double gradient = p.gradient.data<float>()[i];
      ASSERT_NEAR((up - down) / (2.0 * static_cast<double>(h)), gradient,
                  tolerance * (1.0 + std::abs(gradient)))
          << p.name << "[" << i << "]";
    }
  }
}

}  // namespace fovea::autograd

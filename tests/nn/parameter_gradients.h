// The gradients of all parameters of a set against central differences of a loss.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fovea/nn/module.h"

namespace fovea::nn {

/// Adds noise, because parameters that are as they start, zeros and ones, would hide a mistake.
inline void disturb(ParameterSet& set) {
  for (Parameter& parameter : set.all()) {
    const Tensor noise = Tensor::normal(parameter.value.shape(), 7);
    for (std::int64_t i = 0; i < noise.count(); ++i)
      parameter.value.data<float>()[i] += 0.2f * noise.data<float>()[i];
  }
}

/// `rows`: what a layer makes of the set's parameters, of which an input may be one. The loss is their sum
/// with fixed weights: some hundred terms of order 1, whose rounding of 1e-5 is divided by 2h. A larger step
/// would leave the neighbourhood in which the norm of a small output is smooth.
inline void expect_gradients(ParameterSet& set, const std::function<Var(Context&)>& rows) {
  const auto loss = [&](autograd::Tape* tape) {
    Context context{.tape = tape};
    const Var y = rows(context);
    const std::int64_t count = y.value().count();
    return autograd::linear(reshape(y, {1, count}), Var(Tensor::normal({1, count}, 5)), Var());
  };
  autograd::Tape tape;
  tape.backward(loss(&tape));
  const float h = 2e-3f;
  for (Parameter& parameter : set.all()) {
    for (std::int64_t i = 0; i < parameter.value.count(); i += 1 + parameter.value.count() / 7) {
      float& x = parameter.value.data<float>()[i];
      const float at = x;
      x = at + h;
      const double up = static_cast<double>(*loss(nullptr).value().data<float>());
      x = at - h;
      const double down = static_cast<double>(*loss(nullptr).value().data<float>());
      x = at;
      const double gradient = static_cast<double>(parameter.gradient.data<float>()[i]);
      EXPECT_NEAR((up - down) / (2.0 * static_cast<double>(h)), gradient, 2e-2 * (1.0 + std::abs(gradient)))
          << parameter.name << "[" << i << "]";
    }
  }
}

}  // namespace fovea::nn

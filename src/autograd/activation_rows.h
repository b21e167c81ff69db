// Activations of numbers side by side, for ops that apply them to a part of a product.
#pragma once

#include <cstdint>

#include "fovea/autograd/ops.h"

namespace fovea::autograd {

/// y = f(x). y may be x.
using ActivationFunction = void (*)(const float* x, std::int64_t n, float* y);
ActivationFunction value_of(Activation activation);
/// The same for results that are rounded to bf16 at once, with a relative error of up to 3.9e-3. gelu and
/// gelu_tanh take fewer steps, and have a relative error of 1e-4 or an absolute one of 2.5e-7. Others are
/// those of value_of.
ActivationFunction short_value_of(Activation activation);

/// y = factor ∘ y.
void multiply_by(const float* factor, std::int64_t n, float* y);

}  // namespace fovea::autograd

// Activations of numbers side by side, for ops that apply them to a part of a product.
#pragma once

#include <cstdint>

#include "fovea/autograd/ops.h"

namespace fovea::autograd {

/// y = f(x). y may be x.
using ActivationFunction = void (*)(const float* x, std::int64_t n, float* y);
ActivationFunction value_of(Activation activation);

/// y = factor ∘ y.
void multiply_by(const float* factor, std::int64_t n, float* y);

}  // namespace fovea::autograd

// Operands of products.
#pragma once

#include <cstdint>

#include "fovea/core/dtype.h"
#include "fovea/core/philox.h"
#include "fovea/core/tensor.h"

namespace fovea::autograd {

/// Uniform in [-1, 1).
inline Tensor drawn(const Shape& shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    tensor.data<float>()[i] = 2.0f * static_cast<float>(random.next_uniform()) - 1.0f;
  return tensor;
}

inline double rounded_to_bf16(float x) {
  return static_cast<float>(bfloat16(x));
}

}  // namespace fovea::autograd

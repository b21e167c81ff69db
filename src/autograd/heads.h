// The heads of a row as a view.
#pragma once

#include <cstdint>

#include "fovea/core/tensor.h"

namespace fovea::autograd {

/// [B, L, heads * dim] seen as [B, heads, L, dim].
inline TensorView heads_of(const Tensor& tensor, std::int64_t heads) {
  const std::int64_t batch = tensor.size(0), length = tensor.size(1), width = tensor.size(2),
                     dim = width / heads;
  const std::int64_t strides[] = {length * width, dim, width, 1};
  return {tensor.raw(), tensor.dtype(), Shape{batch, heads, length, dim}, strides};
}

}  // namespace fovea::autograd

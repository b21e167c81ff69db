// Pointers with strides, as kernels of both families read and write them.
#pragma once

#include <cstdint>

namespace fovea::kernels {

/// A 4-D operand [batch, heads, rows, dim], innermost contiguous; strides in elements.
template <class Pointer>
struct Operand {
  Pointer data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  auto* row(std::int64_t b, std::int64_t h, std::int64_t r) const {
    return data + b * batch_stride + h * head_stride + r * row_stride;
  }
};

}  // namespace fovea::kernels

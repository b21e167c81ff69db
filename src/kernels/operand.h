// Pointers with strides, as kernels of both families read and write them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fovea/core/dtype.h"

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

/// Tensors [entries, len, dim] in the type of the caller. The innermost axis is contiguous; strides in
/// elements. `data` is null where there is no such tensor.
template <class Byte>
struct StoredRows {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t entry_stride = 0, row_stride = 0;

  std::size_t element_size() const { return size_of(dtype); }
};

/// The same with heads: [batch, heads, rows, dim].
template <class Byte>
struct StoredOperand {
  Byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  StoredRows<Byte> head(std::int64_t h) const {
    return {data + h * head_stride * static_cast<std::int64_t>(size_of(dtype)), dtype, batch_stride,
            row_stride};
  }
};

}  // namespace fovea::kernels

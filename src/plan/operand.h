// Conversions between views and the operands of kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fovea/core/tensor.h"
#include "kernels/problem.h"

namespace fovea {

template <class T>
kernels::Operand<T*> operand_of(const TensorView& view) {
  return {view.data<T>(), view.stride(0), view.stride(1), view.stride(2)};
}
template <class T>
kernels::Operand<const T*> operand_of(const ConstTensorView& view) {
  return {view.data<T>(), view.stride(0), view.stride(1), view.stride(2)};
}
/// The reverse: a view of an operand's rows, with this shape.
template <class Pointer>
auto view_of(const kernels::Operand<Pointer>& operand, const Shape& shape) {
  using T = std::remove_pointer_t<Pointer>;
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  const std::array<std::int64_t, 4> strides{operand.batch_stride, operand.head_stride, operand.row_stride, 1};
  return BasicTensorView<Byte>(reinterpret_cast<Byte*>(operand.data), dtype_of<std::remove_const_t<T>>, shape,
                               strides);
}
/// The elements of a view, or null where there is none.
template <class T, class View>
auto* data_or_null(const View& view) {
  using Pointer = decltype(view.template data<T>());
  return view ? view.template data<T>() : Pointer(nullptr);
}
template <class T>
kernels::Operand<const T*> read_only(const kernels::Operand<T*>& operand) {
  return {operand.data, operand.batch_stride, operand.head_stride, operand.row_stride};
}
/// The operand of contiguous [batch, heads, rows, dim].
template <class Pointer>
kernels::Operand<Pointer> contiguous_operand(Pointer data, std::int64_t heads, std::int64_t rows,
                                             std::int64_t dim) {
  return {data, heads * rows * dim, rows * dim, dim};
}

}  // namespace fovea

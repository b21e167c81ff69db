// Operations on views [batch, heads, rows, dim] of every dtype, for plans and for the mechanisms that are
// composed of calls of attend.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"
#include "plan/checks.h"
#include "plan/operand.h"
#include "plan/projection.h"

namespace fovea {

/// Calls f(T{}) for the element type T of `dtype`.
template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(bfloat16{});
    case DType::f16:
      return f(float16{});
    case DType::f32:
      break;
  }
  return f(float{});
}
/// Calls f(T{}) for the type in which elements of `dtype` are computed.
template <class F>
decltype(auto) with_wide_type(DType dtype, F&& f) {
  return dtype == DType::f64 ? f(double{}) : f(float{});
}
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
inline DType wide_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// check_view, and `view` must be contiguous.
void check_contiguous(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                      const Shape& shape);
/// `view` must have four axes; `axes` describes them in the error.
void check_four_axes(const char* function, const char* argument, const ConstTensorView& view,
                     const char* axes);

/// Whether both views have the same elements at the same addresses.
bool same_view(const ConstTensorView& a, const ConstTensorView& b);

/// The projection by `matrix` [out, in], or [heads, out, in] with one for each head. It has only its sizes
/// where there is no matrix.
template <class T>
Projection<T> projection_of(const ConstTensorView& matrix, std::int64_t out, std::int64_t in,
                            const ConstTensorView& bias = {}) {
  if (!matrix) return {.out = out, .in = in};
  const bool each_head = matrix.rank() == 3;
  return {matrix.data<T>(),      out,      in, matrix.stride(-2), each_head ? matrix.stride(0) : 0,
          data_or_null<T>(bias), each_head};
}

inline RowSizes rows_of(const ConstTensorView& view) {
  return {view.size(0), view.size(1), view.size(2)};
}

/// to ← from for the selected rows. Both have four axes and the same shape; any dtypes and strides.
void copy_rows(const ConstTensorView& from, const TensorView& to, Executor& executor,
               const RowSelection& selected = {});
/// to ← to + from. Both have at most four axes, the same shape and the same dtype; any strides. Sums of
/// 16-bit elements are rounded once.
void add_rows(const ConstTensorView& from, const TensorView& to, Executor& executor);
/// `view` itself, or a copy in the dtype in which it is computed; `copy` then owns the copy.
ConstTensorView widened(const ConstTensorView& view, Tensor& copy, Executor& executor);

/// Sets every element to 0, for any rank. Does nothing for an empty view.
void clear_rows(const TensorView& view, Executor& executor = serial_executor());

}  // namespace fovea

// Views [batch, heads, rows, dim] in every dtype: what the mechanisms that are composed of calls of attend
// share.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"
#include "plan/checks.h"
#include "plan/projection.h"

namespace fovea {

/// f(T{}) for the element type T of `dtype`.
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
/// f(T{}) for the type that elements of `dtype` are computed in.
template <class F>
decltype(auto) with_wide_type(DType dtype, F&& f) {
  return dtype == DType::f64 ? f(double{}) : f(float{});
}
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
inline DType wide_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// check_view, and contiguous.
void check_contiguous(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                      const Shape& shape);
/// `view` has four axes, `axes` in words.
void check_four_axes(const char* function, const char* argument, const ConstTensorView& view,
                     const char* axes);

/// The same elements in the same places.
bool same_view(const ConstTensorView& a, const ConstTensorView& b);

inline RowSizes rows_of(const ConstTensorView& view) {
  return {view.size(0), view.size(1), view.size(2)};
}

/// to ← from, both of four axes and one shape, any dtypes and strides; the rows asked for.
void copy_rows(const ConstTensorView& from, const TensorView& to, Executor& executor,
               const RowSelection& selected = {});
/// to ← to + from, both of at most four axes, one shape and one dtype, any strides; sums of 16-bit elements
/// are rounded once.
void add_rows(const ConstTensorView& from, const TensorView& to, Executor& executor);
/// `view` itself, or a copy of it in the dtype it is computed in, which `copy` then owns.
ConstTensorView widened(const ConstTensorView& view, Tensor& copy, Executor& executor);

/// 0 into every element, of any rank; nothing where the view is empty.
void clear_rows(const TensorView& view);

}  // namespace fovea

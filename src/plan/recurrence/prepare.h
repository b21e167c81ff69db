// The problem of a call: operands behind their features, and with a column of ones where the sum of keys is
// wanted.
#pragma once

#include <cstdint>
#include <span>

#include "plan/operand.h"
#include "plan/recurrence/check.h"
#include "plan/recurrence/token_rows.h"
#include "plan/workspace.h"

namespace fovea {

/// About how many multiply-adds the outputs of a call take: a token reads its state, decays it and writes it.
inline double multiply_adds(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes) {
  const RecurrenceShape& s = plan.shape;
  return 3.0 * static_cast<double>(sizes.entries * sizes.len * s.num_heads) *
         static_cast<double>(s.key_dim * s.value_dim);
}

/// The rows of a view, or of an operand in the workspace, as kernels take them.
inline kernels::StoredOperand<const std::byte> stored_operand(const ConstTensorView& view) {
  if (!view) return {};
  return {view.raw(), view.dtype(), view.stride(0), view.stride(1), view.stride(2)};
}
inline kernels::StoredOperand<std::byte> stored_operand(const TensorView& view) {
  if (!view) return {};
  return {view.raw(), view.dtype(), view.stride(0), view.stride(1), view.stride(2)};
}
template <class T>
kernels::StoredOperand<std::byte> stored_operand(const kernels::Operand<T*>& copy) {
  return {reinterpret_cast<std::byte*>(copy.data), dtype_of<T>, copy.batch_stride, copy.head_stride,
          copy.row_stride};
}
inline kernels::StoredOperand<const std::byte> read_only(const kernels::StoredOperand<std::byte>& rows) {
  return {rows.data, rows.dtype, rows.batch_stride, rows.head_stride, rows.row_stride};
}

/// Gates, beta and self-weights: [batch, heads, len], a constant decay [heads], or four axes.
template <class T, class View>
auto weight_operand(const View& view) {
  using Pointer = decltype(view.template data<T>());
  if (!view) return kernels::Operand<Pointer>{};
  if (view.rank() == 1) return kernels::Operand<Pointer>{view.template data<T>(), 0, view.stride(0), 0};
  return kernels::Operand<Pointer>{view.template data<T>(), view.stride(0), view.stride(1), view.stride(2)};
}

/// Rows of every entry's tensors.
struct TokenRows {
  std::int64_t first = 0, count = 0;
};
inline TokenRows all_rows(const RecurrenceSizes& sizes) {
  return {0, sizes.len};
}

/// A contiguous operand in the workspace. It has memory for these rows alone, under their numbers in the
/// call.
template <class T>
kernels::Operand<T*> take_operand(const RecurrenceSizes& sizes, const TokenRows& rows, std::int64_t heads,
                                  std::int64_t dim, Carver& carver) {
  T* memory = carver.take<T>(sizes.entries * heads * rows.count * dim);
  return contiguous_operand<T*>(memory ? memory - rows.first * dim : nullptr, heads, rows.count, dim);
}

/// The problem of the sequences' tokens, which lie in `rows`. Without an executor nothing is read, and the
/// carver only counts.
template <class T>
kernels::RecurrenceProblem<T> prepare_recurrence(const RecurrencePlan::Impl& plan,
                                                 const RecurrenceInputs& inputs, const RecurrenceSizes& sizes,
                                                 const TokenRows& rows,
                                                 std::span<const kernels::TokenSequence> sequences,
                                                 Carver& carver, Executor* executor);

/// d_x ← d_features ∘ the derivative of the features by x.
template <class T>
void features_backward(const RecurrencePlan::Impl& plan, const ConstTensorView& x,
                       const kernels::Operand<T*>& d_features, const TensorView& d_x,
                       std::span<const kernels::TokenSequence> sequences, Executor& executor);

}  // namespace fovea

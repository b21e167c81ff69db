// The problem of a call: operands behind their features, and with a column of ones where the sum of keys is
// wanted.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "fovea/core/executor.h"
#include "kernels/recurrence/problem.h"
#include "kernels/simd/convert.h"
#include "plan/operand.h"
#include "plan/recurrence/check.h"
#include "plan/rows.h"

namespace fovea {

/// The rows of all sequences and heads, of at most `dim` numbers each.
struct RowsOfTokens {
  std::span<const kernels::TokenSequence> sequences;
  std::int64_t heads = 0, dim = 0;
};

/// f(sequence, head) for all of them. 2^15 numbers take the calling thread some 5 µs, and sharing them out
/// takes as long: `fovea bench recurrence --only elu --len 64` has the rows of one token.
template <class F>
void for_heads_of_sequences(const RowsOfTokens& of, Executor& executor, F f) {
  constexpr std::int64_t most_alone = 1 << 15;
  std::int64_t tokens = 0;
  for (const kernels::TokenSequence& sequence : of.sequences) tokens += sequence.count;
  Executor& chosen = tokens * of.heads * of.dim <= most_alone ? serial_executor() : executor;
  chosen.parallel_for(std::ssize(of.sequences) * of.heads, [&](std::int64_t unit, int) {
    f(of.sequences[static_cast<std::size_t>(unit / of.heads)], unit % of.heads);
  });
}

/// f(entry, head, row) for every token that counts.
template <class F>
void for_token_rows(const RowsOfTokens& of, Executor& executor, F f) {
  for_heads_of_sequences(of, executor, [&](const kernels::TokenSequence& sequence, std::int64_t head) {
    for (std::int64_t i = 0; i < sequence.count; ++i) f(sequence.entry, head, sequence.row(i));
  });
}

/// f(entry, head, first row, count) for rows that follow each other, in the same order: all of a sequence
/// without padding, else each alone.
template <class F>
void for_token_runs(const RowsOfTokens& of, Executor& executor, F f) {
  for_heads_of_sequences(of, executor, [&](const kernels::TokenSequence& sequence, std::int64_t head) {
    if (!sequence.rows) return f(sequence.entry, head, sequence.begin, sequence.count);
    for (std::int64_t i = 0; i < sequence.count; ++i) f(sequence.entry, head, sequence.row(i), 1);
  });
}

/// The row of a view [batch, heads, len, dim].
template <class S, class View>
auto* row_pointer(const View& view, std::int64_t entry, std::int64_t head, std::int64_t row) {
  return view.template data<S>() + entry * view.stride(0) + head * view.stride(1) + row * view.stride(2);
}

template <class T>
void read_row(const ConstTensorView& view, std::int64_t entry, std::int64_t head, std::int64_t row, T* to) {
  const std::int64_t dim = view.size(3);
  with_type(view.dtype(), [&](auto element) {
    using S = decltype(element);
    const S* from = row_pointer<S>(view, entry, head, row);
    if constexpr (std::is_same_v<S, T>) {
      std::memcpy(to, from, static_cast<std::size_t>(dim) * sizeof(T));
    } else if constexpr (sizeof(S) == 2 && std::is_same_v<T, float>) {
      kernels::widen(from, dim, to);
    } else {
#pragma omp simd
      for (std::int64_t d = 0; d < dim; ++d) to[d] = static_cast<T>(static_cast<Wide<S>>(from[d]));
    }
  });
}
template <class T>
void write_row(const T* from, const TensorView& view, std::int64_t entry, std::int64_t head,
               std::int64_t row) {
  const std::int64_t dim = view.size(3);
  with_type(view.dtype(), [&](auto element) {
    using S = decltype(element);
    S* to = row_pointer<S>(view, entry, head, row);
    if constexpr (std::is_same_v<S, T>) {
      std::memcpy(to, from, static_cast<std::size_t>(dim) * sizeof(T));
    } else if constexpr (sizeof(S) == 2 && std::is_same_v<T, float>) {
      kernels::narrow(from, dim, to);
    } else {
#pragma omp simd
      for (std::int64_t d = 0; d < dim; ++d) to[d] = static_cast<S>(static_cast<Wide<S>>(from[d]));
    }
  });
}

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

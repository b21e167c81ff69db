// Loops over the tokens of a call, and reading and writing their rows.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "fovea/core/executor.h"
#include "kernels/recurrence/problem.h"
#include "kernels/simd/convert.h"
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

}  // namespace fovea

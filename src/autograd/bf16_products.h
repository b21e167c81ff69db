// Products of operands that are rounded to bf16 (to nearest even), exact and summed in f32. On CPUs with
// AVX512_BF16 by vdpbf16ps, elsewhere the rounded numbers are multiplied in f32.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/gemm.h"
#include "autograd/packed_products.h"
#include "core/cpu.h"

namespace fovea::autograd {

/// The product of f32 operands that are rounded on the way, on the calling thread. Each element is one chain
/// of sums in the order of k, begun with the bias or with c. Requires cpu_has_avx512_bf16().
void bf16_block_dot(const ProductBlock& block);
/// The same on any CPU, by sgemm of copies that hold the rounded numbers. Its sums have another order.
void bf16_block_any(const ProductBlock& block);

/// From one row of so many pairs to the next. Rows whole KiB apart would take few sets of the first-level
/// cache, and a tile reads twelve rows at once.
constexpr std::int64_t bf16_row_stride(std::int64_t pairs) {
  constexpr std::int64_t line = 16, kibibyte = 256;
  const std::int64_t lines = (pairs + line - 1) / line * line;
  return lines % kibibyte == 0 ? lines + line : lines;
}

/// Rows of x, `stride` numbers apart, as pairs side by side, `to_stride` pairs apart. Requires
/// cpu_has_avx512_bf16().
void bf16_round_rows_dot(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t in,
                         std::uint32_t* to, std::int64_t to_stride);
/// The same on any CPU without `dot`.
void bf16_round_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t in,
                     std::uint32_t* to, std::int64_t to_stride, bool dot = cpu_has_avx512_bf16());
/// Rows [row, end) by the columns [column, last) of p, where x holds its rows as bf16_rows makes them.
/// `column` begins a panel. Requires cpu_has_avx512_bf16().
void bf16_packed_dot(const PackedProducts& p, const std::uint32_t* x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last);

/// The rows of p.x as pairs, bf16_row_stride(p.weight->pairs()) apart; p.x_stride is set.
std::unique_ptr<std::uint32_t[]> bf16_rows(const PackedProducts& p, Executor& executor, bool dot);
/// A block of a product with a bf16 matrix, by rows that bf16_rows made. With `dot` by vdpbf16ps, else by
/// code that every CPU runs; the bits of the two differ. An element is one chain of sums in the order of the
/// columns, begun with the bias. So a row has the same bits in any batch.
void bf16_block(const PackedProducts& p, const std::uint32_t* x, const ProductBlockAt& at, bool dot);

}  // namespace fovea::autograd

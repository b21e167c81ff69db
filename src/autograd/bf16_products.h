// Products of operands that are rounded to bf16 (to nearest even), exact and summed in f32: by the tiles of
// AMX, by the vdpbf16ps of AVX512_BF16, or in f32.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/gemm.h"
#include "autograd/packed_products.h"
#include "core/cpu.h"

namespace fovea::autograd {

/// Ways to compute them, whose sums have different orders: code that every CPU runs, and by instructions that
/// some have.
enum class Bf16Path : std::uint8_t { any, dots, tiles };
/// Whether this CPU and system run it. The first call with `tiles` asks the system for AMX's registers.
bool runs_here(Bf16Path path) noexcept;
/// The last of them that runs here. (On an Intel without AMX `any` might be faster than dots. That was not
/// measured.)
Bf16Path best_bf16_path() noexcept;

/// The product of f32 operands that are rounded on the way, on the calling thread. Each element is one chain
/// of sums in the order of k, begun with the bias or with c. Requires cpu_has_avx512_bf16().
void bf16_block_dot(const ProductBlock& block);
/// The same by tiles. Requires runs_here(Bf16Path::tiles).
void bf16_block_tiles(const ProductBlock& block);
/// The same on any CPU, by products of f32 copies that hold the rounded numbers.
void bf16_block_any(const ProductBlock& block);
/// One of the three.
inline auto bf16_block_by(Bf16Path path) {
  return path == Bf16Path::tiles  ? bf16_block_tiles
         : path == Bf16Path::dots ? bf16_block_dot
                                  : bf16_block_any;
}

/// From one row of so many pairs to the next. Rows whole KiB apart would take few sets of the first-level
/// cache, and a tile reads twelve rows at once.
constexpr std::int64_t bf16_row_stride(std::int64_t pairs) {
  constexpr std::int64_t line = 16, kibibyte = 256;
  const std::int64_t lines = (pairs + line - 1) / line * line;
  return lines % kibibyte == 0 ? lines + line : lines;
}

/// Whether products read rows of so many numbers of bf16, without gaps, where they lie. A row must be whole
/// pairs, and twelve rows must fall into enough sets of the first-level cache: rows of 1 KiB do, those of
/// 2 KiB are copied. Tiles of AMX would read rows behind the last.
bool bf16_rows_lie_well(std::int64_t in) noexcept;

/// Rows of x, `stride` numbers apart, as pairs side by side, `to_stride` pairs apart. Requires
/// cpu_has_avx512_bf16().
void bf16_round_rows_dot(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t in,
                         std::uint32_t* to, std::int64_t to_stride);
/// The same on any CPU without `dot`.
void bf16_round_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t in,
                     std::uint32_t* to, std::int64_t to_stride, bool dot = cpu_has_avx512_bf16());
/// Rows of f32, `stride` numbers apart, as rows of bf16 that are operands of products or of attention,
/// `to_stride` numbers apart. CPUs with AVX512_BF16 take subnormal numbers as 0, as their products do.
void bf16_narrow_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width,
                      bfloat16* to, std::int64_t to_stride);
/// Rows [row, end) by the columns [column, last) of p, where x holds its rows. `column` begins a panel.
/// Requires cpu_has_avx512_bf16().
void bf16_packed_dot(const PackedProducts& p, const Bf16Rows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last);
/// The same, tile by tile, for `each`: ProductRows::multiply_in_pieces.
void bf16_packed_dot_pieces(const PackedProducts& p, const Bf16Rows& x, const ProductBlockAt& at,
                            const ProductPiece& each);
/// The same by tiles, which read the memory of whole tiles of rows (bf16_pairs). Requires
/// runs_here(Bf16Path::tiles).
void bf16_packed_tiles(const PackedProducts& p, const Bf16Rows& x, std::int64_t row, std::int64_t end,
                       std::int64_t column, std::int64_t last);

/// Memory for so many rows of pairs, `stride` pairs apart, of which a tile may read 15 rows more.
std::shared_ptr<std::uint32_t[]> bf16_pairs(std::int64_t rows, std::int64_t stride);
/// The rows of p.x as pairs, bf16_row_stride(p.weight->pairs()) apart; p.x_stride is set.
std::shared_ptr<std::uint32_t[]> bf16_rows(const PackedProducts& p, Executor& executor);
/// A block of a product with a bf16 matrix, of at least one row. An element is begun with the bias,
/// and its products are added in an order that the path and the number of columns set. So a row has the same
/// bits in any batch.
void bf16_block(const PackedProducts& p, const Bf16Rows& x, const ProductBlockAt& at, Bf16Path path);

}  // namespace fovea::autograd

// Matrix products: of f32 by tiles (f32_products.cpp) or, of few rows or one column, by row_products.h, and
// of bf16 (bf16_products.h).
#pragma once

#include <cstdint>

#include "fovea/autograd/operands.h"
#include "fovea/core/tensor.h"

namespace fovea {
class Executor;
}

namespace fovea::autograd {

enum class Transpose : char { no = 'N', yes = 'T' };

/// A row-major operand: `leading` elements from one row to the next.
struct Matrix {
  const float* data = nullptr;
  std::int64_t leading = 0;
  Transpose transpose = Transpose::no;
};

/// Columns [n] to which a product is added in every row; null: none. They take the place of beta.
struct RowBias {
  const float* data = nullptr;
};

/// b as blocks of f32 read it, in slices of k and panels of columns.
struct Panels {
  /// Blocks begin at multiples of so many columns: whole panels of every instruction set.
  static constexpr std::int64_t unit = 32;
  const float* data = nullptr;  ///< null: each block copies its part of b
  std::int64_t columns = 0;     ///< of all panels of a slice
  std::int64_t first = 0;       ///< the column of b with which the block begins
};

/// c[m, n] = a·b + (bias or, with `add`, what c holds). At most one of the two.
struct ProductBlock {
  std::int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  Panels panels = {};
  const float* bias = nullptr;  ///< [n]
  bool add = false;
  float* c = nullptr;
  std::int64_t leading = 0;
};
/// One block on the calling thread: by f32_block_tiled, or by row_products.h if it has few rows or one
/// column.
void f32_block(const ProductBlock& block);
/// The numbers of a slice of k.
inline constexpr std::int64_t slice_of_f32 = 384;
/// How many numbers the next slice has: what is left, if it is less than two slices, is halved.
constexpr std::int64_t slice_of(std::int64_t left) {
  if (left >= 2 * slice_of_f32) return slice_of_f32;
  return left > slice_of_f32 ? (left + 1) / 2 : left;
}
/// An element is the bias, or what c holds, to which the sum of each slice of k is added. Within a slice an
/// element is one chain of fused multiply-adds.
void f32_block_tiled(const ProductBlock& block);

/// The panels of a matrix b [k, n] that several products in f32 read: it is copied once for all of them, by
/// the default executor. It takes as much memory as b.
class SharedPanels {
 public:
  SharedPanels() = default;  ///< none: blocks copy b
  SharedPanels(std::int64_t n, std::int64_t k, const Matrix& b);
  Panels panels() const { return memory_ ? Panels{memory_.data<float>(), memory_.size(1)} : Panels{}; }

 private:
  Tensor memory_;  // [k, columns of whole panels]
};

/// c[m, n] = a·b + beta·c, where a is [m, k] and b is [k, n] after their transposes, of f32 numbers that are
/// rounded to `operands` first; beta is 0 or 1. The result is cut into blocks, each of which is computed on
/// one thread. No bit depends on the executor: products of f32 have the same bits for any cut, and those of
/// bf16 are cut by their sizes alone. Without an executor, it is the default one.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, float beta, float* c,
          std::int64_t leading, Operands operands = Operands::f32, Executor* executor = nullptr);
/// Two products of which neither needs the other's result, each as above. The threads share the blocks of
/// both, and wait for one another once. A product without rows is left out. Only f32 reads `panels`.
void gemm(const ProductBlock& first, const ProductBlock& second, Operands operands = Operands::f32,
          Executor* executor = nullptr);
/// The sizes of the blocks of c into which `gemm` cuts a product of f32 for so many threads: at most 512 x
/// 512. With `panels` it rounds the columns up to whole panels.
struct GemmBlock {
  std::int64_t rows, columns;
};
GemmBlock gemm_block(std::int64_t m, std::int64_t n, std::int64_t k, int threads);
/// c[m, n] = a·b by f32_block_tiled, cut into these blocks: for `fovea bench products`, which compares sizes
/// of blocks.
void gemm_in_blocks(GemmBlock block, std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b,
                    float* c, std::int64_t leading);
/// c[m, n] = a·b + bias, or a·b if there is no bias.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Matrix a, Matrix b, RowBias bias, float* c,
          std::int64_t leading, Operands operands = Operands::f32, Executor* executor = nullptr);

}  // namespace fovea::autograd

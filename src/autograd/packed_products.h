// Products of rows with a packed matrix. An element of the result has the same bits however many rows are
// computed with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "autograd/int8_rows.h"
#include "fovea/autograd/packed.h"
#include "fovea/core/executor.h"
#include "kernels/simd/strip_product.h"

namespace fovea::autograd {

/// Rows [row, end) by the columns [column, last) of a product.
struct ProductBlockAt {
  std::int64_t row = 0, end = 0, column = 0, last = 0;
};

/// y[r, n] = bias[n] + Σ x[r, k]·weight[n, k].
struct PackedProducts {
  const float* x = nullptr;  ///< [rows, in]
  const PackedMatrix* weight = nullptr;
  const float* bias = nullptr;  ///< [out], or null
  float* y = nullptr;           ///< [rows, out]
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;  ///< elements from one row of x to the next; 0: `in`, no gaps
  std::int64_t y_stride = 0;  ///< elements from one row of y to the next; 0: `out`, no gaps
  std::int64_t first_row = 0, first_column = 0;  ///< of the element that y begins with

  float* place(std::int64_t row, std::int64_t column) const {
    return y + (row - first_row) * leading() + (column - first_column);
  }
  std::int64_t leading() const { return y_stride > 0 ? y_stride : weight->out(); }
  kernels::StripProduct strips(const ProductBlockAt& at) const {
    return {.rows = at.end - at.row,
            .in = weight->in(),
            .columns = at.last - at.column,
            .bias = bias ? bias + at.column : nullptr,
            .y = place(at.row, at.column),
            .y_stride = leading()};
  }
};

/// Rows of bf16 as pairs that lie side by side along k, `stride` pairs from one row to the next.
struct Bf16Rows {
  const std::uint32_t* pairs = nullptr;
  std::int64_t stride = 0;
};

/// A piece of a product, [end - row, last - column], of which the next piece takes the memory.
using ProductPiece = std::function<void(float* piece, const ProductBlockAt& at)>;

/// The rows of x in the form that products with matrices of one type read: as they are, rounded to bf16, or
/// quantised. Several matrices multiply rows that were prepared once.
class ProductRows {
 public:
  /// Of p.x, for matrices of the type of p.weight. Keeps p.x.
  ProductRows(const PackedProducts& p, Executor& executor);
  /// Rows of bf16, [rows, in], for matrices of bf16. They are read where they lie, if products can do so, and
  /// copied otherwise. Keeps x.
  ProductRows(const bfloat16* x, std::int64_t rows, std::int64_t in, Executor& executor);
  /// Rows of bf16, `stride` pairs from one to the next, which are still to be written.
  ProductRows(std::int64_t rows, std::int64_t stride);
  std::uint32_t* pairs() noexcept { return pairs_.get(); }
  /// A block of a product of these rows. p.x is not read.
  void multiply(const PackedProducts& p, const ProductBlockAt& at) const;
  /// The same block without gaps in `to`.
  void multiply_into(PackedProducts p, const ProductBlockAt& at, float* to) const;
  /// The same, but `each` gets the pieces of the block one after the other, and p.y is not written. Products
  /// by dot products of bf16 give tiles, which still lie in the first-level cache; others give whole blocks.
  void multiply_in_pieces(const PackedProducts& p, const ProductBlockAt& at, const ProductPiece& each) const;

 private:
  const float* x_ = nullptr;
  std::int64_t x_stride_ = 0;
  std::shared_ptr<std::uint32_t[]> pairs_;  // the copy that rounded_ reads; null where it reads x itself
  Bf16Rows rounded_;
  std::optional<QuantizedRows> quantized_;
};

/// Cuts products of the same rows, with matrices of one type, into blocks, which run on the executor if there
/// is enough to do. `each` is called with the number of the product.
void for_blocks(std::span<const PackedProducts> products, Executor& executor,
                const std::function<void(std::size_t product, const ProductBlockAt& at)>& each);
/// The same of products of one size, whose blocks at one place are computed together, and have at most
/// `most_rows` rows.
void for_blocks_of_all(std::span<const PackedProducts> products, Executor& executor,
                       const std::function<void(const ProductBlockAt& at)>& each, std::int64_t most_rows);

/// Each element of a product with an f32 matrix is one chain of fused multiply-adds. It begins with the bias
/// and goes through the columns in order, on every instruction set that has them. For int8 and
/// bf16 see WeightType.
void packed_products(const PackedProducts& p, Executor& executor);
/// The same of rows that were prepared; p.x is not read.
void packed_products(const PackedProducts& p, const ProductRows& rows, Executor& executor);

}  // namespace fovea::autograd

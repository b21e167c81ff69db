// Products with an int8 matrix. The sums of whole numbers are exact, so every instruction set gives the same
// bits, and a row has the same bits in any batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "autograd/packed_products.h"

namespace fovea::autograd {

/// Rows of x as whole numbers q in [-127, 127] with a scale each: x ≈ scale·q, scale = max |row| / 127. A row
/// with an infinity or a NaN has a scale that is none of the finite numbers.
struct QuantizedRows {
  /// Room for `rows` rows of `columns` numbers, a multiple of four, as bytes or as numbers of 16 bits.
  QuantizedRows(std::int64_t rows, std::int64_t columns, bool as_bytes);

  std::int64_t columns;
  std::vector<float> scales;                ///< [rows]
  std::unique_ptr<std::int16_t[]> numbers;  ///< [rows, columns]: q
  std::unique_ptr<std::uint8_t[]> bytes;    ///< [rows, columns]: q + 128, for int8_block_vnni
};

/// Whether this CPU multiplies bytes and adds up four products in one instruction (AVX512_VNNI).
bool has_vnni() noexcept;

/// Rows [row, end) by the columns [column, last) of p, with x.bytes. `column` begins a panel. Requires
/// has_vnni().
void int8_block_vnni(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last);

/// packed_products with an int8 matrix; p.x_stride is set. With `vnni` by int8_block_vnni, else by code that
/// every CPU runs.
void int8_products(const PackedProducts& p, Executor& executor, bool vnni = has_vnni());

}  // namespace fovea::autograd

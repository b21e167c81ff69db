// Rows of a product with an int8 matrix.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace fovea::autograd {

/// Rows of x as whole numbers q in [-127, 127] with a scale each: x ≈ scale·q, scale = max |row| / 127. A row
/// with an infinity or a NaN has a scale that is none of the finite numbers.
struct QuantizedRows {
  /// Room for `rows` rows of `columns` numbers, a multiple of four, as bytes or as numbers of 16 bits.
  QuantizedRows(std::int64_t rows, std::int64_t columns, bool as_bytes);

  std::int64_t columns;
  std::vector<float> scales;                ///< [rows]
  std::unique_ptr<std::int16_t[]> numbers;  ///< [rows, columns]: q
  std::unique_ptr<std::uint8_t[]> bytes;    ///< [rows, columns]: q + 128 for int8_block_vnni, q for _avx2
};

}  // namespace fovea::autograd

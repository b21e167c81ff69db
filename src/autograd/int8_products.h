// Products with an int8 matrix. The sums of whole numbers are exact, so every instruction set gives the same
// bits, and a row has the same bits in any batch.
#pragma once

#include <cstdint>

#include "autograd/int8_rows.h"
#include "autograd/packed_products.h"

namespace fovea::autograd {

/// Rows [row, end) by the columns [column, last) of p, with x.bytes, by the instruction that multiplies bytes
/// and adds up four products. `column` begins a panel. Requires cpu_has_avx512_vnni().
void int8_block_vnni(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last);

/// The same by AVX2's products of bytes. Requires cpu_has_avx2().
void int8_block_avx2(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last);

/// Ways to the same bits: code that every CPU runs, and by instructions that some have.
enum class Int8Path : std::uint8_t { any, avx2, vnni };
/// The fastest one of this CPU.
Int8Path best_int8_path() noexcept;

/// The rows of p.x for a product with p.weight; p.x_stride is set.
QuantizedRows int8_rows(const PackedProducts& p, Executor& executor, Int8Path path);
/// A block of a product with an int8 matrix, by rows that int8_rows made for the same path.
void int8_block(const PackedProducts& p, const QuantizedRows& x, const ProductBlockAt& at, Int8Path path);

}  // namespace fovea::autograd

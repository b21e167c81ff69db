// Weights in the order in which products read them. Inference multiplies many small batches of rows by the
// same matrices, and a product that finds its matrix in this order needs no copy of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea::autograd {

/// How a packed matrix keeps its elements.
enum class WeightType : std::uint8_t {
  f32,
  /// Whole numbers q in [-127, 127] with one scale s a row: weight ≈ s·q, s = max |row| / 127. Products round
  /// each row of x in the same way, multiply whole numbers exactly, and scale the sum. So an element of the
  /// result is off by at most Σ_k (|x_k|·s/2 + |w_k|·t/2 + s·t/4), where t is the scale of the row of x.
  int8,
  /// Elements rounded to bf16, to nearest even. Products round x in the same way, multiply exactly and add up
  /// in f32. So an element of the result is off by at most 2^-7·Σ_k |x_k·w_k|, besides the rounding of its
  /// sum.
  bf16,
};
/// "f32", "int8", "bf16".
std::string_view to_string(WeightType type);
/// Throws InvalidArgument for another text.
WeightType parse_weight_type(const std::string& text);

/// A copy of a matrix [out, in] in panels of 32 rows. Rows past the last are zeros.
class PackedMatrix {
 public:
  static constexpr std::int64_t panel_rows = 32;
  /// Throws InvalidArgument if `weight` is not f32 [out, in]. An int8 matrix has finite numbers alone, and
  /// fewer than 2^17 columns, because 32 bits hold its sums.
  explicit PackedMatrix(const Tensor& weight, WeightType type = WeightType::f32);
  PackedMatrix(PackedMatrix&&) = default;  // the elements stay where they are
  PackedMatrix& operator=(PackedMatrix&&) = default;
  /// Gives rows [first, first + count) of a matrix as f32, one behind the other. Several threads call it at
  /// once.
  using Rows = std::function<void(std::int64_t first, std::int64_t count, float* to)>;
  /// The same of a matrix that is read piece by piece, at most panel_rows rows at a time, so that all of it
  /// in f32 is never in memory. Throws InvalidArgument as above, and what `rows` throws.
  PackedMatrix(std::int64_t out, std::int64_t in, WeightType type, const Rows& rows);

  WeightType type() const noexcept { return type_; }
  std::int64_t out() const noexcept { return out_; }
  std::int64_t in() const noexcept { return in_; }
  std::int64_t bytes() const noexcept;
  /// bytes() of a matrix [out, in].
  static std::int64_t bytes_of(std::int64_t out, std::int64_t in, WeightType type) noexcept;
  /// Bytes that each thread needs beside it while rows of `in` numbers are read and packed.
  static std::int64_t packing_bytes(std::int64_t in, WeightType type) noexcept;

  /// Of f32: [panels, strips, in, 32 / strips]. Products read a strip at a time. It has 32 rows by AVX-512,
  /// so a panel is one strip, 16 rows by AVX2 and 8 elsewhere.
  const float* data() const noexcept { return reinterpret_cast<const float*>(numbers_); }

  /// Of int8: `in` rounded up to a multiple of four; columns past the last are zeros.
  std::int64_t padded_in() const noexcept { return (in_ + 3) / 4 * 4; }
  /// [panels, padded_in / 4, 32, 4]: four columns of a row side by side.
  const std::int8_t* quantized() const noexcept { return reinterpret_cast<const std::int8_t*>(numbers_); }
  /// [panels · 32]
  const float* scales() const noexcept { return row_scales_; }
  const std::int32_t* sums() const noexcept { return row_sums_; }  ///< Σ q of each row, [panels · 32]

  /// Of bf16: [panels, pairs, 32, 2]: two columns of a row side by side. A column past the last is zeros.
  const bfloat16* rounded() const noexcept { return reinterpret_cast<const bfloat16*>(numbers_); }
  std::int64_t pairs() const noexcept { return (in_ + 1) / 2; }

 private:
  // The first row of a panel, the number of rows, and memory for them if they are not in memory yet: of
  // `read_cells` numbers.
  using Panel = std::function<const float*(std::int64_t first, std::int64_t count, float* room)>;
  void pack(std::int64_t read_cells, const Panel& panel_of);

  // What products read is one line of the cache. A token of a larger model finds no matrix in the caches. So
  // each line of one comes from memory, beside the elements that all threads read at its full rate.
  alignas(64) WeightType type_;
  std::int64_t out_, in_;
  const std::byte* numbers_ = nullptr;  // of elements_
  const float* row_scales_ = nullptr;
  const std::int32_t* row_sums_ = nullptr;
  Tensor elements_;  // of int8 and bf16: the memory of an f32 tensor, which is aligned to cache lines
  Tensor scales_;
  std::vector<std::int32_t> sums_;
};

}  // namespace fovea::autograd

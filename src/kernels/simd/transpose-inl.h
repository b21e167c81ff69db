// Transposes of 32-bit elements: f32 numbers, and pairs of bf16 numbers.
#if defined(FOVEA_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_TRANSPOSE_INL_H_
#undef FOVEA_SIMD_TRANSPOSE_INL_H_
#else
#define FOVEA_SIMD_TRANSPOSE_INL_H_
#endif

#include "kernels/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// Sixteen by sixteen elements in registers. First groups of four rows are transposed by fours, as below;
/// then the blocks of four rows are put together for each group of columns.
HWY_INLINE void TransposeSquare(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  const hn::CappedTag<uint32_t, 16> d;
  hn::Vec<decltype(d)> part[4][4];  // [rows 4g..][columns i, i + 4, i + 8, i + 12]
  FOVEA_UNROLL for (int g = 0; g < 4; ++g) {
    const uint32_t* row = from + 4 * g * from_stride;
    const auto v0 = hn::LoadU(d, row), v1 = hn::LoadU(d, row + from_stride),
               v2 = hn::LoadU(d, row + 2 * from_stride), v3 = hn::LoadU(d, row + 3 * from_stride);
    const auto low0 = hn::InterleaveLower(d, v0, v2), low1 = hn::InterleaveLower(d, v1, v3),
               high0 = hn::InterleaveUpper(d, v0, v2), high1 = hn::InterleaveUpper(d, v1, v3);
    part[g][0] = hn::InterleaveLower(d, low0, low1);
    part[g][1] = hn::InterleaveUpper(d, low0, low1);
    part[g][2] = hn::InterleaveLower(d, high0, high1);
    part[g][3] = hn::InterleaveUpper(d, high0, high1);
  }
  FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
    const __m512i first = _mm512_shuffle_i32x4(part[0][i].raw, part[1][i].raw, 0x88),  // blocks 0 and 2 of
                                                                                       // each
        second = _mm512_shuffle_i32x4(part[2][i].raw, part[3][i].raw, 0x88),
                  third = _mm512_shuffle_i32x4(part[0][i].raw, part[1][i].raw, 0xdd),  // blocks 1 and 3
        fourth = _mm512_shuffle_i32x4(part[2][i].raw, part[3][i].raw, 0xdd);
    _mm512_storeu_si512(to + i * to_stride, _mm512_shuffle_i32x4(first, second, 0x88));
    _mm512_storeu_si512(to + (i + 4) * to_stride, _mm512_shuffle_i32x4(third, fourth, 0x88));
    _mm512_storeu_si512(to + (i + 8) * to_stride, _mm512_shuffle_i32x4(first, second, 0xdd));
    _mm512_storeu_si512(to + (i + 12) * to_stride, _mm512_shuffle_i32x4(third, fourth, 0xdd));
  }
}
#endif

#if HWY_TARGET == HWY_AVX2
/// Eight rows of four elements to four rows of eight, in registers: halves of a vector are rows r and r + 4.
/// Other targets go through memory.
HWY_INLINE void TransposeEight(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  const hn::FixedTag<uint32_t, 8> d;
  const hn::Half<decltype(d)> half;
  const auto rows = [&](int64_t r) HWY_ATTR {
    const uint32_t* row = from + r * from_stride;
    return hn::Combine(d, hn::LoadU(half, row + 4 * from_stride), hn::LoadU(half, row));
  };
  const auto v0 = rows(0), v1 = rows(1), v2 = rows(2), v3 = rows(3);
  const auto low0 = hn::InterleaveLower(d, v0, v2), low1 = hn::InterleaveLower(d, v1, v3),
             high0 = hn::InterleaveUpper(d, v0, v2), high1 = hn::InterleaveUpper(d, v1, v3);
  hn::StoreU(hn::InterleaveLower(d, low0, low1), d, to);
  hn::StoreU(hn::InterleaveUpper(d, low0, low1), d, to + to_stride);
  hn::StoreU(hn::InterleaveLower(d, high0, high1), d, to + 2 * to_stride);
  hn::StoreU(hn::InterleaveUpper(d, high0, high1), d, to + 3 * to_stride);
}
#endif

/// Whether TransposeBlocks takes multiples of four rows.
constexpr bool kTransposesByFour = !(HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3);
/// to[c][r] = from[r][c] for 32-bit elements, where columns are multiples of 16. So are rows, or of four if
/// kTransposesByFour.
inline HWY_NOINLINE void TransposeBlocks(const uint32_t* from, int64_t rows, int64_t columns,
                                         int64_t from_stride, uint32_t* to, int64_t to_stride) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t c = 0; c < columns; c += 16)
      TransposeSquare(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  }
#elif HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      hwy::CopyBytes<4>(from + r * from_stride + c, to + c * to_stride + r);
  }
#else
  const hn::CappedTag<uint32_t, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(64) uint32_t out[4][16];
  int64_t r = 0;
#if HWY_TARGET == HWY_AVX2
  for (; r + 8 <= rows; r += 8) {
    for (int64_t c = 0; c < columns; c += 4)
      TransposeEight(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  }
#endif
  for (; r < rows; r += 4) {
    const uint32_t* row = from + r * from_stride;
    for (int64_t c = 0; c < columns; c += lanes) {
      const auto v0 = hn::LoadU(d, row + c), v1 = hn::LoadU(d, row + from_stride + c),
                 v2 = hn::LoadU(d, row + 2 * from_stride + c), v3 = hn::LoadU(d, row + 3 * from_stride + c);
      const auto low0 = hn::InterleaveLower(d, v0, v2), low1 = hn::InterleaveLower(d, v1, v3),
                 high0 = hn::InterleaveUpper(d, v0, v2), high1 = hn::InterleaveUpper(d, v1, v3);
      hn::Store(hn::InterleaveLower(d, low0, low1), d, out[0]);
      hn::Store(hn::InterleaveUpper(d, low0, low1), d, out[1]);
      hn::Store(hn::InterleaveLower(d, high0, high1), d, out[2]);
      hn::Store(hn::InterleaveUpper(d, high0, high1), d, out[3]);
      for (int64_t block = 0; block < lanes; block += 4) {
        for (int64_t i = 0; i < 4; ++i)
          hwy::CopyBytes<16>(out[i] + block, to + (c + block + i) * to_stride + r);
      }
    }
  }
#endif
}

/// to[c][r] = from[r][c] for `rows` < 16 rows of `columns` columns, a multiple of 16. `to` has 16 columns,
/// the last of which become 0.
inline HWY_NOINLINE void TransposeFewRows(const uint32_t* from, int64_t rows, int64_t columns,
                                          int64_t from_stride, uint32_t* to, int64_t to_stride) {
  const hn::CappedTag<uint32_t, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(64) uint32_t block[16 * 16];
  for (int64_t i = rows * 16; i < 16 * 16; i += lanes) hn::Store(hn::Zero(d), d, block + i);
  for (int64_t c = 0; c < columns; c += 16) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < 16; i += lanes)
        hn::Store(hn::LoadU(d, from + r * from_stride + c + i), d, block + r * 16 + i);
    }
    TransposeBlocks(block, 16, 16, 16, to + c * to_stride, to_stride);
  }
}

/// to[d · stride + j] = element d of row j, for `count` rows of `dim` elements that are `row_stride` apart.
/// Columns from `count` to `width` become 0.
template <class T>
HWY_NOINLINE void Transpose(const T* from, int64_t row_stride, int64_t count, int64_t dim, int64_t stride,
                            T* to, int64_t width) {
  int64_t rows = 0, columns = 0;  // covered by whole blocks
  int64_t filled = count;         // columns of `to` that these blocks fill
  if constexpr (sizeof(T) == 4) {
    // Panels narrower than 16 are transposed by fours, where the instruction set allows it.
    const int64_t block = kTransposesByFour && width < 16 ? 4 : 16;
    rows = count / block * block;
    columns = dim / 16 * 16;
    TransposeBlocks(reinterpret_cast<const uint32_t*>(from), rows, columns, row_stride,
                    reinterpret_cast<uint32_t*>(to), stride);
    // Element by element, 14 rows took as long as one of the two products of a sentence of 14 words.
    if (rows < count && rows + 16 <= width) {
      TransposeFewRows(reinterpret_cast<const uint32_t*>(from + rows * row_stride), count - rows, columns,
                       row_stride, reinterpret_cast<uint32_t*>(to + rows), stride);
      filled = rows + 16;
      rows = count;
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    const T* row = from + j * row_stride;
    for (int64_t d = j < rows ? columns : 0; d < dim; ++d) to[d * stride + j] = row[d];
  }
  const auto clear = [&](int64_t first, int64_t last, int64_t begin) HWY_ATTR {
    if (begin >= width) return;
    for (int64_t d = first; d < last; ++d) Fill(T{0}, width - begin, to + d * stride + begin);
  };
  clear(0, columns, filled);
  clear(columns, dim, count);
}
template <class T>
HWY_INLINE void Transpose(const T* from, int64_t row_stride, int64_t count, int64_t dim, int64_t stride,
                          T* to) {
  Transpose(from, row_stride, count, dim, stride, to, stride);
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

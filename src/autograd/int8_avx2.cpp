// Products of bytes by AVX2. Its only product of bytes adds two of them in 16 bits, one factor without a
// sign: |w| times x with the sign of w is at most 2 · 127 · 127, which fits. Highway 1.0.3 has no operation
// for it.
#include <algorithm>
#include <cstring>

#include "autograd/int8_products.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fovea::autograd {

#if defined(__x86_64__)

namespace {

#define FOVEA_AVX2 __attribute__((target("avx2")))
// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

constexpr std::int64_t panel = PackedMatrix::panel_rows;
constexpr std::int64_t lanes = 8;
// A full tile is four rows by half of a panel, two vectors of 8 sums. So 8 sums stay in registers, each
// vector of weights is loaded, and its absolute values are taken, once for four rows. Fewer rows take the
// whole panel, so that memory is read in order.
constexpr int full_rows = 4, half = 2, whole = 4;
static_assert(panel == whole * lanes);

/// The first `count` numbers of `from`, at most 8, and zeros behind them; zeros alone where `from` is null.
FOVEA_AVX2 __m256 some_of(const float* from, std::int64_t count) {
  float all[lanes] = {};
  if (!from) return _mm256_loadu_ps(all);
  if (count >= lanes) return _mm256_loadu_ps(from);
  std::copy_n(from, count, all);
  return _mm256_loadu_ps(all);
}

/// `count` columns from `column` on, or fewer, as far as the vectors go; `weight` has the first of them in
/// the panel.
template <int rows, int vectors>
FOVEA_AVX2 void tile(const PackedProducts& p, const QuantizedRows& x, const std::int8_t* weight,
                     std::int64_t row, std::int64_t column, std::int64_t count) {
  const std::int64_t columns = x.columns;
  const std::uint8_t* from = x.bytes.get() + row * columns;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[rows][vectors];
  FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < vectors; ++v) sums[r][v] = _mm256_setzero_si256();
  }
  for (std::int64_t k = 0; k < columns; k += 4) {
    __m256i factor[rows];
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
      std::int32_t four;
      std::memcpy(&four, from + r * columns + k, sizeof four);
      factor[r] = _mm256_set1_epi32(four);
    }
    FOVEA_UNROLL for (int v = 0; v < vectors; ++v) {
      const __m256i w =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight + k * panel + 4 * lanes * v));
      const __m256i size = _mm256_abs_epi8(w);
      FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
        const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(factor[r], w));
        sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(pairs, ones));
        // Each sum stays in its register. GCC 12 otherwise kept one of a full tile's eight in memory, and 320
        // rows took 1.1 times as long.
        asm("" : "+x"(sums[r][v]));
      }
    }
  }
  FOVEA_UNROLL for (int v = 0; v < vectors; ++v) {
    const std::int64_t left = count - lanes * v;
    if (left <= 0) break;
    const __m256 scales = _mm256_loadu_ps(p.weight->scales() + column + lanes * v),
                 bias = some_of(p.bias ? p.bias + column + lanes * v : nullptr, left);
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
      const __m256 factor =
          _mm256_mul_ps(_mm256_set1_ps(x.scales[static_cast<std::size_t>(row + r)]), scales);
      __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r][v]), factor);
      if (p.bias) y = _mm256_add_ps(y, bias);
      float* to = p.place(row + r, column + lanes * v);
      if (left >= lanes) {
        _mm256_storeu_ps(to, y);
      } else {
        float last[lanes];
        _mm256_storeu_ps(last, y);
        std::copy_n(last, left, to);
      }
    }
  }
}

/// All rows [row, end) by one panel, of which `count` columns are in the product.
FOVEA_AVX2 void by_panel(const PackedProducts& p, const QuantizedRows& x, const std::int8_t* weight,
                         std::int64_t row, std::int64_t end, std::int64_t column, std::int64_t count) {
  const std::int64_t full = row + (end - row) / full_rows * full_rows;
  for (std::int64_t n = 0; n < count; n += half * lanes) {
    for (std::int64_t r = row; r < full; r += full_rows)
      tile<full_rows, half>(p, x, weight + 4 * n, r, column + n, count - n);
  }
  if (end - full >= 2) tile<2, whole>(p, x, weight, full, column, count);
  if ((end - full) % 2 != 0) tile<1, whole>(p, x, weight, end - 1, column, count);
}

#undef FOVEA_UNROLL
#undef FOVEA_AVX2

}  // namespace

void int8_block_avx2(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last) {
  for (std::int64_t n = column; n < last; n += panel)
    by_panel(p, x, p.weight->quantized() + n * x.columns, row, end, n, std::min(panel, last - n));
}

#else

void int8_block_avx2(const PackedProducts&, const QuantizedRows&, std::int64_t, std::int64_t, std::int64_t,
                     std::int64_t) {}

#endif

}  // namespace fovea::autograd

// Products of bytes by AVX2. Its only product of bytes adds two of them in 16 bits, one factor without a
// sign: |x| times w with the sign of x is at most 2 · 127 · 127, which fits. Highway 1.0.3 has no operation
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
// The four vectors of a panel have 8 sums each. Two rows leave registers for the weights, x and its absolute
// values.
constexpr int vectors = 4, full_rows = 2;
static_assert(panel == 8 * vectors);

template <int rows>
FOVEA_AVX2 void tile(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t column,
                     std::int64_t count) {
  const std::int64_t columns = x.columns;
  const std::int8_t* weight = p.weight->quantized() + column * columns;
  const std::uint8_t* from = x.bytes.get() + row * columns;
  const __m256i ones = _mm256_set1_epi16(1), offset = _mm256_set1_epi8(-128);
  __m256i sums[rows][vectors];
  FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < vectors; ++v) sums[r][v] = _mm256_setzero_si256();
  }
  for (std::int64_t k = 0; k < columns; k += 4) {
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
      std::int32_t four;
      std::memcpy(&four, from + r * columns + k, sizeof four);
      const __m256i factor = _mm256_xor_si256(_mm256_set1_epi32(four), offset),
                    size = _mm256_abs_epi8(factor);
      FOVEA_UNROLL for (int v = 0; v < vectors; ++v) {
        const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weight + k * panel + 32 * v));
        const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(w, factor));
        sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(pairs, ones));
      }
    }
  }
  FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
    const float scale = x.scales[static_cast<std::size_t>(row + r)];
    FOVEA_UNROLL for (int v = 0; v < vectors; ++v) {
      const std::int64_t left = std::min<std::int64_t>(8, count - 8 * v);
      if (left <= 0) break;
      const __m256 factor =
          _mm256_mul_ps(_mm256_set1_ps(scale), _mm256_loadu_ps(p.weight->scales() + column + 8 * v));
      __m256 y = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r][v]), factor);
      float bias[8] = {}, last[8];
      if (p.bias) {
        std::copy_n(p.bias + column + 8 * v, left, bias);
        y = _mm256_add_ps(y, _mm256_loadu_ps(bias));
      }
      float* to = p.place(row + r, column + 8 * v);
      if (left == 8) {
        _mm256_storeu_ps(to, y);
      } else {
        _mm256_storeu_ps(last, y);
        std::copy_n(last, left, to);
      }
    }
  }
}

#undef FOVEA_UNROLL
#undef FOVEA_AVX2

}  // namespace

void int8_block_avx2(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last) {
  for (std::int64_t n = column; n < last; n += panel) {
    std::int64_t r = row;
    for (; r + full_rows <= end; r += full_rows) tile<full_rows>(p, x, r, n, std::min(panel, last - n));
    if (r < end) tile<1>(p, x, r, n, std::min(panel, last - n));
  }
}

#else

void int8_block_avx2(const PackedProducts&, const QuantizedRows&, std::int64_t, std::int64_t, std::int64_t,
                     std::int64_t) {}

#endif

}  // namespace fovea::autograd

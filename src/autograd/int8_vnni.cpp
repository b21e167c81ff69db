// Products of bytes by AVX512_VNNI. Highway 1.0.3 has no operation for vpdpbusd, so this file has its own
// functions for that instruction set.
#include <algorithm>
#include <array>
#include <cstring>

#include "autograd/int8_products.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fovea::autograd {

#if defined(__x86_64__)

namespace {

#define FOVEA_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

constexpr std::int64_t panel = PackedMatrix::panel_rows;

// Rows by one panel, whose two vectors have 16 sums each. 12 rows leave registers for the weights and for x.
constexpr int full_rows = 12;

// How far one row of x fetches ahead. Its weights are read once, panel behind panel, and memory is faster
// than the processor's own prefetchers ask for it.
constexpr std::int64_t ahead = 8192;

template <int rows>
FOVEA_VNNI void tile(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t column,
                     std::int64_t count) {
  const std::int64_t columns = x.columns;
  const std::int8_t* weight = p.weight->quantized() + column * columns;
  const std::uint8_t* from = x.bytes.get() + row * columns;
  __m512i sums[rows][2];
  FOVEA_UNROLL for (int v = 0; v < 2; ++v) {
    // They are read at the end, and come from memory too.
    _mm_prefetch(reinterpret_cast<const char*>(p.weight->sums() + column + 16 * v), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(p.weight->scales() + column + 16 * v), _MM_HINT_T0);
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) sums[r][v] = _mm512_setzero_si512();
  }
  for (std::int64_t k = 0; k < columns; k += 4) {
    if constexpr (rows == 1) {
      _mm_prefetch(reinterpret_cast<const char*>(weight + k * panel + ahead), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(weight + k * panel + ahead + 64), _MM_HINT_T0);
    }
    const __m512i w0 = _mm512_loadu_si512(weight + k * panel),
                  w1 = _mm512_loadu_si512(weight + k * panel + 64);
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
      std::int32_t four;
      std::memcpy(&four, from + r * columns + k, sizeof four);
      const __m512i factor = _mm512_set1_epi32(four);
      sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], factor, w0);
      sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], factor, w1);
    }
  }
  FOVEA_UNROLL for (int v = 0; v < 2; ++v) {
    const std::int64_t left = count - 16 * v;
    if (left <= 0) break;
    const __mmask16 there = left >= 16 ? __mmask16(0xffff) : static_cast<__mmask16>((1 << left) - 1);
    // The instruction multiplies numbers without a sign, so x has 128 added: Σ (q + 128)·w - 128·Σ w.
    const __m512i more =
        _mm512_mullo_epi32(_mm512_loadu_si512(p.weight->sums() + column + 16 * v), _mm512_set1_epi32(128));
    const __m512 scale = _mm512_maskz_loadu_ps(there, p.weight->scales() + column + 16 * v);
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
      const __m512 factor = _mm512_mul_ps(_mm512_set1_ps(x.scales[static_cast<std::size_t>(row + r)]), scale);
      __m512 y = _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(there, _mm512_sub_epi32(sums[r][v], more)), factor);
      if (p.bias) y = _mm512_add_ps(y, _mm512_maskz_loadu_ps(there, p.bias + column + 16 * v));
      _mm512_mask_storeu_ps(p.place(row + r, column + 16 * v), there, y);
    }
  }
}

#undef FOVEA_UNROLL
#undef FOVEA_VNNI

using Tile = void (*)(const PackedProducts&, const QuantizedRows&, std::int64_t, std::int64_t, std::int64_t);
constexpr std::array<Tile, full_rows> tiles = {tile<1>, tile<2>, tile<3>, tile<4>,  tile<5>,  tile<6>,
                                               tile<7>, tile<8>, tile<9>, tile<10>, tile<11>, tile<12>};

}  // namespace

void int8_block_vnni(const PackedProducts& p, const QuantizedRows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last) {
  for (std::int64_t n = column; n < last; n += panel) {
    for (std::int64_t r = row; r < end; r += full_rows) {
      const auto rows = static_cast<std::size_t>(std::min<std::int64_t>(full_rows, end - r));
      tiles[rows - 1](p, x, r, n, std::min(panel, last - n));
    }
  }
}

#else

void int8_block_vnni(const PackedProducts&, const QuantizedRows&, std::int64_t, std::int64_t, std::int64_t,
                     std::int64_t) {}

#endif

}  // namespace fovea::autograd

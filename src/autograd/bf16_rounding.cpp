#include "autograd/bf16_rounding.h"

#if defined(__x86_64__)
#include <algorithm>

namespace fovea::autograd {

namespace {

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

// The 16 pairs of 32 neighbours in a row. Numbers from x[count] on count as 0.
FOVEA_DOT __m512i pairs_along(const float* x, std::int64_t count) {
  if (count >= 32) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(first_lanes(count - 16), x + 16),
                                      _mm512_maskz_loadu_ps(first_lanes(count), x));
}

// Pairs each of 16 numbers of a row with the number below it. Numbers outside `lanes` count as 0. `below` is
// null past the last row.
FOVEA_DOT __m512i pairs_down(const float* x, const float* below, __mmask16 lanes) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512 next = below ? _mm512_maskz_loadu_ps(lanes, below) : _mm512_setzero_ps();
  return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(next, _mm512_maskz_loadu_ps(lanes, x)));
}

FOVEA_DOT void transpose(__m512i (&x)[16]) {
  __m512i y[16];
  FOVEA_UNROLL for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  FOVEA_UNROLL for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
    y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
    y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
  }
  FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
    x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
    x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
    x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
  }
}

#undef FOVEA_UNROLL

}  // namespace

FOVEA_DOT void bf16_round_rows_dot(const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k,
                                   Bf16Pair* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r, x += leading, to += stride) {
    for (std::int64_t i = 0; i < k; i += 32)
      _mm512_mask_storeu_epi32(to + i / 2, first_lanes((k - i + 1) / 2), pairs_along(x + i, k - i));
  }
}

// Rows of x that are rounded together where pairs lie across them. One pair of rows after the other would
// write to as many places as there are tiles or panels, and one panel after the other would read a line of
// each row, a page apart; dW of 128 x 512 with 4,000 rows took 1.2 times as long.
constexpr std::int64_t together = 16;

FOVEA_DOT void bf16_round_columns(const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k,
                                  Bf16Pair* to) {
  for (std::int64_t begin = 0; begin < k; begin += together) {
    const std::int64_t end = std::min(k, begin + together);
    for (std::int64_t r = 0; r < rows; r += bf16_dot_rows) {
      const __mmask16 lanes = first_lanes(std::min<std::int64_t>(bf16_dot_rows, rows - r));
      Bf16Pair* tile = to + r / bf16_dot_rows * bf16_slice_pairs * bf16_dot_rows;
      for (std::int64_t i = begin; i < end; i += 2) {
        const float* from = x + i * leading + r;
        _mm512_mask_storeu_epi32(tile + i / 2 * bf16_dot_rows, first_lanes(bf16_dot_rows),
                                 pairs_down(from, i + 1 < k ? from + leading : nullptr, lanes));
      }
    }
  }
}

FOVEA_DOT void bf16_round_panels_down(const float* b, std::int64_t leading, std::int64_t n, std::int64_t k,
                                      Bf16Pair* to) {
  for (std::int64_t begin = 0; begin < k; begin += together) {
    const std::int64_t end = std::min(k, begin + together);
    for (std::int64_t column = 0; column < n; column += bf16_panel) {
      const __mmask16 lanes[2] = {first_lanes(n - column), first_lanes(n - column - 16)};
      for (std::int64_t i = begin; i < end; i += 2) {
        for (std::int64_t half = 0; half < 2; ++half) {
          const float* from = b + i * leading + column + 16 * half;
          _mm512_storeu_si512(to + column * bf16_slice_pairs + i / 2 * bf16_panel + 16 * half,
                              pairs_down(from, i + 1 < k ? from + leading : nullptr, lanes[half]));
        }
      }
    }
  }
}

FOVEA_DOT void bf16_round_panels_along(const float* b, std::int64_t leading, std::int64_t n, std::int64_t k,
                                       Bf16Pair* to) {
  for (std::int64_t column = 0; column < n; column += 16) {
    const std::int64_t count = std::min<std::int64_t>(16, n - column);
    Bf16Pair* half = to + column / bf16_panel * bf16_panel * bf16_slice_pairs + column % bf16_panel;
    for (std::int64_t i = 0; i < k; i += 32) {
      __m512i rows[16];
      for (std::int64_t r = 0; r < 16; ++r)
        rows[r] = r < count ? pairs_along(b + (column + r) * leading + i, k - i) : _mm512_setzero_si512();
      transpose(rows);
      for (std::int64_t r = 0; r < std::min<std::int64_t>(16, (k - i + 1) / 2); ++r)
        _mm512_storeu_si512(half + (i / 2 + r) * bf16_panel, rows[r]);
    }
  }
}

FOVEA_DOT void bf16_round_rows_across(const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k,
                                      Bf16Pair* to, std::int64_t stride) {
  for (std::int64_t i = 0; i < k; i += 32) {
    const __mmask16 pairs = first_lanes((k - i + 1) / 2);
    for (std::int64_t r = 0; r < rows; r += 16) {
      const std::int64_t count = std::min<std::int64_t>(16, rows - r);
      __m512i block[16];
      for (std::int64_t j = 0; j < 16; ++j) {
        const std::int64_t row = i + 2 * j;
        const float* from = x + row * leading + r;
        block[j] = row < k ? pairs_down(from, row + 1 < k ? from + leading : nullptr, first_lanes(count))
                           : _mm512_setzero_si512();
      }
      transpose(block);
      for (std::int64_t j = 0; j < count; ++j)
        _mm512_mask_storeu_epi32(to + (r + j) * stride + i / 2, pairs, block[j]);
    }
  }
}

Bf16Pair* bf16_memory(std::vector<Bf16Pair>& of, std::int64_t pairs) {
  constexpr std::int64_t line = 64 / sizeof(Bf16Pair);
  if (std::ssize(of) < pairs + line) of.resize(static_cast<std::size_t>(pairs + line));
  const auto address = reinterpret_cast<std::uintptr_t>(of.data());
  return of.data() + (64 - address % 64) % 64 / sizeof(Bf16Pair);
}

}  // namespace fovea::autograd
#endif

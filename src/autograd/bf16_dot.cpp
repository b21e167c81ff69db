// Products of bf16 by AVX512_BF16. Highway 1.0.3 has no target with vdpbf16ps, so this file has its own
// functions for that instruction set.
#include <algorithm>
#include <array>
#include <vector>

#include "autograd/bf16_products.h"

#if defined(__x86_64__)
// GCC 12 warns of the undefined vectors of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace fovea::autograd {

#if defined(__x86_64__)

namespace {

#define FOVEA_DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

// A pair is two numbers of bf16 that lie side by side along k, the first in the lower half.
using Pair = std::uint32_t;

constexpr std::int64_t panel = PackedMatrix::panel_rows;  // columns of b, as two vectors of pairs
// 12 rows by two vectors are 24 sums, and leave registers for two vectors of b and one of a.
constexpr int tile_rows = 12;
// Pairs of k that are multiplied before the next are rounded: a panel of b, 16 KiB, stays in the first-level
// cache, and the blocks of a and b, 256 KiB each, in the second.
constexpr std::int64_t slice_pairs = 128;

constexpr std::int64_t pieces(std::int64_t of, std::int64_t size) {
  return (of + size - 1) / size;
}

FOVEA_DOT __mmask16 first_lanes(std::int64_t count) {
  return count >= 16  ? __mmask16(0xffff)
         : count <= 0 ? __mmask16(0)
                      : static_cast<__mmask16>((1 << count) - 1);
}

// The 16 pairs of 32 numbers side by side, of which `count` are there.
FOVEA_DOT __m512i pairs_along(const float* x, std::int64_t count) {
  if (count >= 32) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(first_lanes(count - 16), x + 16),
                                      _mm512_maskz_loadu_ps(first_lanes(count), x));
}

// The pairs of 16 numbers of one row with the 16 below them, of which those in `lanes` are there. `below` is
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

// Rows of x as pairs along k, `stride` pairs from one to the next.
FOVEA_DOT void round_rows(const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k, Pair* to,
                          std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r, x += leading, to += stride) {
    for (std::int64_t i = 0; i < k; i += 32)
      _mm512_mask_storeu_epi32(to + i / 2, first_lanes((k - i + 1) / 2), pairs_along(x + i, k - i));
  }
}

// Rows of x that are rounded together where pairs lie across them. One pair of rows after the other would
// write to as many places as there are tiles or panels, and one panel after the other would read a line of
// each row, a page apart; dW of 128 x 512 with 4,000 rows took 1.2 times as long.
constexpr std::int64_t together = 16;

// x is [k, rows]: its columns in tiles of 12, [tile, pairs, 12].
FOVEA_DOT void round_columns(const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k,
                             Pair* to) {
  for (std::int64_t begin = 0; begin < k; begin += together) {
    const std::int64_t end = std::min(k, begin + together);
    for (std::int64_t r = 0; r < rows; r += tile_rows) {
      const __mmask16 lanes = first_lanes(std::min<std::int64_t>(tile_rows, rows - r));
      Pair* tile = to + r / tile_rows * slice_pairs * tile_rows;
      for (std::int64_t i = begin; i < end; i += 2) {
        const float* from = x + i * leading + r;
        _mm512_mask_storeu_epi32(tile + i / 2 * tile_rows, first_lanes(tile_rows),
                                 pairs_down(from, i + 1 < k ? from + leading : nullptr, lanes));
      }
    }
  }
}

// b is [k, n], to be panels [pairs, 32], slice_pairs · 32 pairs from one to the next.
FOVEA_DOT void round_panels_down(const float* b, std::int64_t leading, std::int64_t n, std::int64_t k,
                                 Pair* to) {
  for (std::int64_t begin = 0; begin < k; begin += together) {
    const std::int64_t end = std::min(k, begin + together);
    for (std::int64_t column = 0; column < n; column += panel) {
      const __mmask16 lanes[2] = {first_lanes(n - column), first_lanes(n - column - 16)};
      for (std::int64_t i = begin; i < end; i += 2) {
        for (std::int64_t half = 0; half < 2; ++half) {
          const float* from = b + i * leading + column + 16 * half;
          _mm512_storeu_si512(to + column * slice_pairs + i / 2 * panel + 16 * half,
                              pairs_down(from, i + 1 < k ? from + leading : nullptr, lanes[half]));
        }
      }
    }
  }
}

// The same of b that lies as [n, k].
FOVEA_DOT void round_panels_along(const float* b, std::int64_t leading, std::int64_t n, std::int64_t k,
                                  Pair* to) {
  for (std::int64_t column = 0; column < n; column += 16) {
    const std::int64_t count = std::min<std::int64_t>(16, n - column);
    Pair* half = to + column / panel * panel * slice_pairs + column % panel;
    for (std::int64_t i = 0; i < k; i += 32) {
      __m512i rows[16];
      for (std::int64_t r = 0; r < 16; ++r)
        rows[r] = r < count ? pairs_along(b + (column + r) * leading + i, k - i) : _mm512_setzero_si512();
      transpose(rows);
      for (std::int64_t r = 0; r < std::min<std::int64_t>(16, (k - i + 1) / 2); ++r)
        _mm512_storeu_si512(half + (i / 2 + r) * panel, rows[r]);
    }
  }
}

struct Tile {
  const Pair* a = nullptr;
  std::int64_t row = 0;         // pairs of a from row to row, where the tile's function does not know them
  const Pair* b = nullptr;      // [pairs, 32]
  std::int64_t next_panel = 0;  // pairs of b
  std::int64_t pairs = 0;
  const float* bias = nullptr;
  bool add = false;
  float* c = nullptr;
  std::int64_t leading = 0, columns = 0;
};

// Few rows take several panels at once: a chain of sums waits six cycles for each step.
constexpr int panels_of(int rows) {
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

// row_step and pair_step: pairs of a from row to row and from pair to pair. A row_step of 0 is that of `t`.
template <int rows, std::int64_t row_step, std::int64_t pair_step>
FOVEA_DOT void tile(const Tile& t) {
  constexpr int vectors = 2 * panels_of(rows);
  const std::int64_t row = row_step > 0 ? row_step : t.row;
  __mmask16 lanes[vectors];
  const Pair* b[vectors];
  __m512 sums[rows][vectors];
  FOVEA_UNROLL for (int v = 0; v < vectors; ++v) {
    lanes[v] = first_lanes(t.columns - 16 * v);
    // A panel past the last repeats it, and is not stored.
    const std::int64_t at = std::min<std::int64_t>(v / 2, (t.columns - 1) / panel);
    b[v] = t.b + at * t.next_panel + v % 2 * 16;
    const __m512 start = t.bias ? _mm512_maskz_loadu_ps(lanes[v], t.bias + 16 * v) : _mm512_setzero_ps();
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) sums[r][v] =
        t.add ? _mm512_maskz_loadu_ps(lanes[v], t.c + r * t.leading + 16 * v) : start;
  }
  const Pair* a = t.a;
  for (std::int64_t k = 0; k < t.pairs; ++k, a += pair_step) {
    __m512bh w[vectors];
    FOVEA_UNROLL for (int v = 0; v < vectors; ++v) w[v] = (__m512bh)_mm512_loadu_si512(b[v] + k * panel);
    FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
      const __m512bh factor = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r * row]));
      FOVEA_UNROLL for (int v = 0; v < vectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], factor, w[v]);
    }
  }
  FOVEA_UNROLL for (int r = 0; r < rows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < vectors; ++v)
        _mm512_mask_storeu_ps(t.c + r * t.leading + 16 * v, lanes[v], sums[r][v]);
  }
}

using TileFunction = void (*)(const Tile&);
template <std::int64_t row_step, std::int64_t pair_step>
constexpr std::array<TileFunction, tile_rows> tiles = {
    tile<1, row_step, pair_step>,  tile<2, row_step, pair_step>,  tile<3, row_step, pair_step>,
    tile<4, row_step, pair_step>,  tile<5, row_step, pair_step>,  tile<6, row_step, pair_step>,
    tile<7, row_step, pair_step>,  tile<8, row_step, pair_step>,  tile<9, row_step, pair_step>,
    tile<10, row_step, pair_step>, tile<11, row_step, pair_step>, tile<12, row_step, pair_step>};

// Asks for the lines of c that a tile reads or writes: a vocabulary's logits are in no near cache.
void fetch(const float* c, std::int64_t leading, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) {
    __builtin_prefetch(c + r * leading, 1);
    __builtin_prefetch(c + r * leading + 16, 1);
  }
}

// The tiles of `rows` rows by the columns of `t`, the tile of the first. A panel stays in the first-level
// cache for all rows. next_tile: pairs of a from 12 rows to the next 12.
void all_tiles(const std::array<TileFunction, tile_rows>& by_rows, std::int64_t rows, const Tile& t,
               std::int64_t next_tile) {
  const std::int64_t full = rows / tile_rows * tile_rows;
  const auto run = [&](std::int64_t row, std::int64_t height, std::int64_t column, std::int64_t width) {
    Tile one = t;
    one.a = t.a + row / tile_rows * next_tile;
    one.b = t.b + column / panel * t.next_panel;
    one.bias = t.bias ? t.bias + column : nullptr;
    one.c = t.c + row * t.leading + column;
    one.columns = std::min(width, t.columns - column);
    by_rows[static_cast<std::size_t>(height - 1)](one);
  };
  for (std::int64_t n = 0; n < t.columns && full > 0; n += panel) {
    for (std::int64_t r = 0; r < full; r += tile_rows) {
      if (r + tile_rows < full) fetch(t.c + (r + tile_rows) * t.leading + n, t.leading, tile_rows);
      run(r, tile_rows, n, panel);
    }
  }
  if (full == rows) return;
  const std::int64_t width = panel * panels_of(static_cast<int>(rows - full));
  for (std::int64_t n = 0; n < t.columns; n += width) run(full, rows - full, n, width);
}

#undef FOVEA_UNROLL
#undef FOVEA_DOT

// The memory of a thread for the rounded operands of a block, which grows and stays.
Pair* memory(std::vector<Pair>& of, std::int64_t pairs) {
  constexpr std::int64_t line = 64 / sizeof(Pair);
  if (std::ssize(of) < pairs + line) of.resize(static_cast<std::size_t>(pairs + line));
  const auto address = reinterpret_cast<std::uintptr_t>(of.data());
  return of.data() + (64 - address % 64) % 64 / sizeof(Pair);
}

}  // namespace

void bf16_block_dot(const ProductBlock& p) {
  thread_local std::vector<Pair> a_memory, b_memory;
  Pair* a = memory(a_memory, pieces(p.m, tile_rows) * tile_rows * slice_pairs);
  Pair* b = memory(b_memory, pieces(p.n, panel) * panel * slice_pairs);
  const bool by_rows = p.a.transpose == Transpose::no;
  for (std::int64_t begin = 0; begin == 0 || begin < p.k; begin += 2 * slice_pairs) {
    const std::int64_t k = std::min(2 * slice_pairs, p.k - begin);
    const auto from = [&](const Matrix& x, bool along) {
      return x.data + (along ? begin : begin * x.leading);
    };
    if (p.b.transpose == Transpose::no)
      round_panels_down(from(p.b, false), p.b.leading, p.n, k, b);
    else
      round_panels_along(from(p.b, true), p.b.leading, p.n, k, b);
    if (by_rows)
      round_rows(from(p.a, true), p.a.leading, p.m, k, a, slice_pairs);
    else
      round_columns(from(p.a, false), p.a.leading, p.m, k, a);
    all_tiles(by_rows ? tiles<slice_pairs, 1> : tiles<1, tile_rows>, p.m,
              {.a = a,
               .b = b,
               .next_panel = slice_pairs * panel,
               .pairs = (k + 1) / 2,
               .bias = begin == 0 ? p.bias : nullptr,
               .add = p.add || begin > 0,
               .c = p.c,
               .leading = p.leading,
               .columns = p.n},
              slice_pairs * tile_rows);
  }
}

void bf16_round_rows_dot(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t in, Pair* to,
                         std::int64_t to_stride) {
  round_rows(x, stride, rows, in, to, to_stride);
}

void bf16_packed_dot(const PackedProducts& p, const Pair* x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last) {
  const std::int64_t pairs = p.weight->pairs(), stride = bf16_row_stride(pairs);
  all_tiles(tiles<0, 1>, end - row,
            {.a = x + row * stride,
             .row = stride,
             .b = reinterpret_cast<const Pair*>(p.weight->rounded()) + column * pairs,
             .next_panel = pairs * panel,
             .pairs = pairs,
             .bias = p.bias ? p.bias + column : nullptr,
             .c = p.place(row, column),
             .leading = p.leading(),
             .columns = last - column},
            tile_rows * stride);
}

#else

void bf16_block_dot(const ProductBlock&) {}
void bf16_round_rows_dot(const float*, std::int64_t, std::int64_t, std::int64_t, std::uint32_t*,
                         std::int64_t) {}
void bf16_packed_dot(const PackedProducts&, const std::uint32_t*, std::int64_t, std::int64_t, std::int64_t,
                     std::int64_t) {}

#endif

}  // namespace fovea::autograd

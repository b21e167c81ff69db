// Products of bf16 by AVX512_BF16's vdpbf16ps.
#include <algorithm>
#include <array>

#include "autograd/bf16_products.h"
#include "autograd/bf16_rounding.h"

namespace fovea::autograd {

#if defined(__x86_64__)

namespace {

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

using Pair = Bf16Pair;
constexpr std::int64_t panel = bf16_panel, slice_pairs = bf16_slice_pairs;
constexpr int tile_rows = bf16_dot_rows;

constexpr std::int64_t pieces(std::int64_t of, std::int64_t size) {
  return (of + size - 1) / size;
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

// Few rows take several panels at once: a chain of sums waits six cycles for each step. Six rows by two
// panels are 24 sums, as 12 rows by one are.
constexpr int panels_of(int rows) {
  return rows == 1 ? 4 : rows <= 6 ? 2 : 1;
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
// cache for all rows. next_tile: pairs of a from 12 rows to the next 12. run(tile, row, height, column) sets
// the place of a tile's result and computes it.
template <class Run>
void for_tiles(std::int64_t rows, const Tile& t, std::int64_t next_tile, Run&& run) {
  const std::int64_t full = rows / tile_rows * tile_rows;
  const auto run_at = [&](std::int64_t row, std::int64_t height, std::int64_t column, std::int64_t width) {
    Tile one = t;
    one.a = t.a + row / tile_rows * next_tile;
    one.b = t.b + column / panel * t.next_panel;
    one.bias = t.bias ? t.bias + column : nullptr;
    one.columns = std::min(width, t.columns - column);
    run(one, row, height, column);
  };
  for (std::int64_t n = 0; n < t.columns && full > 0; n += panel) {
    for (std::int64_t r = 0; r < full; r += tile_rows) run_at(r, tile_rows, n, panel);
  }
  if (full == rows) return;
  const std::int64_t width = panel * panels_of(static_cast<int>(rows - full));
  for (std::int64_t n = 0; n < t.columns; n += width) run_at(full, rows - full, n, width);
}

// The same, with results in c.
void all_tiles(const std::array<TileFunction, tile_rows>& by_rows, std::int64_t rows, const Tile& t,
               std::int64_t next_tile) {
  const std::int64_t full = rows / tile_rows * tile_rows;
  for_tiles(rows, t, next_tile, [&](Tile& one, std::int64_t row, std::int64_t height, std::int64_t column) {
    if (row + tile_rows < full) fetch(t.c + (row + tile_rows) * t.leading + column, t.leading, tile_rows);
    one.c = t.c + row * t.leading + column;
    by_rows[static_cast<std::size_t>(height - 1)](one);
  });
}

#undef FOVEA_UNROLL

}  // namespace

void bf16_block_dot(const ProductBlock& p) {
  const bool by_rows = p.a.transpose == Transpose::no;
  for_rounded_slices(
      p, pieces(p.m, tile_rows) * tile_rows * slice_pairs,
      [&](const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k, Pair* to) {
        by_rows ? bf16_round_rows_dot(x, leading, rows, k, to, slice_pairs)
                : bf16_round_columns(x, leading, rows, k, to);
      },
      [&](const Pair* a, const Pair* b, std::int64_t pairs, const float* bias, bool add) {
        all_tiles(by_rows ? tiles<slice_pairs, 1> : tiles<1, tile_rows>, p.m,
                  {.a = a,
                   .b = b,
                   .next_panel = slice_pairs * panel,
                   .pairs = pairs,
                   .bias = bias,
                   .add = add,
                   .c = p.c,
                   .leading = p.leading,
                   .columns = p.n},
                  slice_pairs * tile_rows);
      });
}

namespace {

// The first tile of a block of a product with a packed matrix, without the place of its result.
Tile first_tile(const PackedProducts& p, const Bf16Rows& x, const ProductBlockAt& at) {
  const std::int64_t pairs = p.weight->pairs();
  return {.a = x.pairs + at.row * x.stride,
          .row = x.stride,
          .b = reinterpret_cast<const Pair*>(p.weight->rounded()) + at.column * pairs,
          .next_panel = pairs * panel,
          .pairs = pairs,
          .bias = p.bias ? p.bias + at.column : nullptr,
          .columns = at.last - at.column};
}

}  // namespace

void bf16_packed_dot(const PackedProducts& p, const Bf16Rows& x, std::int64_t row, std::int64_t end,
                     std::int64_t column, std::int64_t last) {
  Tile first = first_tile(p, x, {.row = row, .end = end, .column = column, .last = last});
  first.c = p.place(row, column);
  first.leading = p.leading();
  all_tiles(tiles<0, 1>, end - row, first, tile_rows * first.row);
}

void bf16_packed_dot_pieces(const PackedProducts& p, const Bf16Rows& x, const ProductBlockAt& at,
                            const ProductPiece& each) {
  // Every tile has at most as many sums as one of 12 rows by a panel.
  alignas(64) float piece[tile_rows * panel];
  const Tile first = first_tile(p, x, at);
  for_tiles(at.end - at.row, first, tile_rows * first.row,
            [&](Tile& one, std::int64_t row, std::int64_t height, std::int64_t column) {
              one.c = piece;
              one.leading = one.columns;
              tiles<0, 1>[static_cast<std::size_t>(height - 1)](one);
              each(piece, {.row = at.row + row,
                           .end = at.row + row + height,
                           .column = at.column + column,
                           .last = at.column + column + one.columns});
            });
}

#else

void bf16_block_dot(const ProductBlock&) {}
void bf16_round_rows_dot(const float*, std::int64_t, std::int64_t, std::int64_t, std::uint32_t*,
                         std::int64_t) {}
void bf16_packed_dot(const PackedProducts&, const Bf16Rows&, std::int64_t, std::int64_t, std::int64_t,
                     std::int64_t) {}
void bf16_packed_dot_pieces(const PackedProducts&, const Bf16Rows&, const ProductBlockAt&,
                            const ProductPiece&) {}

#endif

}  // namespace fovea::autograd

// Products of many rows with a matrix by strips. A strip is a range of k by as many columns as a tile has, in
// f32 and without gaps. The tiles of all rows read it from the first-level cache.
#if defined(FOVEA_SIMD_STRIP_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_STRIP_PRODUCT_INL_H_
#undef FOVEA_SIMD_STRIP_PRODUCT_INL_H_
#else
#define FOVEA_SIMD_STRIP_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/simd/register_tile-inl.h"
#include "kernels/simd/strip_product.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// How many k a strip has, an even number: 16 KiB, half of the first-level cache, so 256 for 16 columns.
constexpr int64_t kStripSlice = 4096 / kTileColumns;

/// y = start + x · strip for some rows of x [rows, k]. Each element is one chain of fused multiply-adds in
/// the order of k.
struct StripTile {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* strip = nullptr;  // [k, kTileColumns]
  int64_t k = 0;
  const float* start = nullptr;  // [rows, kTileColumns]: the bias, or y where an earlier slice ended
  int64_t start_stride = 0;      // 0: one row for all
  float* y = nullptr;            // [rows, kTileColumns]
  int64_t y_stride = 0;
  const float* fetch = nullptr;  // where the memory begins that the tile fetches while it computes
  int64_t fetch_step = 0;        // elements that it fetches for two k, at most a line
};

/// It has no path for fewer columns. With one, GCC 12 kept a sum or two of six rows of AVX2 in memory, and
/// the loop took up to twice as long.
template <int kRows>
HWY_NOINLINE void ComputeStripTile(const StripTile& t) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  static_assert(kTileColumns == 2 * lanes);
  hn::Vec<decltype(d)> sums[kRows][2];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2; ++v) sums[r][v] =
        hn::LoadU(d, t.start + r * t.start_stride + v * lanes);
  }
  const float *x = t.x, *strip = t.strip, *fetch = t.fetch;
  const int64_t x_stride = t.x_stride;
  const auto step = [&](int64_t at) HWY_ATTR {
    hn::Vec<decltype(d)> w[2];
    FOVEA_UNROLL for (int v = 0; v < 2; ++v) w[v] = hn::LoadU(d, strip + (2 * at + v) * lanes);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, x[r * x_stride + at]);
      FOVEA_UNROLL for (int v = 0; v < 2; ++v) sums[r][v] = hn::MulAdd(factor, w[v], sums[r][v]);
    }
  };
  // Two steps a turn: with one, 320 rows took 1.04 to 1.1 times as long by AVX2 on a Zen 3.
  int64_t k = t.k;
  for (; k >= 2; k -= 2, x += 2, strip += 4 * lanes, fetch += t.fetch_step) {
    hwy::Prefetch(fetch);
    step(0);
    step(1);
  }
  if (k > 0) step(0);
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2; ++v) hn::StoreU(sums[r][v], d, t.y + r * t.y_stride + v * lanes);
  }
}

#undef FOVEA_UNROLL

inline void CopyColumns(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                        int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * from_stride, columns, to + r * to_stride);
}

/// Computes p, which has a row or more, slice by slice and strip by strip. rows_of(begin, count, stride)
/// returns where columns [begin, begin + count) of x begin, and sets `stride` to the distance of two rows in
/// elements. strip_at(column, begin, count) returns rows [begin, begin + count) of w from `column` on, which
/// stay there until the next call; columns past the last may hold anything. source_of(column, begin, count)
/// returns the memory that strip_at will read, as far as it is to be fetched.
template <class RowsOf, class StripAt, class SourceOf>
HWY_INLINE void MultiplyByStrips(const StripProduct& p, RowsOf&& rows_of, StripAt&& strip_at,
                                 SourceOf&& source_of) {
  using Compute = void (*)(const StripTile&);
  static constexpr auto by_rows = []<std::size_t... n>(std::index_sequence<n...>) {
    return std::array<Compute, sizeof...(n)>{ComputeStripTile<n + 1>...};
  }
  (std::make_index_sequence<kTileRows>());
  StripTile tile;
  for (int64_t begin = 0; begin == 0 || begin < p.in; begin += kStripSlice) {
    tile.k = std::min(kStripSlice, p.in - begin);
    const float* const x = rows_of(begin, tile.k, tile.x_stride);
    for (int64_t column = 0; column < p.columns; column += kTileColumns) {
      tile.strip = strip_at(column, begin, tile.k);
      const int64_t columns = std::min(kTileColumns, p.columns - column);
      alignas(64) float bias[kTileColumns] = {}, edge[kTileRows * kTileColumns] = {};
      if (p.bias) std::copy_n(p.bias + column, columns, bias);
      // Each tile fetches a share of the next strip, and the last strip fetches itself. Without this,
      // matrices that are in no cache made GPT-2's batches take 1.15 times as long on a Zen 3. Fetched at
      // once before each tile, 32 rows by 768 x 3072 numbers took 1.2 times as long.
      int64_t next_column = column + kTileColumns, next_begin = begin;
      if (next_column >= p.columns) {
        const bool last = begin + tile.k >= p.in;
        next_column = last ? column : 0;
        next_begin = last ? begin : begin + tile.k;
      }
      const std::span<const float> next =
          source_of(next_column, next_begin, std::min(kStripSlice, p.in - next_begin));
      const auto size = static_cast<int64_t>(next.size());
      for (int64_t row = 0, rows = 0; row < p.rows; row += rows) {
        rows = TileRowsOf(p.rows - row);
        tile.fetch = next.data() + size * row / p.rows;
        // Rounded up: rounded down, 252 rows fetched a sixth of the strip.
        const int64_t steps = p.rows * std::max<int64_t>(tile.k, 1);
        tile.fetch_step = std::min<int64_t>(16, (size * rows * 2 + steps - 1) / steps);
        float* const y = p.y + row * p.y_stride + column;
        const bool whole = columns == kTileColumns;
        tile.x = x + row * tile.x_stride;
        tile.y = whole ? y : edge;
        tile.y_stride = whole ? p.y_stride : kTileColumns;
        tile.start = begin == 0 ? bias : tile.y;
        tile.start_stride = begin == 0 ? 0 : tile.y_stride;
        if (!whole && begin > 0) CopyColumns(y, p.y_stride, rows, columns, edge, kTileColumns);
        by_rows[static_cast<std::size_t>(rows - 1)](tile);
        if (!whole) CopyColumns(edge, kTileColumns, rows, columns, y, p.y_stride);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

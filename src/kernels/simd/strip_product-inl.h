// Products of many rows with a matrix by strips. A strip is a range of k by as many columns as a tile has, in
// f32 and without gaps. It is made once, and the tiles of all rows read it from the first-level cache.
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
  const float *x = t.x, *strip = t.strip;
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
  for (; k >= 2; k -= 2, x += 2, strip += 4 * lanes) {
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
/// elements. make_strip(column, begin, count, to) writes rows [begin, begin + count) of w from `column` on;
/// its columns past the last may hold anything. fetch_strip(column, begin, count) fetches what make_strip
/// will read.
template <class RowsOf, class MakeStrip, class FetchStrip>
HWY_INLINE void MultiplyByStrips(const StripProduct& p, RowsOf&& rows_of, MakeStrip&& make_strip,
                                 FetchStrip&& fetch_strip) {
  using Compute = void (*)(const StripTile&);
  static constexpr auto by_rows = []<std::size_t... n>(std::index_sequence<n...>) {
    return std::array<Compute, sizeof...(n)>{ComputeStripTile<n + 1>...};
  }
  (std::make_index_sequence<kTileRows>());
  alignas(64) float strip[kStripSlice * kTileColumns];
  StripTile tile{.strip = strip};
  for (int64_t begin = 0; begin == 0 || begin < p.in; begin += kStripSlice) {
    tile.k = std::min(kStripSlice, p.in - begin);
    const float* const x = rows_of(begin, tile.k, tile.x_stride);
    for (int64_t column = 0; column < p.columns; column += kTileColumns) {
      make_strip(column, begin, tile.k, strip);
      const int64_t columns = std::min(kTileColumns, p.columns - column);
      alignas(64) float bias[kTileColumns] = {}, edge[kTileRows * kTileColumns] = {};
      if (p.bias) std::copy_n(p.bias + column, columns, bias);
      // Each tile fetches a share of the next strip. Without this, matrices that are in no cache made GPT-2's
      // batches take 1.15 times as long on a Zen 3.
      const bool ends = column + kTileColumns >= p.columns;
      const int64_t next_column = ends ? 0 : column + kTileColumns,
                    next_begin = ends ? begin + tile.k : begin,
                    next_count = std::min(kStripSlice, p.in - next_begin),
                    share = (next_count * kTileRows + p.rows - 1) / p.rows + 1;
      int64_t fetched = 0;
      for (int64_t row = 0; row < p.rows; row += kTileRows) {
        const int64_t rows = std::min<int64_t>(kTileRows, p.rows - row);
        if (fetched < next_count)
          fetch_strip(next_column, next_begin + fetched, std::min(share, next_count - fetched));
        fetched += share;
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

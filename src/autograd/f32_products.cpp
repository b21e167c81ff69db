// Blocks of products of f32, in slices of k. b is copied into panels of two vectors of columns, in memory
// that each thread keeps, or once for several products. a is read where it is, but for some that lie badly
// (see ReadA).
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "autograd/gemm.h"
#include "fovea/core/executor.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/f32_products.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/load-inl.h"
#include "kernels/simd/memory-inl.h"
#include "kernels/simd/register_tile-inl.h"
#include "kernels/simd/transpose-inl.h"

#ifndef FOVEA_AUTOGRAD_F32_PRODUCTS_SIZES
#define FOVEA_AUTOGRAD_F32_PRODUCTS_SIZES
namespace fovea::autograd {
namespace {
constexpr std::int64_t tile_rows_of_any = 12;  // a multiple of the rows of a tile of every instruction set
}  // namespace
}  // namespace fovea::autograd
#endif

HWY_BEFORE_NAMESPACE();
namespace fovea::autograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::GroupsOf;
using kernels::HWY_NAMESPACE::kTileColumns;
using kernels::HWY_NAMESPACE::kTileRows;
namespace simd = kernels::HWY_NAMESPACE;

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

// Numbers of k that are multiplied before the next are copied: 12 rows of a are 18 KiB of the first-level
// cache, 512 columns of b are 768 KiB of the second. An element has the sum of each slice added to it: these
// are the sums of oneDNN 2.6 with AVX-512, which trainings once ran on.
constexpr int64_t kSlice = slice_of_f32;
static_assert(tile_rows_of_any % kTileRows == 0 && Panels::unit % kTileColumns == 0);
// AVX2 and SSE have half of the rows and half of the columns of a tile of AVX-512, or fewer.
constexpr bool kSmallTiles = kTileRows < 12;
// Steps of k that the panel is fetched ahead.
constexpr int64_t kAhead = 16;
constexpr int64_t kLine = 64 / sizeof(float);

struct SliceTile {
  const float* a = nullptr;
  int64_t a_leading = 0;
  const float* b = nullptr;  // [k, kTileColumns], and the next panel `next_panel` behind it
  int64_t next_panel = 0, k = 0;
  const float* bias = nullptr;
  bool add = false;
  float* c = nullptr;
  int64_t leading = 0, columns = 0;
  // A step of k fetches the line here, and the next step the one `later_step` numbers behind it.
  const float* later = nullptr;
  int64_t later_step = 0;
};

// Aligned, so that what stands before it in the program does not move the loop within lines of the cache.
template <int kRows, Transpose kA>
HWY_NOINLINE __attribute__((aligned(64))) void Tile(const SliceTile& t) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  constexpr int vectors = 2 * GroupsOf(kRows);
  const float* b[vectors / 2];
  hn::Vec<decltype(d)> sums[kRows][vectors];
  FOVEA_UNROLL for (int g = 0; g < vectors / 2; ++g) {
    // A panel past the last repeats it, and is not stored.
    b[g] = t.b + std::min<int64_t>(g, (t.columns - 1) / kTileColumns) * t.next_panel;
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) sums[r][2 * g] = sums[r][2 * g + 1] = hn::Zero(d);
  }
  const float *a = t.a, *later = t.later;
  const int64_t row_step = kA == Transpose::no ? t.a_leading : 1,
                step = kA == Transpose::no ? 1 : t.a_leading;
  const auto multiply = [&](int64_t k) HWY_ATTR {
    hn::Vec<decltype(d)> w[vectors];
    if constexpr (kA == Transpose::yes) hwy::Prefetch(a + kAhead * step);
    FOVEA_UNROLL for (int g = 0; g < vectors / 2; ++g) {
      hwy::Prefetch(b[g] + (k + kAhead) * kTileColumns);
      if constexpr (kTileColumns > 16) hwy::Prefetch(b[g] + (k + kAhead) * kTileColumns + lanes);
      w[2 * g] = hn::LoadU(d, b[g] + k * kTileColumns);
      w[2 * g + 1] = hn::LoadU(d, b[g] + k * kTileColumns + lanes);
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, a[r * row_step]);
      FOVEA_UNROLL for (int v = 0; v < vectors; ++v) sums[r][v] = hn::MulAdd(factor, w[v], sums[r][v]);
    }
    a += step;
  };
  int64_t k = 0;
  if constexpr (kSmallTiles) {
    for (; k < std::min<int64_t>(kRows, t.k); ++k) {
      __builtin_prefetch(t.c + k * t.leading, 1);
      multiply(k);
    }
    for (; k < t.k; ++k, later += t.later_step) {
      hwy::Prefetch(later);
      multiply(k);
    }
  }
  for (; k < t.k; ++k) multiply(k);
  float* c = t.c;
  const float* before = t.add ? c : t.bias;
  const int64_t leading = t.leading, columns = t.columns, before_leading = t.add ? leading : 0;
  if (columns == vectors * lanes) {
    if (before) {
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        FOVEA_UNROLL for (int v = 0; v < vectors; ++v) sums[r][v] =
            hn::Add(hn::LoadU(d, before + r * before_leading + v * lanes), sums[r][v]);
      }
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int v = 0; v < vectors; ++v) hn::StoreU(sums[r][v], d, c + r * leading + v * lanes);
    }
    return;
  }
  // All sums are stored before the loop, so that they stay in registers until then.
  HWY_ALIGN float last[kRows * vectors * lanes];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < vectors; ++v) hn::Store(sums[r][v], d, last + (r * vectors + v) * lanes);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < columns; ++i) {
      const float sum = last[r * vectors * lanes + i];
      c[r * leading + i] = before ? before[r * before_leading + i] + sum : sum;
    }
  }
}

#undef FOVEA_UNROLL

using TileFunction = void (*)(const SliceTile&);
template <Transpose kA>
constexpr std::array<TileFunction, 12> kTiles = {Tile<1, kA>,
                                                 Tile<2, kA>,
                                                 Tile<3, kA>,
                                                 Tile<4, kA>,
                                                 Tile<5, kA>,
                                                 Tile<6, kA>,
                                                 Tile<std::min(7, kTileRows), kA>,
                                                 Tile<std::min(8, kTileRows), kA>,
                                                 Tile<std::min(9, kTileRows), kA>,
                                                 Tile<std::min(10, kTileRows), kA>,
                                                 Tile<std::min(11, kTileRows), kA>,
                                                 Tile<kTileRows, kA>};

// Of the tiles whose first is `t`, the one of rows from r on and of columns from n on. Its a is `from_a`
// numbers from that of the first.
HWY_INLINE SliceTile TileAt(SliceTile t, int64_t r, int64_t from_a, int64_t n, int64_t columns) {
  t.a += from_a;
  t.b += n / kTileColumns * t.next_panel;
  t.bias = t.bias ? t.bias + n : nullptr;
  t.c += r * t.leading + n;
  t.columns = std::min(columns, t.columns - n);
  return t;
}

// Asks for the lines of c that a tile reads or writes: a vocabulary's logits are in no near cache.
void Fetch(const float* c, int64_t leading, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < kTileColumns; i += kLine) __builtin_prefetch(c + r * leading + i, 1);
  }
}

// Numbers that are read after the tiles of a group, for these to fetch. A step of k of tile i fetches the
// line of one number, and the next step that of the number `step` behind it. Tile i begins at `from` + i ·
// between.
struct Later {
  const float* from = nullptr;
  int64_t tiles = 0, between = 0, step = 0;
};
// Of numbers that lie as [k, columns], and as [rows, k].
Later LaterColumns(const float* from, int64_t leading, int64_t columns) {
  return {from, (columns + kLine - 1) / kLine, kLine, leading};
}
Later LaterRows(const float* from, int64_t leading, int64_t rows) {
  return {from, rows, leading, 1};
}
Later LaterOf(const Matrix& x, int64_t width, int64_t k, Transpose across) {
  return x.transpose == across ? LaterColumns(x.data + k * x.leading, x.leading, width)
                               : LaterRows(x.data + k, x.leading, width);
}

// Rows [begin, end) of c in whole tiles. A panel of b stays in the first-level cache for all of them.
void Group(TileFunction tile, const SliceTile& first, int64_t row_step, int64_t begin, int64_t end,
           const Later& later, const Later& after_it) {
  int64_t number = 0;
  for (int64_t n = 0; n < first.columns; n += kTileColumns) {
    for (int64_t r = begin; r < end; r += kTileRows, ++number) {
      SliceTile t = TileAt(first, r, r * row_step, n, kTileColumns);
      const bool of_first = number < later.tiles;
      const Later& lines = of_first ? later : after_it;
      const int64_t share = of_first ? number : number - later.tiles;
      t.later = share < lines.tiles ? lines.from + share * lines.between : t.a;
      t.later_step = share < lines.tiles ? lines.step : 0;
      tile(t);
    }
  }
}

// A slice of a: where it lies, or a copy. Row r, where a tile begins, is r · row_step numbers from the first.
struct SliceOfA {
  const float* data = nullptr;
  int64_t leading = 0, row_step = 0;
};

// The tiles of `rows` rows by the columns of `t`, which is the tile of the first. By AVX-512 a tile of a
// stays in the first-level cache while all panels pass by. Along small tiles the panels would pass by four
// times as fast, so there a panel stays while a group of rows of a passes by. Meanwhile the tiles fetch the
// rows of the next group, and behind the last group the next slices of a and b.
void AllTiles(Transpose transpose, const SliceOfA& a, int64_t rows, const SliceTile& t, const Later& next_b,
              const Later& next_a) {
  const auto& by_rows = transpose == Transpose::no ? kTiles<Transpose::no> : kTiles<Transpose::yes>;
  int64_t row = 0;
  if constexpr (kSmallTiles) {
    // Rows of a that stay in the second-level cache, 144 KiB, with up to 192 KiB of c.
    constexpr int64_t most = 96 / kTileRows;
    const int64_t tiles = rows / kTileRows, groups = (tiles + most - 1) / most;
    const auto row_of = [&](int64_t group) { return tiles * group / groups * kTileRows; };
    for (int64_t g = 0; g < groups; ++g, row = row_of(g)) {
      const int64_t end = row_of(g + 1);
      if (g + 1 == groups)
        Group(by_rows[kTileRows - 1], t, a.row_step, row, end, next_b, next_a);
      else
        Group(by_rows[kTileRows - 1], t, a.row_step, row, end,
              LaterRows(a.data + end * a.row_step, a.row_step, row_of(g + 2) - end), {});
    }
  }
  for (; row < rows; row += kTileRows) {
    const int64_t height = std::min<int64_t>(kTileRows, rows - row);
    const int64_t width = kTileColumns * GroupsOf(static_cast<int>(height));
    for (int64_t n = 0; n < t.columns; n += width) {
      if (n + width < t.columns) Fetch(t.c + row * t.leading + n + width, t.leading, height);
      SliceTile one = TileAt(t, row, row * a.row_step, n, width);
      one.later = one.a;
      by_rows[static_cast<size_t>(height - 1)](one);
    }
  }
}

// Rows of b that are copied together where panels lie across them. One row after the other would
// write to as many places as there are panels, and one panel after the other would read a line of each row, a
// page apart.
constexpr int64_t kTogether = 16;

// b [k, n] in panels: [panel, k, kTileColumns]. Columns past the last vector of b are not written.
void CopyAcross(const float* b, int64_t leading, int64_t columns, int64_t k, float* to) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  for (int64_t begin = 0; begin < k; begin += kTogether) {
    const int64_t end = std::min(k, begin + kTogether);
    for (int64_t n = 0; n < columns; n += lanes) {
      float* panel = to + n / kTileColumns * kTileColumns * k + n % kTileColumns;
      const bool whole = n + lanes <= columns;
      for (int64_t i = begin; i < end; ++i) {
        const float* from = b + i * leading + n;
        hwy::Prefetch(from + kTogether * leading);
        hn::StoreU(whole ? hn::LoadU(d, from) : simd::LoadWideN(d, from, columns - n), d,
                   panel + i * kTileColumns);
      }
    }
  }
}

// a that lies as [k, rows], in tiles: [tile, k, kTileRows].
void CopyTiles(const float* x, int64_t leading, int64_t rows, int64_t k, float* to) {
  for (int64_t begin = 0; begin < k; begin += kTogether) {
    const int64_t end = std::min(k, begin + kTogether);
    for (int64_t r = 0; r < rows; r += kTileRows) {
      const float* from = x + r;
      float* tile = to + r * k;
      if (rows - r >= kTileRows) {
        for (int64_t i = begin; i < end; ++i) {
          hwy::Prefetch(from + (i + kTogether) * leading);
          // std::copy_n would call memmove.
          std::memcpy(tile + i * kTileRows, from + i * leading, sizeof(float) * kTileRows);
        }
      } else {
        for (int64_t i = begin; i < end; ++i) std::copy_n(from + i * leading, rows - r, tile + i * kTileRows);
      }
    }
  }
}

void CopyRows(const float* x, int64_t leading, int64_t rows, int64_t k, float* to) {
  for (int64_t r = 0; r < rows; ++r) simd::Copy(x + r * leading, k, to + r * kSlice);
}

// A small tile has few numbers in each line of a transposed a, and with a panel of b these lines are 48 KiB,
// more than the first-level cache. So such an a is copied (docs/performance.md says what it gained).
SliceOfA ReadA(const Matrix& a, int64_t begin, int64_t rows, int64_t k, float* memory) {
  if (a.transpose == Transpose::no) {
    const float* from = a.data + begin;
    // Rows whole pages apart take one set of the first-level cache.
    if (a.leading % (1 << 10) != 0) return {from, a.leading, a.leading};
    CopyRows(from, a.leading, rows, k, memory);
    return {memory, kSlice, kSlice};
  }
  const float* from = a.data + begin * a.leading;
  if (!kSmallTiles) return {from, a.leading, 1};
  CopyTiles(from, a.leading, rows, k, memory);
  return {memory, kTileRows, k};
}

// The same panels as CopyAcross makes, of x that lies as [columns, k].
void CopyAlong(const float* x, int64_t leading, int64_t columns, int64_t k, float* to) {
  for (int64_t n = 0; n < columns; n += kTileColumns)
    simd::Transpose(x + n * leading, leading, std::min(kTileColumns, columns - n), k, kTileColumns,
                    to + n * k, kTileColumns);
}

// Copies the slice [begin, begin + k) of b into panels.
void CopyPanels(const Matrix& b, int64_t columns, int64_t begin, int64_t k, float* to) {
  if (b.transpose == Transpose::no)
    CopyAcross(b.data + begin * b.leading, b.leading, columns, k, to);
  else
    CopyAlong(b.data + begin, b.leading, columns, k, to);
}

const float* PanelsOfSlice(const Panels& panels, int64_t begin, int64_t k) {
  return panels.data + begin * panels.columns + panels.first * k;
}

// What a block reads of b from `begin` on. Of panels, a step of a tile fetches one row.
Later LaterOfB(const ProductBlock& p, int64_t begin) {
  if (begin == p.k) return {};
  if (!p.panels.data) return LaterOf(p.b, p.n, begin, Transpose::no);
  const int64_t k = slice_of(p.k - begin);
  return {PanelsOfSlice(p.panels, begin, k), (p.n + kTileColumns - 1) / kTileColumns, kTileColumns * k,
          kTileColumns};
}

void Block(const ProductBlock& p, float* a, float* b) {
  int64_t begin = 0;
  do {
    const int64_t k = slice_of(p.k - begin);
    if (!p.panels.data) CopyPanels(p.b, p.n, begin, k, b);
    const float* panels = p.panels.data ? PanelsOfSlice(p.panels, begin, k) : b;
    const SliceOfA slice = ReadA(p.a, begin, p.m, k, a);
    const int64_t end = begin + k;
    AllTiles(p.a.transpose, slice, p.m,
             {.a = slice.data,
              .a_leading = slice.leading,
              .b = panels,
              .next_panel = k * kTileColumns,
              .k = k,
              .bias = begin == 0 ? p.bias : nullptr,
              .add = p.add || begin > 0,
              .c = p.c,
              .leading = p.leading,
              .columns = p.n},
             LaterOfB(p, end), end == p.k ? Later{} : LaterOf(p.a, p.m, end, Transpose::yes));
    begin = end;
  } while (begin < p.k);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::autograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::autograd {
namespace {

// A slice of `width` columns or rows from a line of the cache on: the memory of a thread, which grows and
// stays.
float* memory_of_thread(std::vector<float>& of, std::int64_t width) {
  constexpr std::int64_t line = 64 / sizeof(float);
  // At once more than the largest block of gemm takes, so that no later product of this thread asks again.
  constexpr std::int64_t widest = 544;
  if (std::ssize(of) < width * slice_of_f32 + line)
    of.resize(static_cast<std::size_t>(std::max(width, widest) * slice_of_f32 + line));
  const auto address = reinterpret_cast<std::uintptr_t>(of.data());
  return of.data() + (64 - address % 64) % 64 / sizeof(float);
}

std::int64_t round_up(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

void f32_block_tiled(const ProductBlock& p) {
  thread_local std::vector<float> a, b;
  FOVEA_BEST(Block)
  (p, memory_of_thread(a, round_up(p.m, tile_rows_of_any)), memory_of_thread(b, round_up(p.n, Panels::unit)));
}

SharedPanels::SharedPanels(std::int64_t n, std::int64_t k, const Matrix& b)
    : memory_(DType::f32, {k, round_up(n, Panels::unit)}) {
  static constexpr ProfileLabel label{"copy for products", ProfilePart::products};
  const ProfileSpan span(label);
  KeptVector<std::int64_t> slices{0};
  while (slices.back() < k) slices.push_back(slices.back() + slice_of(k - slices.back()));
  constexpr std::int64_t columns = 8 * Panels::unit;  // of a unit
  const std::int64_t across = (n + columns - 1) / columns;
  const auto copy = FOVEA_BEST(CopyPanels);
  default_executor().parallel_for((std::ssize(slices) - 1) * across, [&](std::int64_t unit, int) {
    const auto slice = static_cast<std::size_t>(unit / across);
    const std::int64_t begin = slices[slice], size = slices[slice + 1] - begin,
                       first = unit % across * columns;
    Matrix from = b;
    from.data += b.transpose == Transpose::no ? first : first * b.leading;
    copy(from, std::min(columns, n - first), begin, size,
         memory_.data<float>() + begin * memory_.size(1) + first * size);
  });
}

}  // namespace fovea::autograd
#endif

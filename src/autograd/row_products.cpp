#include "autograd/row_products.h"

#include <algorithm>

#include "autograd/product_work.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/row_products.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::autograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

#if HWY_TARGET == HWY_SCALAR

template <class D, class V>
HWY_INLINE void StoreSumsOfLanes(D d, const V* v, float* to) {
  for (int i = 0; i < 4; ++i) hn::StoreU(v[i], d, to + i);
}

#else

// The sum of the blocks of 128 bits of a vector.
template <class D, class V>
HWY_INLINE auto SumOfBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Stores the sums of the lanes of four vectors side by side. Every sum is added up in the same order.
template <class D, class V>
HWY_INLINE void StoreSumsOfLanes(D d, const V* v, float* to) {
  const hn::RepartitionToWide<hn::RebindToUnsigned<D> > d64;
  const auto pair = [&](V a, V b) HWY_ATTR {
    return hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  };
  const auto first = pair(v[0], v[1]), second = pair(v[2], v[3]);
  const V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, first, second)),
                         hn::BitCast(d, hn::InterleaveUpper(d64, first, second)));
  hn::StoreU(SumOfBlocks(d, sums), hn::FixedTag<float, 4>(), to);
}

#endif

// The rows and columns of one tile of sums.
template <int kRows, int kColumns>
struct Factors {
  const float* x[kRows];
  const float* weight[kColumns];
};

template <int kRows, int kColumns, class D>
HWY_INLINE void AddProducts(D d, const Factors<kRows, kColumns>& from, int64_t k,
                            hn::Vec<D> (&sums)[kRows][kColumns]) {
  hn::Vec<D> rows[kRows];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) rows[r] = hn::LoadU(d, from.x[r] + k);
  FOVEA_UNROLL for (int c = 0; c < kColumns; ++c) {
    const auto weight = hn::LoadU(d, from.weight[c] + k);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) sums[r][c] = hn::MulAdd(rows[r], weight, sums[r][c]);
  }
}

// The products from (row, column) on. Columns beyond the last one repeat it and are not stored.
template <int kRows, int kColumns>
HWY_NOINLINE void Tile(const RowProducts& p, int64_t row, int64_t column) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  Factors<kRows, kColumns> all;
  for (int r = 0; r < kRows; ++r) all.x[r] = p.x + (row + r) * p.x_leading;
  for (int c = 0; c < kColumns; ++c)
    all.weight[c] = p.weight + std::min(column + c, p.out - 1) * p.weight_leading;
  hn::Vec<decltype(d)> sums[kRows][kColumns];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + lanes <= p.in; k += lanes) AddProducts<kRows, kColumns>(d, all, k, sums);
  if (k < p.in) {  // the rest, with zeros behind it
    HWY_ALIGN float rest[kRows + kColumns][lanes] = {};
    Factors<kRows, kColumns> last;
    for (int r = 0; r < kRows; ++r) {
      std::copy(all.x[r] + k, all.x[r] + p.in, rest[r]);
      last.x[r] = rest[r];
    }
    for (int c = 0; c < kColumns; ++c) {
      std::copy(all.weight[c] + k, all.weight[c] + p.in, rest[kRows + c]);
      last.weight[c] = rest[kRows + c];
    }
    AddProducts<kRows, kColumns>(d, last, 0, sums);
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int group = 0; group < kColumns; group += 4) {
      const int64_t first = column + group, count = std::min<int64_t>(4, p.out - first);
      float values[4];
      StoreSumsOfLanes(d, sums[r] + group, values);
      float* to = p.y + (row + r) * p.y_leading + first;
      for (int64_t c = 0; c < count; ++c) {
        if (p.add) values[c] += to[c];
        to[c] = p.bias ? values[c] + p.bias[first + c] : values[c];
      }
    }
  }
}

// The columns from `column` on, in so many vectors, of which the last may have only `last` columns.
template <int kVectors>
HWY_INLINE void Columns(const ColumnProducts& p, int64_t column, int64_t last) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  constexpr int64_t ahead = 8;  // rows
  const auto load = [&](const float* from, int v) HWY_ATTR {
    return v + 1 == kVectors && last < lanes ? kernels::HWY_NAMESPACE::LoadWideN(d, from + v * lanes, last)
                                             : hn::LoadU(d, from + v * lanes);
  };
  hn::Vec<decltype(d)> sums[kVectors];
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  const float* row = p.weight + column;
  for (int64_t k = 0; k < p.in; ++k, row += p.leading) {
    const auto factor = hn::Set(d, p.x[k]);
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
      hwy::Prefetch(row + ahead * p.leading + v * lanes);
      sums[v] = hn::MulAdd(factor, load(row, v), sums[v]);
    }
  }
  if (const float* before = p.add ? p.y : p.bias) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sums[v] = hn::Add(sums[v], load(before + column, v));
  }
  HWY_ALIGN float values[kVectors * lanes];
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, values + v * lanes);
  std::copy_n(values, (kVectors - 1) * lanes + last, p.y + column);
}

#undef FOVEA_UNROLL

void AllColumns(const ColumnProducts& p) {
  constexpr int64_t lanes = hn::MaxLanes(hn::ScalableTag<float>());
  int64_t n = 0;
  for (; n + 8 * lanes <= p.out; n += 8 * lanes) Columns<8>(p, n, lanes);
  for (; n < p.out; n += lanes) Columns<1>(p, n, std::min(lanes, p.out - n));
}

// Rows [row, end) by the columns [column, last). 3 × 4 sums, 3 of x and one weight are the 16 registers of
// AVX2. One row alone takes 8 columns, because 4 sums would wait for each other.
void Block(const RowProducts& p, int64_t row, int64_t end, int64_t column, int64_t last) {
  const int64_t threes = row + (end - row) / 3 * 3;
  for (int64_t n = column; n < last; n += 4) {
    for (int64_t r = row; r < threes; r += 3) Tile<3, 4>(p, r, n);
    if (end - threes == 2) Tile<2, 4>(p, threes, n);
  }
  if (end - threes == 1) {
    for (int64_t n = column; n < last; n += 8) Tile<1, 8>(p, threes, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::autograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::autograd {

namespace {

RowProducts without_gaps(RowProducts p) {
  if (p.x_leading == 0) p.x_leading = p.in;
  if (p.weight_leading == 0) p.weight_leading = p.in;
  if (p.y_leading == 0) p.y_leading = p.out;
  return p;
}

}  // namespace

void row_products(const RowProducts& p) {
  FOVEA_BEST(Block)(without_gaps(p), 0, p.rows, 0, p.out);
}

void column_products(const ColumnProducts& p) {
  FOVEA_BEST(AllColumns)(p);
}

void row_products(const RowProducts& products, Executor& executor) {
  const RowProducts p = without_gaps(products);
  // 48 rows of 512 numbers are 96 KiB, which stay in the second-level cache while 64 columns pass by.
  constexpr std::int64_t block_rows = 48, block_columns = 64;
  // Below this, waking a thread costs more than its share: 2^17 products take some 4 µs.
  constexpr std::int64_t least_parallel = 1 << 17;
  const std::int64_t down = (p.rows + block_rows - 1) / block_rows,
                     across = (p.out + block_columns - 1) / block_columns;
  Executor& chosen = p.rows * p.in * p.out < least_parallel ? serial_executor() : executor;
  static constexpr ProfileLabel label{"product by rows", ProfilePart::products};
  const ProfileSpan span(label, product_work(p.rows, p.out, p.in));
  chosen.parallel_for(down * across, [&](std::int64_t unit, int) {
    const std::int64_t row = unit / across * block_rows, column = unit % across * block_columns;
    FOVEA_BEST(Block)
    (p, row, std::min(p.rows, row + block_rows), column, std::min(p.out, column + block_columns));
  });
}

}  // namespace fovea::autograd
#endif

#include "autograd/int8_products.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/int8_products.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::autograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest bits of an absolute value. As whole numbers they have the order of the numbers, and those of an
// infinity or a NaN are above all others.
int32_t LargestBits(const float* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(di);
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes)
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + k))));
  int32_t result = hn::GetLane(hn::MaxOfLanes(di, largest));
  for (; k < count; ++k) {
    int32_t bits;
    std::memcpy(&bits, x + k, sizeof bits);
    result = std::max(result, bits & 0x7fffffff);
  }
  return result;
}

void QuantizeRow(const float* x, int64_t count, float& scale, int16_t* numbers, uint8_t* bytes) {
  const int32_t bits = LargestBits(x, count);
  float largest;
  std::memcpy(&largest, &bits, sizeof largest);
  // Below this a row is 0: the factor of smaller numbers would be infinite.
  constexpr float least = 1e-30f;
  const bool finite = bits < 0x7f800000;
  scale = !finite ? std::numeric_limits<float>::quiet_NaN() : largest < least ? 0.0f : largest / 127.0f;
  const float factor = finite && largest >= least ? 127.0f / largest : 0.0f;
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int16_t, decltype(d)> d16;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto put = [&](const float* from, int16_t* to16, uint8_t* to8) HWY_ATTR {
    const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, from), hn::Set(d, factor)));
    if (to8)
      hn::StoreU(hn::DemoteTo(d8, hn::Add(q, hn::Set(di, 128))), d8, to8);
    else
      hn::StoreU(hn::DemoteTo(d16, q), d16, to16);
  };
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) put(x + k, numbers + k, bytes ? bytes + k : nullptr);
  if (k == count) return;
  HWY_ALIGN float last[hn::MaxLanes(d)] = {};
  HWY_ALIGN int16_t last16[hn::MaxLanes(d)];
  HWY_ALIGN uint8_t last8[hn::MaxLanes(d)];
  std::copy_n(x + k, count - k, last);
  put(last, last16, bytes ? last8 : nullptr);
  if (bytes)
    std::copy_n(last8, count - k, bytes + k);
  else
    std::copy_n(last16, count - k, numbers + k);
}

// Sums of whole numbers as elements of a row, from a column on.
void Finish(const PackedProducts& p, float scale, const int32_t* sums, int64_t row, int64_t column,
            int64_t count) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* scales = p.weight->scales() + column;
  const float* bias = p.bias ? p.bias + column : nullptr;
  float* to = p.place(row, column);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto factor = hn::Mul(hn::Set(d, scale), hn::LoadU(d, scales + i));
    const auto product = hn::Mul(hn::ConvertTo(d, hn::LoadU(di, sums + i)), factor);
    hn::StoreU(bias ? hn::Add(product, hn::LoadU(d, bias + i)) : product, d, to + i);
  }
  for (; i < count; ++i) {
    const float product = static_cast<float>(sums[i]) * (scale * scales[i]);
    to[i] = bias ? product + bias[i] : product;
  }
}

#if HWY_TARGET == HWY_SCALAR

void ScalarTile(const PackedProducts& p, const QuantizedRows& x, int64_t row, int64_t column, int64_t count) {
  constexpr int64_t panel_rows = PackedMatrix::panel_rows;
  const int8_t* panel = p.weight->quantized() + column * x.columns;
  const int16_t* from = x.numbers.get() + row * x.columns;
  int32_t sums[panel_rows] = {};
  for (int64_t k = 0; k < x.columns; ++k) {
    for (int64_t n = 0; n < panel_rows; ++n) sums[n] += from[k] * panel[(k / 4 * panel_rows + n) * 4 + k % 4];
  }
  Finish(p, x.scales[static_cast<std::size_t>(row)], sums, row, column, count);
}

#else

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

constexpr int kMostRows = 6;

// The vectors of a panel that a tile of so many rows takes: as many as leave registers for the sums of each,
// a row's factors and the weights. AVX2 has 16.
constexpr int VectorsOf(int rows) {
  constexpr int all =
      static_cast<int>(PackedMatrix::panel_rows * 4 / hn::MaxLanes(hn::ScalableTag<int16_t>()));
  return std::min(all, rows == 1 ? 8 : rows <= 3 ? 4 : 2);
}

// The products of rows of x with rows of a panel: four columns at once are widened to 16 bits, once for all
// rows, multiplied, and added up in pairs (x86) or by halves of the vector (Arm).
template <int kRows>
HWY_NOINLINE void Tile(const PackedProducts& p, const QuantizedRows& x, int64_t row, int64_t column,
                       int64_t count) {
  const hn::ScalableTag<int16_t> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const hn::RepartitionToWide<decltype(d16)> d32;
  const hn::Repartition<int64_t, decltype(d16)> d64;
  constexpr int64_t lanes = hn::MaxLanes(d16), panel_rows = PackedMatrix::panel_rows;
  constexpr int vectors = VectorsOf(kRows);
  constexpr int64_t here = lanes / 4;  // rows of the panel in a vector
  const int64_t columns = x.columns;
  const int16_t* from = x.numbers.get() + row * columns;
  const int8_t* panel = p.weight->quantized() + column * columns;
  for (int64_t begin = 0; begin * here < count; begin += vectors) {
    hn::Vec<decltype(d32)> first[kRows][vectors], second[kRows][vectors];
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int v = 0; v < vectors; ++v) first[r][v] = second[r][v] = hn::Zero(d32);
    }
    const int8_t* weights = panel + begin * lanes;
    for (int64_t k = 0; k < columns; k += 4) {
      hn::Vec<decltype(d16)> factor[kRows];
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        int64_t four;
        std::memcpy(&four, from + r * columns + k, sizeof four);
        factor[r] = hn::BitCast(d16, hn::Set(d64, four));
      }
      FOVEA_UNROLL for (int v = 0; v < vectors; ++v) {
        const auto weight = hn::PromoteTo(d16, hn::LoadU(d8, weights + k * panel_rows + v * lanes));
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) first[r][v] =
            hn::ReorderWidenMulAccumulate(d32, weight, factor[r], first[r][v], second[r][v]);
      }
    }
    HWY_ALIGN int32_t sums[vectors * here];
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
#if HWY_ARCH_X86
      // Lanes 2n and 2n + 1 have the four products of row n.
      FOVEA_UNROLL for (int v = 0; v < vectors; v += 2) {
        const auto even = hn::ConcatEven(d32, first[r][v + 1], first[r][v]),
                   odd = hn::ConcatOdd(d32, first[r][v + 1], first[r][v]);
        hn::Store(hn::Add(even, odd), d32, sums + v * here);
      }
#else
      HWY_ALIGN int32_t parts[2][hn::MaxLanes(d32)];
      for (int v = 0; v < vectors; ++v) {
        hn::Store(first[r][v], d32, parts[0]);
        hn::Store(second[r][v], d32, parts[1]);
        for (int64_t n = 0; n < here; ++n) {
          const int32_t* half = parts[n / (here / 2)] + n % (here / 2) * 4;
          sums[v * here + n] = half[0] + half[1] + half[2] + half[3];
        }
      }
#endif
      Finish(p, x.scales[static_cast<std::size_t>(row + r)], sums, row + r, column + begin * here,
             std::min<int64_t>(vectors * here, count - begin * here));
    }
  }
}

#endif

void Int8Block(const PackedProducts& p, const QuantizedRows& x, int64_t row, int64_t end, int64_t column,
               int64_t last) {
  using Rows = void (*)(const PackedProducts&, const QuantizedRows&, int64_t, int64_t, int64_t);
#if HWY_TARGET == HWY_SCALAR
  static constexpr std::array<Rows, 1> by_rows = {ScalarTile};
#else
  static constexpr std::array<Rows, kMostRows> by_rows = {Tile<1>, Tile<2>, Tile<3>,
                                                          Tile<4>, Tile<5>, Tile<6>};
#endif
  constexpr int64_t panel_rows = PackedMatrix::panel_rows, most = by_rows.size();
  for (int64_t n = column; n < last; n += panel_rows) {
    for (int64_t r = row; r < end; r += most)
      by_rows[static_cast<std::size_t>(std::min(most, end - r) - 1)](p, x, r, n,
                                                                     std::min(panel_rows, last - n));
  }
}

#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::autograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::autograd {

QuantizedRows::QuantizedRows(std::int64_t rows, std::int64_t width, bool as_bytes) : columns(width) {
  const auto count = static_cast<std::size_t>(rows * width);
  scales.resize(static_cast<std::size_t>(rows));
  // Columns past the last of x meet zeros of the weights, so nothing has to be initialised.
  if (as_bytes)
    bytes = std::make_unique_for_overwrite<std::uint8_t[]>(count);
  else
    numbers = std::make_unique_for_overwrite<std::int16_t[]>(count);
}

QuantizedRows int8_rows(const PackedProducts& p, Executor& executor, bool vnni) {
  const std::int64_t in = p.weight->in(), columns = p.weight->padded_in();
  QuantizedRows x(p.rows, columns, vnni);
  constexpr std::int64_t least_parallel = 1 << 16;  // numbers: some 4 µs
  Executor& by_rows = p.rows * in < least_parallel ? serial_executor() : executor;
  constexpr std::int64_t rows_a_unit = 16;
  by_rows.parallel_for((p.rows + rows_a_unit - 1) / rows_a_unit, [&](std::int64_t unit, int) {
    for (std::int64_t r = unit * rows_a_unit; r < std::min(p.rows, (unit + 1) * rows_a_unit); ++r) {
      FOVEA_BEST(QuantizeRow)
      (p.x + r * p.x_stride, in, x.scales[static_cast<std::size_t>(r)],
       vnni ? nullptr : x.numbers.get() + r * columns, vnni ? x.bytes.get() + r * columns : nullptr);
    }
  });
  return x;
}

void int8_block(const PackedProducts& p, const QuantizedRows& x, const ProductBlockAt& at, bool vnni) {
  if (vnni)
    int8_block_vnni(p, x, at.row, at.end, at.column, at.last);
  else
    FOVEA_BEST(Int8Block)(p, x, at.row, at.end, at.column, at.last);
}

}  // namespace fovea::autograd
#endif

#include "autograd/int8_products.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/cpu.h"
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

// A byte is (q + 128) xor `flip`: q + 128 where `flip` is 0, and q itself where it is 0x80.
void QuantizeRow(const float* x, int64_t count, float& scale, int16_t* numbers, uint8_t* bytes,
                 uint8_t flip) {
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
      hn::StoreU(hn::Xor(hn::DemoteTo(d8, hn::Add(q, hn::Set(di, 128))), hn::Set(d8, flip)), d8, to8);
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

#if HWY_TARGET == HWY_SCALAR

void Sums(const int16_t* x, const int8_t* panel, int64_t columns, int32_t* sums) {
  std::fill_n(sums, PackedMatrix::panel_rows, 0);
  for (int64_t k = 0; k < columns; ++k) {
    for (int64_t n = 0; n < PackedMatrix::panel_rows; ++n)
      sums[n] += x[k] * panel[(k / 4 * PackedMatrix::panel_rows + n) * 4 + k % 4];
  }
}

#else

// The products of one row of x with the rows of a panel: four columns at once are widened to 16 bits,
// multiplied, and added up in pairs (x86) or by halves of the vector (Arm).
void Sums(const int16_t* x, const int8_t* panel, int64_t columns, int32_t* sums) {
  const hn::ScalableTag<int16_t> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  const hn::RepartitionToWide<decltype(d16)> d32;
  const hn::Repartition<int64_t, decltype(d16)> d64;
  constexpr int64_t lanes = hn::MaxLanes(d16), rows = PackedMatrix::panel_rows;
  constexpr int vectors = static_cast<int>(rows * 4 / lanes);
  hn::Vec<decltype(d32)> first[vectors], second[vectors];
  _Pragma("GCC unroll 16") for (int v = 0; v < vectors; ++v) first[v] = second[v] = hn::Zero(d32);
  for (int64_t k = 0; k < columns; k += 4) {
    int64_t four;
    std::memcpy(&four, x + k, sizeof four);
    const auto factor = hn::BitCast(d16, hn::Set(d64, four));
    _Pragma("GCC unroll 16") for (int v = 0; v < vectors; ++v) {
      const auto weight = hn::PromoteTo(d16, hn::LoadU(d8, panel + k * rows + v * lanes));
      first[v] = hn::ReorderWidenMulAccumulate(d32, weight, factor, first[v], second[v]);
    }
  }
  HWY_ALIGN int32_t parts[2][hn::MaxLanes(d32)];
  for (int v = 0; v < vectors; ++v) {
    hn::Store(first[v], d32, parts[0]);
    hn::Store(second[v], d32, parts[1]);
    // Where the four products of row n of this vector went.
    constexpr int64_t here = lanes / 4;
    for (int64_t n = 0; n < here; ++n) {
#if HWY_ARCH_X86
      sums[v * here + n] = parts[0][2 * n] + parts[0][2 * n + 1];
#else
      const int32_t* half = parts[n / (here / 2)] + n % (here / 2) * 4;
      sums[v * here + n] = half[0] + half[1] + half[2] + half[3];
#endif
    }
  }
}

#endif

void Int8Block(const PackedProducts& p, const QuantizedRows& x, int64_t row, int64_t end, int64_t column,
               int64_t last) {
  constexpr int64_t rows = PackedMatrix::panel_rows;
  HWY_ALIGN int32_t sums[rows];
  for (int64_t n = column; n < last; n += rows) {
    const int8_t* panel = p.weight->quantized() + n * x.columns;
    for (int64_t r = row; r < end; ++r) {
      Sums(x.numbers.get() + r * x.columns, panel, x.columns, sums);
      const float scale = x.scales[static_cast<std::size_t>(r)];
      for (int64_t i = 0; i < std::min(rows, last - n); ++i) {
        const float product = static_cast<float>(sums[i]) * (scale * p.weight->scales()[n + i]);
        *p.place(r, n + i) = p.bias ? product + p.bias[n + i] : product;
      }
    }
  }
}

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

Int8Path best_int8_path() noexcept {
  return cpu_has_avx512_vnni() ? Int8Path::vnni : cpu_has_avx2() ? Int8Path::avx2 : Int8Path::any;
}

QuantizedRows int8_rows(const PackedProducts& p, Executor& executor, Int8Path path) {
  const bool as_bytes = path != Int8Path::any;
  const std::int64_t in = p.weight->in(), columns = p.weight->padded_in();
  QuantizedRows x(p.rows, columns, as_bytes);
  constexpr std::int64_t least_parallel = 1 << 16;  // numbers: some 4 µs
  Executor& by_rows = p.rows * in < least_parallel ? serial_executor() : executor;
  constexpr std::int64_t rows_a_unit = 16;
  by_rows.parallel_for((p.rows + rows_a_unit - 1) / rows_a_unit, [&](std::int64_t unit, int) {
    for (std::int64_t r = unit * rows_a_unit; r < std::min(p.rows, (unit + 1) * rows_a_unit); ++r) {
      FOVEA_BEST(QuantizeRow)
      (p.x + r * p.x_stride, in, x.scales[static_cast<std::size_t>(r)],
       as_bytes ? nullptr : x.numbers.get() + r * columns, as_bytes ? x.bytes.get() + r * columns : nullptr,
       path == Int8Path::avx2 ? 0x80 : 0);
    }
  });
  return x;
}

void int8_block(const PackedProducts& p, const QuantizedRows& x, const ProductBlockAt& at, Int8Path path) {
  if (path == Int8Path::vnni)
    int8_block_vnni(p, x, at.row, at.end, at.column, at.last);
  else if (path == Int8Path::avx2)
    int8_block_avx2(p, x, at.row, at.end, at.column, at.last);
  else
    FOVEA_BEST(Int8Block)(p, x, at.row, at.end, at.column, at.last);
}

}  // namespace fovea::autograd
#endif

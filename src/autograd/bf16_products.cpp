#include "autograd/bf16_products.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "core/memory.h"
#include "fovea/core/dtype.h"
#include "kernels/simd/convert.h"
#include "kernels/simd/targets.h"
#include "kernels/tiles/product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/bf16_products.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/memory-inl.h"
#include "kernels/simd/strip_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::autograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

using kernels::HWY_NAMESPACE::kTileColumns;
constexpr int64_t kPanel = PackedMatrix::panel_rows;

// Pair k / 2 of the columns of a matrix from `column` on.
const uint32_t* PairsAt(const PackedMatrix& matrix, int64_t column, int64_t k) {
  return reinterpret_cast<const uint32_t*>(matrix.rounded()) +
         (column / kPanel * matrix.pairs() + k / 2) * kPanel + column % kPanel;
}

// The products of kRows rows of x, f32 numbers `stride` apart, with kVectors vectors of a panel from column
// `first` on. The sum of an element takes the two numbers of a pair one after the other.
template <int kRows, int kVectors>
void Tile(const PackedProducts& p, const float* x, int64_t stride, int64_t row, int64_t first, int64_t last) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr int64_t lanes = hn::MaxLanes(d);
  const int64_t pairs = p.weight->pairs(), count = std::min(kVectors * lanes, last - first);
  HWY_ALIGN float edge[kVectors * lanes] = {};
  if (p.bias) std::copy_n(p.bias + first, count, edge);
  hn::Vec<decltype(d)> sums[kRows][kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Load(d, edge + v * lanes);
  }
  const uint32_t* weight = PairsAt(*p.weight, first, 0);
  const auto add = [&](int64_t k, const hn::Vec<decltype(du)>(&numbers)[kVectors]) HWY_ATTR {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, x[r * stride + k]);
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] =
          hn::MulAdd(factor, hn::BitCast(d, numbers[v]), sums[r][v]);
    }
  };
  const auto high = hn::Set(du, 0xffff0000u);
  for (int64_t k = 0; k < pairs; ++k, weight += kPanel) {
    hn::Vec<decltype(du)> numbers[kVectors];
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) numbers[v] =
        hn::ShiftLeft<16>(hn::LoadU(du, weight + v * lanes));
    add(2 * k, numbers);
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) numbers[v] =
        hn::And(hn::LoadU(du, weight + v * lanes), high);
    add(2 * k + 1, numbers);
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, edge + v * lanes);
    std::copy_n(edge, count, p.place(row + r, first));
  }
}

#undef FOVEA_UNROLL

// One or two rows take four vectors, so that more chains of sums run at once.
template <int kRows>
void Across(const PackedProducts& p, const float* x, int64_t stride, const ProductBlockAt& at) {
  constexpr int64_t lanes = hn::MaxLanes(hn::ScalableTag<float>());
  constexpr int kVectors = std::min<int>(kRows <= 2 ? 4 : 2, kPanel / lanes);
  static_assert(kPanel % (kVectors * lanes) == 0);
  for (int64_t n = at.column; n < at.last; n += kVectors * lanes)
    Tile<kRows, kVectors>(p, x, stride, at.row, n, at.last);
}

// Numbers [begin, begin + count) of the rows of a block, in memory of this thread that the next call takes.
const float* WideRows(const Bf16Rows& x, const ProductBlockAt& at, int64_t begin, int64_t count) {
  thread_local std::vector<float> memory;
  const int64_t rows = at.end - at.row;
  if (std::ssize(memory) < rows * count) memory.resize(static_cast<size_t>(rows * count));
  for (int64_t r = 0; r < rows; ++r)
    kernels::widen(reinterpret_cast<const bfloat16*>(x.pairs + (at.row + r) * x.stride) + begin, count,
                   memory.data() + r * count);
  return memory.data();
}

// Numbers [begin, begin + count) of k of a strip of the matrix; begin and count are even.
void MakeStrip(const PackedMatrix& matrix, int64_t column, int64_t begin, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr int64_t lanes = hn::MaxLanes(d);
  const auto high = hn::Set(du, 0xffff0000u);
  const uint32_t* from = PairsAt(matrix, column, begin);
  for (int64_t k = 0; k < count; k += 2, from += kPanel, to += 2 * kTileColumns) {
    for (int64_t v = 0; v < kTileColumns; v += lanes) {
      const auto pair = hn::LoadU(du, from + v);
      hn::StoreU(hn::ShiftLeft<16>(pair), du, reinterpret_cast<uint32_t*>(to + v));
      hn::StoreU(hn::And(pair, high), du, reinterpret_cast<uint32_t*>(to + kTileColumns + v));
    }
  }
}

void Bf16Block(const PackedProducts& p, const Bf16Rows& x, const ProductBlockAt& at) {
  using Rows = void (*)(const PackedProducts&, const float*, int64_t, const ProductBlockAt&);
  static constexpr std::array<Rows, 5> by_rows = {Across<1>, Across<2>, Across<3>, Across<4>, Across<5>};
  // With the zeros behind an odd number of columns, for few rows and for many: they turn a sum of -0 into 0.
  const int64_t rows = at.end - at.row, count = 2 * p.weight->pairs();
  if (rows <= std::ssize(by_rows)) {
    return by_rows[static_cast<size_t>(rows - 1)](p, WideRows(x, at, 0, count), count, at);
  }
  const auto rows_of = [&](int64_t begin, int64_t length, int64_t& stride) {
    stride = length;
    return WideRows(x, at, begin, length);
  };
  alignas(64) float strip[kernels::HWY_NAMESPACE::kStripSlice * kTileColumns];
  const auto strip_at = [&](int64_t column, int64_t begin, int64_t length) -> const float* {
    MakeStrip(*p.weight, at.column + column, begin, length, strip);
    return strip;
  };
  // The first strip of a panel fetches the whole panel.
  const auto source_of = [&](int64_t column, int64_t begin, int64_t length) {
    const uint32_t* from = PairsAt(*p.weight, at.column + column, begin);
    return std::span(reinterpret_cast<const float*>(from),
                     (at.column + column) % kPanel == 0 ? static_cast<size_t>(length / 2 * kPanel) : 0);
  };
  kernels::StripProduct product = p.strips(at);
  product.in = count;
  kernels::HWY_NAMESPACE::MultiplyByStrips(product, rows_of, strip_at, source_of);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::autograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::autograd {

namespace {

void round_rows_any(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t in,
                    std::uint32_t* to, std::int64_t to_stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    auto* row = reinterpret_cast<bfloat16*>(to + r * to_stride);
    kernels::narrow(x + r * stride, in, row);
    if (in % 2 != 0) row[in] = bfloat16(0.0f);
  }
}

// The numbers of a matrix rounded to bf16, as f32 without gaps in the same order.
Matrix rounded(const Matrix& x, std::int64_t rows, std::int64_t columns, std::vector<float>& to) {
  if (x.transpose == Transpose::yes) std::swap(rows, columns);
  if (std::ssize(to) < rows * columns) to.resize(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      to[static_cast<std::size_t>(r * columns + c)] = static_cast<float>(bfloat16(x.data[r * x.leading + c]));
  }
  return {to.data(), columns, x.transpose};
}

}  // namespace

void bf16_block_any(const ProductBlock& p) {
  thread_local std::vector<float> a, b;
  ProductBlock block = p;
  block.a = rounded(p.a, p.m, p.k, a);
  block.b = rounded(p.b, p.k, p.n, b);
  block.panels = {};  // they are not rounded
  f32_block(block);
}

void bf16_round_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t in,
                     std::uint32_t* to, std::int64_t to_stride, bool dot) {
  (dot ? bf16_round_rows_dot : round_rows_any)(x, stride, rows, in, to, to_stride);
}

void bf16_narrow_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t width,
                      bfloat16* to, std::int64_t to_stride) {
  // The conversion of any CPU takes several instructions in the place of one.
  if (cpu_has_avx512_bf16() && width % 2 == 0 && to_stride % 2 == 0)
    return bf16_round_rows_dot(x, stride, rows, width, reinterpret_cast<std::uint32_t*>(to), to_stride / 2);
  for (std::int64_t r = 0; r < rows; ++r) kernels::narrow(x + r * stride, width, to + r * to_stride);
}

bool runs_here(Bf16Path path) noexcept {
  if (path == Bf16Path::tiles) return cpu_has_avx512_bf16() && !kernels::amx_absence();
  return path == Bf16Path::any || cpu_has_avx512_bf16();
}
Bf16Path best_bf16_path() noexcept {
  if (runs_here(Bf16Path::tiles)) return Bf16Path::tiles;
  return runs_here(Bf16Path::dots) ? Bf16Path::dots : Bf16Path::any;
}

bool bf16_rows_lie_well(std::int64_t in) noexcept {
  constexpr std::int64_t numbers_of_two_kibibytes = 1024;
  return in % 2 == 0 && in % numbers_of_two_kibibytes != 0 && best_bf16_path() != Bf16Path::tiles;
}

std::shared_ptr<std::uint32_t[]> bf16_pairs(std::int64_t rows, std::int64_t stride) {
  // Not a vector: filling 6 MiB of a feed-forward part with zeros, on one thread, took a tenth of its
  // product.
  const auto memory =
      allocate_elements(static_cast<std::size_t>((rows + 15) * stride) * sizeof(std::uint32_t));
  return {memory, reinterpret_cast<std::uint32_t*>(memory.get())};
}

std::shared_ptr<std::uint32_t[]> bf16_rows(const PackedProducts& p, Executor& executor) {
  const std::int64_t in = p.weight->in(), stride = bf16_row_stride(p.weight->pairs());
  auto x = bf16_pairs(p.rows, stride);
  constexpr std::int64_t least_parallel = 1 << 16;  // numbers: some 4 µs
  Executor& by_rows = p.rows * in < least_parallel ? serial_executor() : executor;
  constexpr std::int64_t rows_a_unit = 16;
  by_rows.parallel_for((p.rows + rows_a_unit - 1) / rows_a_unit, [&](std::int64_t unit, int) {
    const std::int64_t row = unit * rows_a_unit, count = std::min(rows_a_unit, p.rows - row);
    bf16_round_rows(p.x + row * p.x_stride, p.x_stride, count, in, x.get() + row * stride, stride);
  });
  return x;
}

void bf16_block(const PackedProducts& p, const Bf16Rows& x, const ProductBlockAt& at, Bf16Path path) {
  if (path == Bf16Path::any) return FOVEA_BEST(Bf16Block)(p, x, at);
  const auto block = path == Bf16Path::tiles ? bf16_packed_tiles : bf16_packed_dot;
  block(p, x, at.row, at.end, at.column, at.last);
}

}  // namespace fovea::autograd
#endif

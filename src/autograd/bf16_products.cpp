#include "autograd/bf16_products.h"

#include <algorithm>
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

HWY_BEFORE_NAMESPACE();
namespace fovea::autograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

// The products of kRows rows of pairs with two vectors of a panel's 32 rows from `lane` on. The sum of an
// element takes the two numbers of a pair one after the other.
template <int kRows>
void Tile(const PackedProducts& p, const Bf16Rows& x, int64_t row, int64_t column, int64_t lane,
          int64_t last) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr int64_t lanes = hn::MaxLanes(d), panel = PackedMatrix::panel_rows;
  const int64_t pairs = p.weight->pairs(), first = column + lane;
  const int64_t count = std::min(2 * lanes, last - first);
  HWY_ALIGN float edge[2 * lanes] = {};
  if (p.bias) std::copy_n(p.bias + first, count, edge);
  hn::Vec<decltype(d)> sums[kRows][2];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2; ++v) sums[r][v] = hn::Load(d, edge + v * lanes);
  }
  const auto* weight = reinterpret_cast<const uint32_t*>(p.weight->rounded()) + column * pairs + lane;
  const auto high = hn::Set(du, 0xffff0000u);
  for (int64_t k = 0; k < pairs; ++k) {
    hn::Vec<decltype(d)> even[2], odd[2];
    FOVEA_UNROLL for (int v = 0; v < 2; ++v) {
      const auto pair = hn::LoadU(du, weight + k * panel + v * lanes);
      even[v] = hn::BitCast(d, hn::ShiftLeft<16>(pair));
      odd[v] = hn::BitCast(d, hn::And(pair, high));
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto pair = hn::Set(du, x.pairs[(row + r) * x.stride + k]);
      const auto a = hn::BitCast(d, hn::ShiftLeft<16>(pair)), b = hn::BitCast(d, hn::And(pair, high));
      FOVEA_UNROLL for (int v = 0; v < 2; ++v) sums[r][v] =
          hn::MulAdd(b, odd[v], hn::MulAdd(a, even[v], sums[r][v]));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v) hn::Store(sums[r][v], d, edge + v * lanes);
    std::copy_n(edge, count, p.place(row + r, first));
  }
}

#undef FOVEA_UNROLL

void Bf16Block(const PackedProducts& p, const Bf16Rows& x, int64_t row, int64_t end, int64_t column,
               int64_t last) {
  constexpr int64_t panel = PackedMatrix::panel_rows, width = 2 * hn::MaxLanes(hn::ScalableTag<float>());
  static_assert(panel % width == 0);
  for (int64_t n = column; n < last; n += panel) {
    for (int64_t lane = 0; lane < std::min(panel, last - n); lane += width) {
      int64_t r = row;
      for (; r + 4 <= end; r += 4) Tile<4>(p, x, r, n, lane, last);
      for (; r < end; ++r) Tile<1>(p, x, r, n, lane, last);
    }
  }
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
    for (std::int64_t k = 0; k < in; k += 2) {
      const std::uint32_t low = bfloat16(x[r * stride + k]).bits,
                          high = k + 1 < in ? bfloat16(x[r * stride + k + 1]).bits : 0;
      to[r * to_stride + k / 2] = low | high << 16;
    }
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
  const auto block = path == Bf16Path::tiles  ? bf16_packed_tiles
                     : path == Bf16Path::dots ? bf16_packed_dot
                                              : FOVEA_BEST(Bf16Block);
  block(p, x, at.row, at.end, at.column, at.last);
}

}  // namespace fovea::autograd
#endif

#include "autograd/packed_products.h"

#include <algorithm>
#include <array>
#include <vector>

#include "autograd/bf16_products.h"
#include "autograd/int8_products.h"
#include "autograd/last_blocks.h"
#include "autograd/product_work.h"
#include "core/awake_threads.h"
#include "core/cpu.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/packed_products.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/memory-inl.h"
#include "kernels/simd/register_tile-inl.h"
#include "kernels/simd/strip_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::autograd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::GroupsOf;
using kernels::HWY_NAMESPACE::kTileColumns;
using kernels::HWY_NAMESPACE::kTileRows;
using kernels::HWY_NAMESPACE::TileRowsOf;

// Arrays of vectors become registers only where the loops over them are unrolled.
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

static_assert(PackedMatrix::panel_rows % kTileColumns == 0);

// Columns of the strip that are fetched ahead: 12 KiB by AVX-512, 6 by AVX2. A tile of 12 rows takes 12
// cycles a column, and memory some hundred nanoseconds: 16 columns came too late. With 96 in their place 12
// rows by 512 x 2048 numbers took 0.75 of the time on a Zen 5, 115 rows 0.97. Fetching the next panel between
// tiles made 115 rows slower.
constexpr int64_t kAhead = 96;

// Number k of the kTileColumns columns of a matrix from `column` on, the first of a strip.
const float* NumbersAt(const PackedMatrix& matrix, int64_t column, int64_t k) {
  return matrix.data() + (column / kTileColumns * matrix.in() + k) * kTileColumns;
}

// `columns` is at most GroupsOf(kRows) groups.
template <int kRows>
HWY_NOINLINE void Tile(const PackedProducts& p, int64_t row, int64_t column, int64_t columns) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  constexpr int groups = GroupsOf(kRows);
  const int64_t in = p.weight->in();
  const float* weight[groups];
  FOVEA_UNROLL for (int g = 0; g < groups; ++g) {
    // A group past the last repeats it, and is not stored.
    const int64_t first =
        std::min(column + g * kTileColumns, column + (columns - 1) / kTileColumns * kTileColumns);
    weight[g] = NumbersAt(*p.weight, first, 0);
  }
  HWY_ALIGN float bias[groups * kTileColumns] = {};
  if (p.bias) std::copy_n(p.bias + column, columns, bias);
  hn::Vec<decltype(d)> sums[kRows][2 * groups];
  FOVEA_UNROLL for (int v = 0; v < 2 * groups; ++v) {
    const auto start = hn::Load(d, bias + v * lanes);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) sums[r][v] = start;
  }
  const int64_t stride = p.x_stride;
  const float* x = p.x + row * stride;
  for (int64_t k = 0; k < in; ++k) {
    hn::Vec<decltype(d)> w[2 * groups];
    FOVEA_UNROLL for (int g = 0; g < groups; ++g) {
      if constexpr (kRows > 3) {
        hwy::Prefetch(weight[g] + (k + kAhead) * kTileColumns);
        if constexpr (kTileColumns > 16) hwy::Prefetch(weight[g] + (k + kAhead) * kTileColumns + lanes);
      }
      w[2 * g] = hn::LoadU(d, weight[g] + k * kTileColumns);
      w[2 * g + 1] = hn::LoadU(d, weight[g] + k * kTileColumns + lanes);
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, x[r * stride + k]);
      FOVEA_UNROLL for (int v = 0; v < 2 * groups; ++v) sums[r][v] = hn::MulAdd(factor, w[v], sums[r][v]);
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    float* to = p.place(row + r, column);
    FOVEA_UNROLL for (int v = 0; v < 2 * groups; ++v) {
      const int64_t left = columns - v * lanes;
      if (left >= lanes) {
        hn::StoreU(sums[r][v], d, to + v * lanes);
      } else if (left > 0) {
        HWY_ALIGN float last[lanes];
        hn::Store(sums[r][v], d, last);
        std::copy_n(last, left, to + v * lanes);
      }
    }
  }
}

#undef FOVEA_UNROLL

constexpr bool kStrips = kTileColumns < PackedMatrix::panel_rows;
// Tiles of fewer rows fetch ahead themselves. By strips 14 rows by 768 x 3072 numbers took 1.2 times as long;
// without strips 40 rows by 128 x 9712 numbers took 1.1 times as long.
constexpr int64_t kLeastStripRows = 24;

void StripBlock(const PackedProducts& p, const ProductBlockAt& at) {
  const auto rows_of = [&](int64_t begin, int64_t, int64_t& stride) {
    stride = p.x_stride;
    return p.x + at.row * stride + begin;
  };
  // The matrix is packed in strips, so nothing is copied.
  const auto strip_at = [&](int64_t column, int64_t begin, int64_t) {
    return NumbersAt(*p.weight, at.column + column, begin);
  };
  const auto source_of = [&](int64_t column, int64_t begin, int64_t count) {
    return std::span(strip_at(column, begin, count), static_cast<size_t>(count * kTileColumns));
  };
  kernels::HWY_NAMESPACE::MultiplyByStrips(p.strips(at), rows_of, strip_at, source_of);
}

// How many of the `in` numbers of a row the second-level cache holds at a time, in blocks of f32 or in
// those of bf16 without its instructions. Strips read a slice, and the elements of y may take as much.
int64_t NumbersAtATime(bool f32, int64_t in) {
  return f32 && !kStrips ? in : std::min(in, 2 * kernels::HWY_NAMESPACE::kStripSlice);
}

template <int kRows>
void Across(const PackedProducts& p, int64_t row, int64_t column, int64_t last) {
  constexpr int64_t step = GroupsOf(kRows) * kTileColumns;
  for (int64_t n = column; n < last; n += step) Tile<kRows>(p, row, n, std::min(step, last - n));
}

// Rows [row, end) by the columns [column, last). There is a tile for each number of rows, so five hypotheses
// of a beam read the panel once, as twelve rows do.
void F32Block(const PackedProducts& p, const ProductBlockAt& at) {
  if constexpr (kStrips) {
    if (at.end - at.row >= kLeastStripRows) return StripBlock(p, at);
  }
  const auto [row, end, column, last] = at;
  using Rows = void (*)(const PackedProducts&, int64_t, int64_t, int64_t);
  static constexpr std::array<Rows, 12> by_rows = {Across<1>,
                                                   Across<2>,
                                                   Across<3>,
                                                   Across<4>,
                                                   Across<5>,
                                                   Across<6>,
                                                   Across<std::min(7, kTileRows)>,
                                                   Across<std::min(8, kTileRows)>,
                                                   Across<std::min(9, kTileRows)>,
                                                   Across<std::min(10, kTileRows)>,
                                                   Across<std::min(11, kTileRows)>,
                                                   Across<kTileRows>};
  // A group of columns stays in the first-level cache for all tiles of rows: 16 KiB of 128 columns of
  // weights.
  const int64_t step = (end - row > 3 ? 1 : 4) * kTileColumns;
  for (int64_t n = column; n < last; n += step) {
    for (int64_t r = row; r < end;) {
      const int64_t rows = TileRowsOf(end - r);
      by_rows[static_cast<std::size_t>(rows - 1)](p, r, n, std::min(n + step, last));
      r += rows;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::autograd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::autograd {

namespace {
double bytes_of(WeightType type) {
  return type == WeightType::int8 ? 1.0 : type == WeightType::bf16 ? 2.0 : 4.0;
}
const ProfileLabel& label_of(WeightType type) {
  static constexpr ProfileLabel of_f32{"product with packed weights", ProfilePart::products},
      of_bf16{"product with bf16 weights", ProfilePart::products, ProfileOperands::bf16},
      of_int8{"product with int8 weights", ProfilePart::products, ProfileOperands::int8};
  if (type == WeightType::int8) return of_int8;
  return type == WeightType::bf16 && best_bf16_path() != Bf16Path::any ? of_bf16 : of_f32;
}

// The rows of a block: whole tiles, and as many numbers as stay in the second-level cache while the panels
// pass by, each read once for all of them. Where whole rows are read, they fill half of that cache as f32,
// and other types have the same rows. With 128 KiB in place of 512, 160 rows of 512 numbers took 1.08 of the
// time on a Zen 5. AMX takes pairs of bf16 in 512 KiB, of the 2 MiB that processors with AMX have. Strips
// read a slice of each row at a time, so more rows fit. With the limit of whole rows, 48 of 3,072 numbers,
// all strips were read so often that 1,024 rows took 1.3 times as long on a Zen 3.
struct BlockRows {
  std::int64_t tile, least, most;
};
BlockRows block_rows_of(WeightType type, std::int64_t in) {
  if (type == WeightType::bf16 && best_bf16_path() == Bf16Path::tiles) return {32, 64, (1 << 18) / in};
  const bool f32 = type == WeightType::f32,
             may_have_strips = f32 || (type == WeightType::bf16 && best_bf16_path() == Bf16Path::any);
  const std::int64_t numbers = may_have_strips ? FOVEA_BEST(NumbersAtATime)(f32, in) : in;
  return {12, 48, second_level_cache_bytes() / 2 / static_cast<std::int64_t>(sizeof(float)) / numbers};
}

// A cut of rows and of the columns of one product or several. Blocks of rows differ by one tile at most: a
// last block of the rows that are left over would read all panels for them. Of 1,024 rows of 2,048 numbers
// it had 4.
class Cut {
 public:
  Cut(std::span<const PackedProducts> cut, std::int64_t most_rows, std::int64_t wanted)
      : cut_(cut), rows_(cut.front().rows) {
    const auto [tile, least, most_in_cache] =
        block_rows_of(cut.front().weight->type(), std::max<std::int64_t>(cut.front().weight->in(), 1));
    const std::int64_t most =
        std::max(tile, std::min(most_rows, std::max(least, most_in_cache / tile * tile)));
    tile_ = tile;
    tiles_ = pieces(rows_, tile);
    down_ = pieces(tiles_, most / tile);
    // No bit depends on the cut, so it may depend on the number of threads.
    while (wanted > 3 && blocks() < wanted && (block_columns_ > PackedMatrix::panel_rows || down_ < tiles_)) {
      if (block_columns_ > PackedMatrix::panel_rows)
        block_columns_ -= PackedMatrix::panel_rows;
      else
        ++down_;
    }
    share_evenly(wanted / 3);
  }
  std::int64_t blocks() const { return down_ * across(); }
  // The parts of a thread's last block: fewer tiles than two would not pay for reading its panels again.
  std::int64_t parts() const { return tiles_ >= 4 * down_ ? 2 : 1; }

  void run(std::int64_t block, const Part& part,
           const std::function<void(std::size_t, const ProductBlockAt&)>& each) const {
    const std::int64_t down = block / across();
    std::int64_t number = block % across();
    std::size_t n = 0;
    for (; number >= across(n); ++n) number -= across(n);
    const std::int64_t column = number * block_columns_, row = row_of(down), end = row_of(down + 1),
                       rows = pieces(pieces(end - row, part.count), tile_) * tile_,
                       first = std::min(end, row + part.number * rows);
    if (first == end) return;
    each(n, {.row = first,
             .end = std::min(end, first + rows),
             .column = column,
             .last = std::min(cut_[n].weight->out(), column + block_columns_)});
  }

 private:
  // As many blocks for each thread, where one more would be felt: of 39 blocks the second product of MiniLM's
  // feed-forward part gave one thread 20. Each cut of rows reads all panels again, so an eighth more cuts are
  // the most.
  void share_evenly(std::int64_t threads) {
    constexpr std::int64_t many = 32;
    if (blocks() > many * threads) return;
    for (std::int64_t down = down_; down <= std::min(tiles_, down_ + down_ / 8); ++down) {
      if (down * across() % threads != 0) continue;
      down_ = down;
      return;
    }
  }
  static std::int64_t pieces(std::int64_t of, std::int64_t size) { return (of + size - 1) / size; }
  std::int64_t row_of(std::int64_t down) const { return std::min(rows_, down * tiles_ / down_ * tile_); }
  std::int64_t across(std::size_t n) const { return pieces(cut_[n].weight->out(), block_columns_); }
  std::int64_t across() const {
    std::int64_t count = 0;
    for (std::size_t n = 0; n < cut_.size(); ++n) count += across(n);
    return count;
  }

  std::span<const PackedProducts> cut_;
  std::int64_t rows_, tile_ = 1, tiles_ = 0, down_ = 0, block_columns_ = 4 * PackedMatrix::panel_rows;
};

// `cut` are the products whose columns are cut, of those that are computed.
void run_blocks(std::span<const PackedProducts> products, std::span<const PackedProducts> cut,
                Executor& executor, std::int64_t most_rows,
                const std::function<void(std::size_t, const ProductBlockAt&)>& each) {
  // Below this, waking a thread costs more than its share: 2^17 products of f32 take some 4 µs. Threads that
  // are awake begin within a microsecond, and half as much is worth sharing.
  const double least_parallel = default_threads_are_awake() ? 1 << 16 : 1 << 17;
  const WeightType type = products.front().weight->type();
  const double speed = type == WeightType::f32 ? 1.0 : type == WeightType::bf16 ? 2.0 : 4.0;
  ProfileWork work;
  for (const PackedProducts& p : products) {
    const ProfileWork one = product_work(p.rows, p.weight->out(), p.weight->in(), bytes_of(type));
    work.multiply_adds += one.multiply_adds;
    work.bytes += one.bytes;
  }
  Executor& chosen = work.multiply_adds < least_parallel * speed ? serial_executor() : executor;
  const Cut blocks(cut, most_rows, 3 * static_cast<std::int64_t>(chosen.thread_count()));
  const ProfileSpan span(label_of(type), work);
  for_blocks_in_stretches(blocks.blocks(), blocks.parts(), chosen,
                          [&](std::int64_t block, const Part& part) { blocks.run(block, part, each); });
}

constexpr std::int64_t any_rows = std::int64_t{1} << 40;

}  // namespace

void for_blocks(std::span<const PackedProducts> products, Executor& executor,
                const std::function<void(std::size_t, const ProductBlockAt&)>& each) {
  run_blocks(products, products, executor, any_rows, each);
}

void for_blocks_of_all(std::span<const PackedProducts> products, Executor& executor,
                       const std::function<void(const ProductBlockAt&)>& each, std::int64_t most_rows) {
  run_blocks(products, products.first(1), executor, most_rows,
             [&](std::size_t, const ProductBlockAt& at) { each(at); });
}

ProductRows::ProductRows(const PackedProducts& p, Executor& executor)
    : x_(p.x), x_stride_(p.x_stride > 0 ? p.x_stride : p.weight->in()) {
  PackedProducts given = p;
  given.x_stride = x_stride_;
  if (p.weight->type() == WeightType::int8) quantized_.emplace(int8_rows(given, executor, best_int8_path()));
  if (p.weight->type() == WeightType::bf16) {
    pairs_ = bf16_rows(given, executor);
    rounded_ = {pairs_.get(), bf16_row_stride(p.weight->pairs())};
  }
}

ProductRows::ProductRows(const bfloat16* x, std::int64_t rows, std::int64_t in, Executor& executor) {
  if (bf16_rows_lie_well(in)) {
    rounded_ = {reinterpret_cast<const std::uint32_t*>(x), in / 2};
    return;
  }
  const std::int64_t stride = bf16_row_stride((in + 1) / 2);
  *this = ProductRows(rows, stride);
  // A unit is some 64 KiB, 5 µs of copying.
  const std::int64_t rows_a_unit = std::max<std::int64_t>(1, (1 << 15) / std::max<std::int64_t>(in, 1));
  executor.parallel_for((rows + rows_a_unit - 1) / rows_a_unit, [&](std::int64_t unit, int) {
    for (std::int64_t r = unit * rows_a_unit; r < std::min(rows, (unit + 1) * rows_a_unit); ++r) {
      auto* to = reinterpret_cast<bfloat16*>(pairs_.get() + r * stride);
      std::copy_n(x + r * in, in, to);
      if (in % 2 != 0) to[in] = bfloat16(0.0f);
    }
  });
}

ProductRows::ProductRows(std::int64_t rows, std::int64_t stride)
    : pairs_(bf16_pairs(rows, stride)), rounded_{pairs_.get(), stride} {}

void ProductRows::multiply(const PackedProducts& p, const ProductBlockAt& at) const {
  if (p.weight->type() == WeightType::int8) return int8_block(p, *quantized_, at, best_int8_path());
  if (p.weight->type() == WeightType::bf16) return bf16_block(p, rounded_, at, best_bf16_path());
  PackedProducts with_rows = p;
  with_rows.x = x_;
  with_rows.x_stride = x_stride_;
  FOVEA_BEST(F32Block)(with_rows, at);
}

void ProductRows::multiply_in_pieces(const PackedProducts& p, const ProductBlockAt& at,
                                     const ProductPiece& each) const {
  if (p.weight->type() == WeightType::bf16 && best_bf16_path() == Bf16Path::dots)
    return bf16_packed_dot_pieces(p, rounded_, at, each);
  thread_local std::vector<float> memory;
  const auto count = static_cast<std::size_t>((at.end - at.row) * (at.last - at.column));
  if (memory.size() < count) memory.resize(count);
  multiply_into(p, at, memory.data());
  each(memory.data(), at);
}

void ProductRows::multiply_into(PackedProducts p, const ProductBlockAt& at, float* to) const {
  p.y = to;
  p.y_stride = at.last - at.column;
  p.first_row = at.row;
  p.first_column = at.column;
  multiply(p, at);
}

void packed_products(const PackedProducts& p, Executor& executor) {
  packed_products(p, ProductRows(p, executor), executor);
}

void packed_products(const PackedProducts& p, const ProductRows& rows, Executor& executor) {
  for_blocks({&p, 1}, executor, [&](std::size_t, const ProductBlockAt& at) { rows.multiply(p, at); });
}

}  // namespace fovea::autograd
#endif

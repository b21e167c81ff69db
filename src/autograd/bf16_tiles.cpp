// Products of bf16 by the tiles of AMX (kernels/tiles/product.h).
#include <algorithm>

#include "autograd/bf16_products.h"
#include "autograd/bf16_rounding.h"
#include "kernels/tiles/product.h"

namespace fovea::autograd {

#if defined(__x86_64__)

namespace {

using Pair = Bf16Pair;

constexpr std::int64_t tile_side = 16;  // rows of a, pairs of k, and columns

// Rows by one panel of b.
struct PanelProduct {
  const Pair* a = nullptr;  // the memory of whole tiles of rows is readable
  std::int64_t stride = 0, rows = 0;
  const Pair* panel = nullptr;  // [pairs, bf16_panel]
  std::int64_t pairs = 0;
  const float* bias = nullptr;
  bool add = false;
  float* c = nullptr;
  std::int64_t leading = 0, columns = 0;
};

// The pairs behind the last whole tile, as a tile with zeros: whatever lies there may be a NaN.
struct Tail {
  static constexpr std::int64_t most_rows = 64;
  alignas(64) Pair a[most_rows * tile_side], b[tile_side * bf16_panel];

  void take_panel(const PanelProduct& p, std::int64_t first) {
    std::fill(std::copy(p.panel + first * bf16_panel, p.panel + p.pairs * bf16_panel, b), std::end(b),
              Pair{0});
  }
  void take_rows(const PanelProduct& p, std::int64_t row, std::int64_t count, std::int64_t first) {
    for (std::int64_t r = 0; r < count; ++r) {
      const Pair* from = p.a + (row + r) * p.stride;
      Pair* to = a + r * tile_side;
      std::fill(std::copy(from + first, from + p.pairs, to), to + tile_side, Pair{0});
    }
  }
};

void multiply_panel(const kernels::TileEngine& engine, const PanelProduct& p, Tail& tail) {
  alignas(64) float block[Tail::most_rows * bf16_panel];
  const std::int64_t whole_pairs = p.pairs / tile_side * tile_side;
  if (whole_pairs < p.pairs) tail.take_panel(p, whole_pairs);
  for (std::int64_t row = 0; row < p.rows; row += Tail::most_rows) {
    const std::int64_t rows = std::min(Tail::most_rows, p.rows - row),
                       whole_rows = (rows + tile_side - 1) / tile_side * tile_side;
    // Tiles store whole: an edge goes by way of `block`.
    const bool in_place = rows == whole_rows && p.columns == bf16_panel;
    float* const c = p.c + row * p.leading;
    float* const to = in_place ? c : block;
    const std::int64_t leading = in_place ? p.leading : bf16_panel;
    for (std::int64_t r = 0; r < rows; ++r) {
      if (p.bias)
        std::copy_n(p.bias, p.columns, to + r * leading);
      else if (p.add && !in_place)
        std::copy_n(c + r * p.leading, p.columns, to + r * leading);
      else if (!p.add && p.pairs == 0)
        std::fill_n(to + r * leading, p.columns, 0.0f);
    }
    bool add = p.bias || p.add;
    const auto multiply = [&](const Pair* a, std::int64_t stride, const Pair* b, std::int64_t pairs) {
      const kernels::PairFactors factors{reinterpret_cast<const std::uint16_t*>(a), b};
      engine.product(whole_rows, bf16_panel,
                     {&factors, 1, 2 * stride, bf16_panel, 2 * pairs, to, leading, add});
      add = true;
    };
    if (whole_pairs > 0) multiply(p.a + row * p.stride, p.stride, p.panel, whole_pairs);
    if (whole_pairs < p.pairs) {
      tail.take_rows(p, row, rows, whole_pairs);
      multiply(tail.a, tile_side, tail.b, tile_side);
    }
    for (std::int64_t r = 0; r < rows && !in_place; ++r)
      std::copy_n(to + r * leading, p.columns, c + r * p.leading);
  }
}

// The panels of b, `next_panel` pairs apart; `p` is the product by the first.
void multiply_panels(PanelProduct p, std::int64_t next_panel, std::int64_t columns) {
  const kernels::TileEngine& engine = *kernels::amx_engine();
  const kernels::EngineUse use(engine);
  Tail tail;
  for (std::int64_t n = 0; n < columns; n += bf16_panel) {
    p.columns = std::min(bf16_panel, columns - n);
    multiply_panel(engine, p, tail);
    p.panel += next_panel;
    p.bias = p.bias ? p.bias + bf16_panel : nullptr;
    p.c += bf16_panel;
  }
}

}  // namespace

void bf16_block_tiles(const ProductBlock& p) {
  // Rows an odd number of lines apart: a whole number of KiB would take few sets of the first-level cache.
  constexpr std::int64_t stride = bf16_slice_pairs + tile_side;
  const auto round = p.a.transpose == Transpose::no ? bf16_round_rows_dot : bf16_round_rows_across;
  for_rounded_slices(
      p, (p.m + tile_side - 1) * stride,
      [&](const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k, Pair* to) {
        round(x, leading, rows, k, to, stride);
      },
      [&](const Pair* a, const Pair* b, std::int64_t pairs, const float* bias, bool add) {
        multiply_panels({.a = a,
                         .stride = stride,
                         .rows = p.m,
                         .panel = b,
                         .pairs = pairs,
                         .bias = bias,
                         .add = add,
                         .c = p.c,
                         .leading = p.leading},
                        bf16_slice_pairs * bf16_panel, p.n);
      });
}

void bf16_packed_tiles(const PackedProducts& p, const Bf16Rows& x, std::int64_t row, std::int64_t end,
                       std::int64_t column, std::int64_t last) {
  const std::int64_t pairs = p.weight->pairs();
  multiply_panels({.a = x.pairs + row * x.stride,
                   .stride = x.stride,
                   .rows = end - row,
                   .panel = reinterpret_cast<const Pair*>(p.weight->rounded()) + column * pairs,
                   .pairs = pairs,
                   .bias = p.bias ? p.bias + column : nullptr,
                   .c = p.place(row, column),
                   .leading = p.leading()},
                  pairs * bf16_panel, last - column);
}

#else

void bf16_block_tiles(const ProductBlock&) {}
void bf16_packed_tiles(const PackedProducts&, const Bf16Rows&, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t) {}

#endif

}  // namespace fovea::autograd

// Products cut into blocks: right for every transpose and remainder, and the same bits for any executor.
#include "autograd/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "autograd/bf16_products.h"
#include "autograd/drawn.h"
#include "core/cpu.h"
#include "fovea/core/dtype.h"
#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"

namespace fovea::autograd {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};
// One block, few blocks with remainders, many, blocks that are halved, sums without terms, one row, one
// column, and few rows.
constexpr Sizes all_sizes[] = {{1, 1, 1},       {5, 7, 3},     {257, 300, 40}, {64, 1030, 33}, {1000, 65, 9},
                               {130, 128, 600}, {96, 97, 700}, {2, 70, 515},   {27, 33, 257},  {1, 3, 0},
                               {5, 1, 0},       {3, 4, 0},     {20, 33, 0},    {1, 259, 130},  {70, 1, 33},
                               {11, 40, 101},   {1, 33, 700},  {300, 1, 5}};

// How much further apart rows are than they are long, as those of a column slice.
constexpr std::int64_t gap = 3;

Matrix operand(const Tensor& x, std::int64_t rows, std::int64_t columns, Transpose transpose) {
  return {x.data<float>(), (transpose == Transpose::no ? columns : rows) + gap, transpose};
}
Tensor room_for(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  return Tensor::normal({std::max((rows + gap) * columns, rows * (columns + gap))}, seed);
}
float at(const Matrix& x, std::int64_t row, std::int64_t column) {
  return x.transpose == Transpose::no ? x.data[row * x.leading + column] : x.data[column * x.leading + row];
}

ProductBlock with_bias(const Sizes& s, const Matrix& a, const Matrix& b, const Tensor& bias, const Tensor& c,
                       std::int64_t leading) {
  return {.m = s.m,
          .n = s.n,
          .k = s.k,
          .a = a,
          .b = b,
          .bias = bias.data<float>(),
          .c = c.data<float>(),
          .leading = leading};
}

#if defined(__aarch64__)
constexpr bool on_arm = true;
#else
constexpr bool on_arm = false;
#endif

// Where each slice of k ends, as gemm.h says.
std::vector<std::int64_t> ends_of_slices(std::int64_t k) {
  std::vector<std::int64_t> ends;
  for (std::int64_t begin = 0; begin < k;) {
    const std::int64_t left = k - begin;
    begin += left >= 768 ? 384 : left > 384 ? (left + 1) / 2 : left;
    ends.push_back(begin);
  }
  return ends;
}

TEST(Gemm, OfTilesAddsTheSumsOfSlices) {
  if (!cpu_has_avx2() && !on_arm) GTEST_SKIP() << "without fused multiply-adds the bits are others";
  constexpr Sizes cases[] = {{37, 70, 384}, {23, 33, 385}, {12, 32, 767}, {25, 31, 768},
                             {1, 1, 1000},  {3, 129, 1},   {199, 40, 390}};
  for (const Sizes& s : cases) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const Tensor x = room_for(s.m, s.k, 1), y = room_for(s.k, s.n, 2), bias = Tensor::normal({s.n}, 3),
                     c = Tensor::zeros(DType::f32, {s.m, s.n});
        const Matrix a = operand(x, s.m, s.k, ta), b = operand(y, s.k, s.n, tb);
        f32_block_tiled(with_bias(s, a, b, bias, c, s.n));
        for (std::int64_t i = 0; i < s.m * s.n; ++i) {
          float expected = bias.data<float>()[i % s.n];
          std::int64_t k = 0;
          for (const std::int64_t end : ends_of_slices(s.k)) {
            float sum = 0.0f;
            for (; k < end; ++k) sum = std::fma(at(a, i / s.n, k), at(b, k, i % s.n), sum);
            expected += sum;
          }
          ASSERT_EQ(c.data<float>()[i], expected) << s.m << " x " << s.n << " x " << s.k << " at " << i;
        }
      }
    }
  }
}

// One row times a matrix goes down its columns, and one column times a transposed matrix likewise.
TEST(Gemm, DownColumnsHasTheBitsOfTiles) {
  if (!cpu_has_avx2() && !on_arm) GTEST_SKIP() << "without fused multiply-adds the bits are others";
  for (const Sizes& s :
       {Sizes{1, 70, 33}, {1, 259, 1000}, {1, 3, 1}, {1, 40, 0}, {70, 1, 33}, {259, 1, 1000}}) {
    const Transpose transpose = s.m == 1 ? Transpose::no : Transpose::yes;
    for (const Transpose other : {Transpose::no, Transpose::yes}) {
      const Transpose ta = s.m == 1 ? other : transpose, tb = s.m == 1 ? transpose : other;
      const Tensor x = room_for(s.m, s.k, 1), y = room_for(s.k, s.n, 2), bias = Tensor::normal({s.n}, 3),
                   c = Tensor::zeros(DType::f32, {s.m, s.n}), by_tiles = c.clone();
      const Matrix a = operand(x, s.m, s.k, ta), b = operand(y, s.k, s.n, tb);
      f32_block(with_bias(s, a, b, bias, c, s.n));
      f32_block_tiled(with_bias(s, a, b, bias, by_tiles, s.n));
      EXPECT_EQ(std::memcmp(c.raw(), by_tiles.raw(), c.bytes()), 0) << s.m << " x " << s.n << " x " << s.k;
    }
  }
}

// Rows a whole number of pages apart are copied.
TEST(Gemm, OfTilesReadsRowsWholePagesApart) {
  const std::int64_t m = 29, n = 40, k = 500, leading = 1024;
  const Tensor x = Tensor::normal({m * leading}, 1), y = Tensor::normal({k, n}, 2),
               c = Tensor::zeros(DType::f32, {m, n}), together = Tensor::zeros(DType::f32, {m, k}),
               expected = Tensor::zeros(DType::f32, {m, n});
  for (std::int64_t r = 0; r < m; ++r)
    std::copy_n(x.data<float>() + r * leading, k, together.data<float>() + r * k);
  const Matrix b{y.data<float>(), n};
  f32_block_tiled(
      {.m = m, .n = n, .k = k, .a = {x.data<float>(), leading}, .b = b, .c = c.data<float>(), .leading = n});
  f32_block_tiled({.m = m,
                   .n = n,
                   .k = k,
                   .a = {together.data<float>(), k},
                   .b = b,
                   .c = expected.data<float>(),
                   .leading = n});
  EXPECT_EQ(std::memcmp(c.raw(), expected.raw(), c.bytes()), 0);
}

TEST(Gemm, IsTheProductForEveryTransposeAndBias) {
  for (const Sizes& s : all_sizes) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const std::int64_t leading = s.n + gap;
        const Tensor x = room_for(s.m, s.k, 1), y = room_for(s.k, s.n, 2), bias = Tensor::normal({s.n}, 3),
                     before = Tensor::normal({s.m * leading}, 4);
        const Matrix a = operand(x, s.m, s.k, ta), b = operand(y, s.k, s.n, tb);
        const Tensor added = before.clone(), plain = before.clone(), biased = before.clone();
        gemm(s.m, s.n, s.k, a, b, 1.0f, added.data<float>(), leading);
        gemm(s.m, s.n, s.k, a, b, RowBias{}, plain.data<float>(), leading);
        gemm(s.m, s.n, s.k, a, b, RowBias{bias.data<float>()}, biased.data<float>(), leading);
        for (const Tensor& c : {added, plain, biased}) {
          for (std::int64_t i = 0; i < s.m * gap; ++i) {
            const std::int64_t at = i / gap * leading + s.n + i % gap;
            ASSERT_EQ(c.data<float>()[at], before.data<float>()[at]) << "behind row " << i / gap;
          }
        }
        // Every element of small results, and a sample of large ones.
        const std::int64_t step = s.m * s.n > 4096 ? 397 : 1;
        for (std::int64_t i = 0; i < s.m * s.n; i += step) {
          double sum = 0.0, size = 0.0;
          for (std::int64_t j = 0; j < s.k; ++j) {
            const double term = static_cast<double>(at(a, i / s.n, j)) * at(b, j, i % s.n);
            sum += term;
            size += std::abs(term);
          }
          // A sum of k + 1 terms in f32, in any order.
          const double bound = static_cast<double>(s.k + 1) * 0x1p-24 * (size + 4.0) + 1e-30;
          const std::int64_t at_c = i / s.n * leading + i % s.n;
          EXPECT_NEAR(plain.data<float>()[at_c], sum, bound);
          EXPECT_NEAR(biased.data<float>()[at_c], sum + bias.data<float>()[i % s.n], bound);
          EXPECT_NEAR(added.data<float>()[at_c], sum + before.data<float>()[at_c], bound);
        }
      }
    }
  }
}

// An operand with NaN between its rows and behind the last: whatever reads on, or pairs a last row with the
// next, shows.
Tensor poisoned(std::int64_t rows, std::int64_t columns, Transpose transpose, std::uint64_t seed) {
  constexpr std::int64_t behind = 1200;
  if (transpose == Transpose::yes) std::swap(rows, columns);
  const Tensor x = Tensor::normal({rows * (columns + gap) + behind}, seed);
  for (std::int64_t r = 0; r < rows; ++r)
    std::fill_n(x.data<float>() + r * (columns + gap) + columns, gap,
                std::numeric_limits<float>::quiet_NaN());
  std::fill_n(x.data<float>() + rows * (columns + gap), behind, std::numeric_limits<float>::quiet_NaN());
  return x;
}

// Exactly the products of rounded numbers, summed in f32, by dot products of bf16 and by any CPU's f32: no
// other rounding hides in the bound of the sums, which is a fiftieth of that of the operands.
TEST(Gemm, OfBf16IsTheProductOfRoundedOperands) {
  for (const Sizes& s : all_sizes) {
    SCOPED_TRACE(std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k));
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const std::int64_t leading = s.n + gap;
        const Tensor x = poisoned(s.m, s.k, ta, 1), y = poisoned(s.k, s.n, tb, 2),
                     bias = Tensor::normal({s.n}, 3), before = Tensor::normal({s.m * leading}, 4);
        const Matrix a = operand(x, s.m, s.k, ta), b = operand(y, s.k, s.n, tb);
        const Tensor added = before.clone(), biased = before.clone(), any = before.clone();
        gemm(s.m, s.n, s.k, a, b, 1.0f, added.data<float>(), leading, Operands::bf16);
        gemm(s.m, s.n, s.k, a, b, RowBias{bias.data<float>()}, biased.data<float>(), leading, Operands::bf16);
        bf16_block_any(with_bias(s, a, b, bias, any, leading));
        for (const Tensor& c : {added, biased, any}) {
          for (std::int64_t i = 0; i < s.m * gap; ++i) {
            const std::int64_t at = i / gap * leading + s.n + i % gap;
            ASSERT_EQ(c.data<float>()[at], before.data<float>()[at]) << "behind row " << i / gap;
          }
        }
        const std::int64_t step = s.m * s.n > 4096 ? 397 : 1;
        for (std::int64_t i = 0; i < s.m * s.n; i += step) {
          double sum = 0.0, size = 0.0, unrounded = 0.0;
          for (std::int64_t j = 0; j < s.k; ++j) {
            const float p = at(a, i / s.n, j), q = at(b, j, i % s.n);
            sum += rounded_to_bf16(p) * rounded_to_bf16(q);
            size += std::abs(rounded_to_bf16(p) * rounded_to_bf16(q));
            unrounded += static_cast<double>(p) * q;
          }
          const double bound = static_cast<double>(s.k + 1) * 0x1p-24 * (size + 4.0) + 1e-30;
          const std::int64_t at_c = i / s.n * leading + i % s.n;
          ASSERT_NEAR(added.data<float>()[at_c], sum + before.data<float>()[at_c], bound) << i;
          ASSERT_NEAR(biased.data<float>()[at_c], sum + bias.data<float>()[i % s.n], bound) << i;
          ASSERT_NEAR(any.data<float>()[at_c], sum + bias.data<float>()[i % s.n], bound) << i;
          // What autograd::Operands::bf16 promises, of the numbers as they were given.
          ASSERT_NEAR(biased.data<float>()[at_c], unrounded + bias.data<float>()[i % s.n],
                      0x1p-7 * 1.01 * size + bound);
        }
      }
    }
  }
}

// A NaN and an infinity pass through the rounding, and numbers that are halfway go to the even one.
TEST(Gemm, RoundsToNearestEvenAndKeepsNanAndInfinity) {
  const float above = std::bit_cast<float>(0x3f808000u), odd = std::bit_cast<float>(0x3f818000u);
  const float one[] = {1.0f};
  for (const Bf16Path path : {Bf16Path::any, Bf16Path::dots, Bf16Path::tiles}) {
    if (!runs_here(path)) continue;
    const auto block = bf16_block_by(path);
    for (const float x : {above, odd, -above, 1e38f, std::numeric_limits<float>::max(),
                          -std::numeric_limits<float>::infinity()}) {
      float y = 0.0f;
      block({.m = 1, .n = 1, .k = 1, .a = {&x, 1}, .b = {one, 1}, .c = &y, .leading = 1});
      EXPECT_EQ(y, static_cast<float>(bfloat16(x)));
    }
    // The CPU's instructions may take a subnormal number for 0.
    float y = 0.0f;
    const float tiny = 0x1p-130f;
    block({.m = 1, .n = 1, .k = 1, .a = {&tiny, 1}, .b = {one, 1}, .c = &y, .leading = 1});
    EXPECT_TRUE(y == tiny || y == 0.0f) << y;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    block({.m = 1, .n = 1, .k = 1, .a = {&nan, 1}, .b = {one, 1}, .c = &y, .leading = 1});
    EXPECT_TRUE(std::isnan(y));
  }
}

TEST(Gemm, HasTheSameBitsForAnyNumberOfThreads) {
  std::vector<Sizes> sizes(std::begin(all_sizes), std::end(all_sizes));
  // Other blocks for five threads than for one. For these the last row of 145, and of 193, is a block of its
  // own. The last three have few rows, one row and one column.
  for (const Sizes& s : {Sizes{130, 128, 1500},
                         {145, 64, 1800},
                         {33, 257, 3100},
                         {513, 300, 90},
                         {11, 512, 1700},
                         {1, 512, 17000},
                         {193, 1, 80000}}) {
    const GemmBlock one = gemm_block(s.m, s.n, s.k, 1), five = gemm_block(s.m, s.n, s.k, 5);
    ASSERT_GT(one.rows * one.columns, five.rows * five.columns);
    sizes.push_back(s);
  }
  for (const Sizes& s : sizes) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const Tensor x = room_for(s.m, s.k, 1), y = room_for(s.k, s.n, 2),
                     before = Tensor::normal({s.m, s.n}, 3);
        const auto run = [&](Operands operands, Executor& executor) {
          const Tensor c = before.clone();
          gemm(s.m, s.n, s.k, operand(x, s.m, s.k, ta), operand(y, s.k, s.n, tb), 1.0f, c.data<float>(), s.n,
               operands, &executor);
          return c;
        };
        for (const Operands operands : {Operands::f32, Operands::bf16}) {
          const Tensor alone = run(operands, serial_executor());
          for (const int threads : {2, 5}) {
            const auto pool = make_thread_pool(threads);
            const Tensor c = run(operands, *pool);
            EXPECT_EQ(std::memcmp(alone.raw(), c.raw(), static_cast<std::size_t>(4 * c.count())), 0)
                << s.m << " x " << s.n << " x " << s.k << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

// Two products in one loop of the threads, one of them by shared panels, have the bits of two calls.
TEST(Gemm, HasTheSameBitsBySharedPanelsAndBesideAnotherProduct) {
  // Panels of one slice and of several, blocks whose columns are no multiple of a panel, one row, and sums
  // without terms.
  for (const Sizes& s :
       {Sizes{70, 1100, 128}, {300, 128, 2000}, {33, 257, 3100}, {145, 40, 385}, {1, 70, 30}, {20, 33, 0}}) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const Tensor x = room_for(s.m, s.k, 1), y = room_for(s.k, s.n, 2), bias = Tensor::normal({s.n}, 3),
                     before = Tensor::normal({s.n, s.k}, 4), u = Tensor::normal({s.m, s.n}, 5),
                     v = Tensor::normal({s.m, s.k}, 6), nothing = y.clone();
        std::fill_n(nothing.data<float>(), nothing.count(), std::numeric_limits<float>::quiet_NaN());
        const Matrix a = operand(x, s.m, s.k, ta), b = operand(y, s.k, s.n, tb);
        const auto both = [&](const Tensor& c, const Tensor& d) {
          return std::array{with_bias(s, a, b, bias, c, s.n),
                            ProductBlock{.m = s.n,
                                         .n = s.k,
                                         .k = s.m,
                                         .a = {u.data<float>(), s.n, Transpose::yes},
                                         .b = {v.data<float>(), s.k},
                                         .add = true,
                                         .c = d.data<float>(),
                                         .leading = s.k}};
        };
        for (const Operands operands : {Operands::f32, Operands::bf16}) {
          const Tensor c = Tensor::zeros(DType::f32, {s.m, s.n}), d = before.clone();
          for (const ProductBlock& one : both(c, d)) gemm(one, {}, operands, &serial_executor());
          for (const int threads : {1, 2, 5}) {
            const auto pool = make_thread_pool(threads);
            set_default_executor(pool.get());
            const SharedPanels panels(s.n, s.k, b);
            set_default_executor(nullptr);
            const Tensor c_together = Tensor::zeros(DType::f32, {s.m, s.n}), d_together = before.clone();
            auto products = both(c_together, d_together);
            products[0].panels = panels.panels();
            // Where the panels are read, nothing else of b is.
            if (operands == Operands::f32 && s.m > 1) products[0].b.data = nothing.data<float>();
            gemm(products[0], products[1], operands, pool.get());
            EXPECT_EQ(std::memcmp(c.raw(), c_together.raw(), c.bytes()), 0)
                << s.m << " x " << s.n << " x " << s.k << ", " << threads << " threads";
            EXPECT_EQ(std::memcmp(d.raw(), d_together.raw(), d.bytes()), 0)
                << s.m << " x " << s.n << " x " << s.k << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::autograd

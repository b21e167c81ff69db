// Products with bf16 weights: their definition, their error, and a row's bits in any batch.
#include "autograd/bf16_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autograd/block_products.h"
#include "autograd/drawn.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/dtype.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

Tensor product(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, Bf16Path path) {
  return product_by_blocks(
      x, weight, bias, [&](const PackedProducts& p) { return bf16_rows(p, default_executor()); },
      [&](const PackedProducts& p, const auto& pairs, const ProductBlockAt& at) {
        bf16_block(p, {pairs.get(), bf16_row_stride(weight.pairs())}, at, path);
      });
}

// Those of a CPU with AMX run on others in an emulator (plan/amx_emulator.cpp).
std::vector<Bf16Path> paths() {
  std::vector<Bf16Path> all;
  for (const Bf16Path path : {Bf16Path::any, Bf16Path::dots, Bf16Path::tiles}) {
    if (runs_here(path)) all.push_back(path);
  }
  return all;
}

constexpr std::int64_t rows = 53;

TEST(Bf16Products, EveryPathSumsTheProductsOfRoundedNumbers) {
  for (const auto& [in, out] : product_sizes) {
    SCOPED_TRACE(std::to_string(in) + " to " + std::to_string(out));
    const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
    const PackedMatrix packed(weight, WeightType::bf16);
    for (const Bf16Path path : paths()) {
      const Tensor y = product(x, packed, bias, path);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t n = 0; n < out; ++n) {
          const double start = bias.data<float>()[n];
          double sum = start, unrounded = start, size = std::abs(start);
          for (std::int64_t k = 0; k < in; ++k) {
            const float a = x.data<float>()[r * in + k], b = weight.data<float>()[n * in + k];
            sum += rounded_to_bf16(a) * rounded_to_bf16(b);
            unrounded += static_cast<double>(a) * b;
            size += std::abs(rounded_to_bf16(a) * rounded_to_bf16(b));
          }
          const double found = y.data<float>()[r * out + n];
          // A sum of in + 1 terms in f32; and what WeightType::bf16 states.
          const double bound = static_cast<double>(in + 1) * 0x1p-24 * size;
          ASSERT_NEAR(found, sum, bound) << r << ", " << n;
          ASSERT_NEAR(found, unrounded, 0x1p-7 * 1.01 * size + bound) << r << ", " << n;
        }
      }
    }
  }
}

TEST(Bf16Products, PiecesAreThoseOfTheBlock) {
  if (!runs_here(Bf16Path::dots)) GTEST_SKIP() << "no AVX512_BF16";
  for (const auto& [in, out] : product_sizes) {
    SCOPED_TRACE(std::to_string(in) + " to " + std::to_string(out));
    const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
    const PackedMatrix packed(weight, WeightType::bf16);
    std::vector<std::uint8_t> covered(static_cast<std::size_t>(rows * out));
    const Tensor y = product_by_blocks(
        x, packed, bias, [&](const PackedProducts& p) { return bf16_rows(p, default_executor()); },
        [&](const PackedProducts& p, const auto& pairs, const ProductBlockAt& at) {
          const Bf16Rows rows_of_x{pairs.get(), bf16_row_stride(packed.pairs())};
          bf16_packed_dot_pieces(p, rows_of_x, at, [&](const float* piece, const ProductBlockAt& place) {
            const std::int64_t width = place.last - place.column;
            for (std::int64_t r = place.row; r < place.end; ++r, piece += width) {
              std::copy_n(piece, width, p.y + r * out + place.column);
              for (std::int64_t n = place.column; n < place.last; ++n)
                ++covered[static_cast<std::size_t>(r * out + n)];
            }
          });
        });
    const Tensor whole = product(x, packed, bias, Bf16Path::dots);
    EXPECT_EQ(std::memcmp(y.raw(), whole.raw(), y.bytes()), 0);
    EXPECT_EQ(covered, std::vector<std::uint8_t>(covered.size(), 1));
  }
}

TEST(Bf16Products, ARowHasTheSameBitsInAnyBatchAndForAnyNumberOfThreads) {
  for (const auto& [in, out] : product_sizes) {
    const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
    const PackedMatrix packed(weight, WeightType::bf16);
    for (const Bf16Path path : paths()) {
      const Tensor all = product(x, packed, bias, path);
      for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 12, 13, 31}) {
        for (const std::int64_t first : {std::int64_t{0}, rows - count}) {
          const Tensor some = Tensor::copy_of(x.view().slice(0, first, count));
          const Tensor y = product(some, packed, bias, path);
          ASSERT_EQ(std::memcmp(y.raw(), all.data<float>() + first * out,
                                static_cast<std::size_t>(count * out) * sizeof(float)),
                    0)
              << count << " rows from " << first << ", " << in << " to " << out;
        }
      }
    }
    const Var var(weight, std::make_shared<const PackedMatrix>(weight, WeightType::bf16));
    const Tensor linear_all = linear(x, var, bias).value();
    EXPECT_EQ(std::memcmp(linear_all.raw(), product(x, packed, bias, best_bf16_path()).raw(),
                          static_cast<std::size_t>(rows * out) * sizeof(float)),
              0);
  }
}

// Products that underflow from below give -0. The zeros behind an odd number of columns turn it into 0, in a
// block of few rows as in one of many.
TEST(Bf16Products, SumsOfMinusZeroHaveOneSign) {
  for (const std::int64_t in : {1, 2, 3, 257}) {
    Tensor x(DType::f32, {13, in}), weight(DType::f32, {5, in}), bias(DType::f32, {5});
    x.fill(1e-30f);
    weight.fill(-1e-30f);
    bias.fill(-0.0f);
    const PackedMatrix packed(weight, WeightType::bf16);
    for (const Bf16Path path : paths()) {
      const Tensor all = product(x, packed, bias, path);
      for (const std::int64_t count : {1, 5, 6}) {
        const Tensor some = product(Tensor::copy_of(x.view().slice(0, 0, count)), packed, bias, path);
        EXPECT_EQ(std::memcmp(all.raw(), some.raw(), static_cast<std::size_t>(count * 5) * sizeof(float)), 0)
            << count << " rows of " << in;
      }
    }
  }
}

// Threads have as many blocks each, unless there are so many that one more is not felt. A matrix that one cut
// of rows reads once is not read again for that: 16 blocks stay 16 for five threads.
TEST(Bf16Products, BlocksAreSharedEvenly) {
  constexpr std::int64_t in = 1536, out = 3 * 128;
  const PackedMatrix packed(drawn({out, in}, 1), WeightType::bf16);
  for (const int threads : {2, 3}) {
    const auto pool = make_thread_pool(threads);
    for (std::int64_t count = 600; count <= 1100; count += 100) {
      std::atomic<std::int64_t> blocks{0}, elements{0};
      const PackedProducts p{.weight = &packed, .rows = count};
      for_blocks({&p, 1}, *pool, [&](std::size_t, const ProductBlockAt& at) {
        ++blocks;
        elements += (at.end - at.row) * (at.last - at.column);
      });
      EXPECT_EQ(elements, count * out);
      // An eighth more cuts of rows are allowed, each of three blocks.
      const std::int64_t cuts = blocks / 3;
      bool could_be_even = false;
      for (std::int64_t more = cuts; more <= cuts + cuts / 8; ++more)
        could_be_even = could_be_even || 3 * more % threads == 0;
      EXPECT_TRUE(blocks % threads == 0 || blocks > 32 * threads || !could_be_even)
          << blocks << " blocks of " << count << " rows for " << threads << " threads";
    }
  }
  const PackedMatrix wide(drawn({2048, 64}, 1), WeightType::bf16);
  const auto pool = make_thread_pool(5);
  std::atomic<std::int64_t> blocks{0};
  const PackedProducts p{.weight = &wide, .rows = 36};
  for_blocks({&p, 1}, *pool, [&](std::size_t, const ProductBlockAt&) { ++blocks; });
  EXPECT_EQ(blocks, 16);
}

TEST(Bf16Matrix, TakesHalfAndHoldsAnyNumber) {
  Tensor weight = drawn({512, 256}, 1);
  EXPECT_EQ(PackedMatrix(weight, WeightType::bf16).bytes(), weight.count() * 2);
  weight.data<float>()[7] = std::numeric_limits<float>::infinity();
  Tensor x = drawn({2, 256}, 2);
  const Tensor bias = Tensor::zeros(DType::f32, {512});
  for (const Bf16Path path : paths()) {
    const Tensor y = product(x, PackedMatrix(weight, WeightType::bf16), bias, path);
    EXPECT_TRUE(std::isinf(y.data<float>()[0]));
    EXPECT_TRUE(std::isfinite(y.data<float>()[1]));
  }
  EXPECT_EQ(parse_weight_type("bf16"), WeightType::bf16);
  EXPECT_EQ(to_string(WeightType::bf16), "bf16");
}

}  // namespace
}  // namespace fovea::autograd

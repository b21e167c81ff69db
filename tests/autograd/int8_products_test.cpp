// Products with int8 weights: their definition, their error, and the same bits by every path.
#include "autograd/int8_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "autograd/block_products.h"
#include "autograd/drawn.h"
#include "core/cpu.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

struct Quantized {
  float scale = 0.0f;
  std::vector<int> numbers;
};
Quantized quantized(const float* row, std::int64_t count) {
  Quantized result;
  for (std::int64_t k = 0; k < count; ++k) result.scale = std::max(result.scale, std::abs(row[k]));
  result.scale /= 127.0f;
  for (std::int64_t k = 0; k < count; ++k)
    result.numbers.push_back(result.scale > 0.0f ? static_cast<int>(std::nearbyint(row[k] / result.scale))
                                                 : 0);
  return result;
}

Tensor product(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, Int8Path path) {
  return product_by_blocks(
      x, weight, bias, [&](const PackedProducts& p) { return int8_rows(p, default_executor(), path); },
      [&](const PackedProducts& p, const QuantizedRows& rows, const ProductBlockAt& at) {
        int8_block(p, rows, at, path);
      });
}

// Those that this CPU has.
std::vector<Int8Path> paths() {
  std::vector<Int8Path> result{Int8Path::any};
  if (cpu_has_avx2()) result.push_back(Int8Path::avx2);
  if (cpu_has_avx512_vnni()) result.push_back(Int8Path::vnni);
  return result;
}

TEST(Int8Products, EveryPathHasTheBitsOfTheDefinition) {
  constexpr std::int64_t rows = 53;
  for (const auto& [in, out] : product_sizes) {
    SCOPED_TRACE(std::to_string(in) + " to " + std::to_string(out));
    const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
    const PackedMatrix packed(weight, WeightType::int8);
    const Tensor any = product(x, packed, bias, Int8Path::any);
    for (const Int8Path path : paths())
      EXPECT_EQ(std::memcmp(any.raw(), product(x, packed, bias, path).raw(),
                            static_cast<std::size_t>(any.count()) * sizeof(float)),
                0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Quantized row = quantized(x.data<float>() + r * in, in);
      for (std::int64_t n = 0; n < out; ++n) {
        const Quantized column = quantized(weight.data<float>() + n * in, in);
        double exact = bias.data<float>()[n], bound = 0.0, size = std::abs(exact);
        std::int64_t whole = 0, slack = 0;
        for (std::int64_t k = 0; k < in; ++k) {
          const double a = x.data<float>()[r * in + k], b = weight.data<float>()[n * in + k];
          exact += a * b;
          size += std::abs(a * b);
          bound +=
              std::abs(a) * column.scale / 2 + std::abs(b) * row.scale / 2 + row.scale * column.scale / 4;
          whole += row.numbers[k] * column.numbers[k];
          // A number between two whole ones may round to either: the engine multiplies by 127 / max.
          slack += std::abs(column.numbers[k]);
        }
        const double found = any.data<float>()[r * out + n];
        // The largest error that WeightType::int8 states, and the roundings of the scaled sum in f32.
        ASSERT_NEAR(found, exact, bound + 4 * 0x1p-24 * (size + bound)) << r << ", " << n;
        const double scale = static_cast<double>(row.scale) * column.scale;
        const double defined = static_cast<double>(whole) * scale + bias.data<float>()[n];
        ASSERT_NEAR(found, defined, 1e-3 * static_cast<double>(slack) * scale + 4 * 0x1p-24 * (size + bound));
      }
    }
  }
}

TEST(Int8Products, ARowHasTheSameBitsInAnyBatch) {
  constexpr std::int64_t rows = 53;
  for (const auto& [in, out] : product_sizes) {
    const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
    const Var packed(weight, std::make_shared<const PackedMatrix>(weight, WeightType::int8));
    const Tensor all = linear(x, packed, bias).value();
    for (const std::int64_t count : {1, 2, 5, 12, 13, 31}) {
      for (const std::int64_t first : {std::int64_t{0}, rows - count}) {
        const Tensor some = Tensor::copy_of(x.view().slice(0, first, count));
        const Tensor y = linear(some, packed, bias).value();
        ASSERT_EQ(std::memcmp(y.raw(), all.data<float>() + first * out,
                              static_cast<std::size_t>(count * out) * sizeof(float)),
                  0)
            << count << " rows from " << first << ", " << in << " to " << out;
      }
    }
  }
}

// The largest numbers of both sides, alike in sign: sums of bytes must not saturate.
TEST(Int8Products, SumsOfTheLargestNumbersAreExact) {
  for (const std::int64_t in : {64, 4096, 131071}) {
    Tensor x(DType::f32, {2, in}), weight(DType::f32, {2, in});
    x.fill(1.0);
    weight.fill(1.0);
    for (std::int64_t k = 0; k < in; ++k) x.data<float>()[in + k] = -1.0f;
    const PackedMatrix packed(weight, WeightType::int8);
    for (const Int8Path path : paths()) {
      const Tensor y = product(x, packed, Tensor::zeros(DType::f32, {2}), path);
      const double bound = 4 * 0x1p-24 * static_cast<double>(in);
      EXPECT_NEAR(y.data<float>()[0], static_cast<double>(in), bound);
      EXPECT_NEAR(y.data<float>()[2], -static_cast<double>(in), bound);
    }
  }
}

TEST(Int8Products, RowsThatHaveNoScale) {
  Tensor x = drawn({5, 9}, 1), weight = drawn({3, 9}, 2);
  for (std::int64_t k = 0; k < 9; ++k) {
    x.data<float>()[k] = 0.0f;
    x.data<float>()[9 + k] = 1e-42f;
    weight.data<float>()[9 + k] = 0.0f;
  }
  x.data<float>()[2 * 9 + 4] = std::numeric_limits<float>::quiet_NaN();
  x.data<float>()[3 * 9 + 8] = -std::numeric_limits<float>::infinity();
  const Tensor bias = drawn({3}, 3);
  const PackedMatrix packed(weight, WeightType::int8);
  for (const Int8Path path : paths()) {
    const Tensor y = product(x, packed, bias, path);
    for (std::int64_t n = 0; n < 3; ++n) {
      EXPECT_EQ(y.data<float>()[n], bias.data<float>()[n]);
      EXPECT_EQ(y.data<float>()[3 + n], bias.data<float>()[n]);
      EXPECT_TRUE(std::isnan(y.data<float>()[6 + n]));
      EXPECT_TRUE(std::isnan(y.data<float>()[9 + n]));
    }
    EXPECT_EQ(y.data<float>()[12 + 1], bias.data<float>()[1]);
  }
}

TEST(Int8Matrix, TakesAQuarterAndRefusesWhatItCannotHold) {
  const Tensor weight = drawn({512, 256}, 1);
  EXPECT_LT(PackedMatrix(weight, WeightType::int8).bytes(), weight.count() * 4 / 3.8);
  Tensor bad = weight.clone();
  bad.data<float>()[7] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(PackedMatrix(bad, WeightType::int8), InvalidArgument);
  EXPECT_THROW(PackedMatrix(Tensor::zeros(DType::f32, {1, 1 << 17}), WeightType::int8), InvalidArgument);
  EXPECT_EQ(parse_weight_type("int8"), WeightType::int8);
  EXPECT_THROW(parse_weight_type("int4"), InvalidArgument);
}

}  // namespace
}  // namespace fovea::autograd

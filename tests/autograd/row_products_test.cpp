// Linear layers whose rows have the same bits in any batch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "fovea/autograd/ops.h"
#include "fovea/core/philox.h"

namespace fovea::autograd {
namespace {

Tensor drawn(const Shape& shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    tensor.data<float>()[i] = 2.0f * static_cast<float>(random.next_uniform()) - 1.0f;
  return tensor;
}

// Sizes around those of vectors, tiles, blocks and threads; 70 rows by 200 columns of 19 run on two threads.
TEST(RowProducts, ARowHasTheSameBitsInAnyBatch) {
  for (const auto& [in, out] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 5}, {8, 8}, {19, 200}, {64, 13}, {130, 70}}) {
    SCOPED_TRACE(std::to_string(in) + " to " + std::to_string(out));
    constexpr std::int64_t rows = 70;
    const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
    const Tensor all = linear(x, weight, bias, Products::by_row).value();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < out; ++n) {
        double sum = static_cast<double>(bias.data<float>()[n]), size = std::abs(sum);
        for (std::int64_t k = 0; k < in; ++k) {
          const double term = static_cast<double>(x.data<float>()[r * in + k]) *
                              static_cast<double>(weight.data<float>()[n * in + k]);
          sum += term;
          size += std::abs(term);
        }
        // Each of at most in + 1 sums rounds by half a unit in the last place of what is added up.
        const double bound = static_cast<double>(in + 1) * 0x1p-24 * size;
        ASSERT_NEAR(static_cast<double>(all.data<float>()[r * out + n]), sum, bound) << r << ", " << n;
      }
    }
    for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 47, 48, 49}) {
      for (const std::int64_t first : {std::int64_t{0}, rows - count}) {
        const Tensor some(DType::f32, {count, in});
        std::memcpy(some.raw(), x.data<float>() + first * in,
                    static_cast<std::size_t>(count * in) * sizeof(float));
        const Tensor y = linear(some, weight, bias, Products::by_row).value();
        ASSERT_EQ(std::memcmp(y.data<float>(), all.data<float>() + first * out,
                              static_cast<std::size_t>(count * out) * sizeof(float)),
                  0)
            << count << " rows from " << first;
      }
    }
  }
}

TEST(RowProducts, NoRowsGiveNone) {
  EXPECT_EQ(linear(Tensor(DType::f32, {0, 4}), drawn({3, 4}, 1), {}, Products::by_row).value().count(), 0);
}

}  // namespace
}  // namespace fovea::autograd

// Linear layers whose rows have the same bits in any batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autograd/drawn.h"
#include "autograd/packed_products.h"
#include "core/cpu.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

// Sizes around those of vectors, tiles, blocks and threads; 70 rows by 200 columns of 19 run on two threads.
void expect_the_same_bits_in_any_batch(
    const std::function<Tensor(const Var&, const Tensor&, const Var&)>& product) {
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                {7, 5},
                                {8, 8},
                                {19, 200},
                                {64, 13},
                                {130, 70},
                                {515, 37}}) {
    SCOPED_TRACE(std::to_string(in) + " to " + std::to_string(out));
    constexpr std::int64_t rows = 70;
    const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
    const Tensor all = product(x, weight, bias);
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
    for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 23, 24, 25, 47, 48, 49}) {
      for (const std::int64_t first : {std::int64_t{0}, rows - count}) {
        const Tensor some(DType::f32, {count, in});
        std::memcpy(some.raw(), x.data<float>() + first * in,
                    static_cast<std::size_t>(count * in) * sizeof(float));
        const Tensor y = product(some, weight, bias);
        ASSERT_EQ(std::memcmp(y.data<float>(), all.data<float>() + first * out,
                              static_cast<std::size_t>(count * out) * sizeof(float)),
                  0)
            << count << " rows from " << first;
      }
    }
  }
}

TEST(RowProducts, ARowHasTheSameBitsInAnyBatch) {
  expect_the_same_bits_in_any_batch([](const Var& x, const Tensor& weight, const Var& bias) {
    return linear(x, weight, bias, Products::by_row).value();
  });
}

TEST(PackedProducts, ARowHasTheSameBitsInAnyBatch) {
  expect_the_same_bits_in_any_batch([](const Var& x, const Tensor& weight, const Var& bias) {
    return linear(x, Var(weight, std::make_shared<const PackedMatrix>(weight)), bias).value();
  });
}

// Blocks of chosen sizes, whatever the number of threads: many rows take another way than few, through slices
// of their columns.
TEST(PackedProducts, ElementsAreChainsOfMultiplyAdds) {
  // Instruction sets without fused multiply-adds multiply and add.
  const bool fused = cpu_has_avx2() || !cpu_has_sse42();
  constexpr std::int64_t all_rows = 31, gap = 3;
  for (const std::int64_t in : {0, 1, 256, 257, 515}) {
    for (const std::int64_t out : {37, 48, 81, 130}) {
      const Tensor x = drawn({all_rows, in + gap}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
      const PackedMatrix packed(weight);
      for (const bool with_bias : {true, false}) {
        const float* start = with_bias ? bias.data<float>() : nullptr;
        const PackedProducts p{
            .x = x.data<float>(), .weight = &packed, .bias = start, .rows = all_rows, .x_stride = in + gap};
        const ProductRows rows_of_x(p, serial_executor());
        for (const std::int64_t rows : {1, 7, 13, 23, 24, 25, 29}) {
          const ProductBlockAt at{.row = 2, .end = 2 + rows, .column = 32, .last = out};
          std::vector<float> y(static_cast<std::size_t>(rows * (out - at.column)));
          rows_of_x.multiply_into(p, at, y.data());
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t n = at.column; n < out; ++n) {
              float sum = start ? start[n] : 0.0f;
              for (std::int64_t k = 0; k < in; ++k) {
                const float a = x.data<float>()[(at.row + r) * (in + gap) + k],
                            b = weight.data<float>()[n * in + k];
                const float product = a * b;
                sum = fused ? std::fma(a, b, sum) : sum + product;
              }
              ASSERT_EQ(y[static_cast<std::size_t>(r * (out - at.column) + n - at.column)], sum)
                  << rows << " rows, " << in << " to " << out << ": " << r << ", " << n;
            }
          }
        }
      }
    }
  }
}

// More rows than a block has, of more numbers than a slice.
TEST(PackedProducts, RowsOfLargeBatchesHaveTheBitsOfEachAlone) {
  constexpr std::int64_t rows = 290, in = 1100, out = 70;
  const Tensor x = drawn({rows, in}, 1), weight = drawn({out, in}, 2), bias = drawn({out}, 3);
  const Var packed(weight, std::make_shared<const PackedMatrix>(weight));
  const Tensor together = linear(x, packed, bias).value();
  for (std::int64_t r = 0; r < rows; ++r) {
    Tensor row(DType::f32, {1, in});
    std::copy_n(x.data<float>() + r * in, in, row.data<float>());
    const Tensor alone = linear(row, packed, bias).value();
    ASSERT_TRUE(std::equal(alone.data<float>(), alone.data<float>() + out, together.data<float>() + r * out))
        << r;
  }
}

TEST(RowProducts, NoRowsGiveNone) {
  const Tensor none(DType::f32, {0, 4}), weight = drawn({3, 4}, 1);
  EXPECT_EQ(linear(none, weight, {}, Products::by_row).value().count(), 0);
  EXPECT_EQ(linear(none, Var(weight, std::make_shared<const PackedMatrix>(weight)), {}).value().count(), 0);
}

TEST(PackedMatrix, RefusesWhatIsNoMatrix) {
  EXPECT_THROW(PackedMatrix(Tensor(DType::f32, {2, 3, 4})), InvalidArgument);
  EXPECT_THROW(PackedMatrix(Tensor(DType::f64, {2, 3})), InvalidArgument);
}

// The definition: log softmax of the row, sorted by value and then by id.
TEST(MostProbable, AreTheFirstOfTheSortedLogSoftmax) {
  constexpr std::int64_t rows = 7, classes = 1000;
  Tensor logits = drawn({rows, classes}, 5);
  float* x = logits.data<float>();
  for (std::int64_t i = 0; i < rows * classes; ++i) x[i] = std::round(x[i] * 40.0f) / 4.0f;  // many ties
  x[3] = std::numeric_limits<float>::quiet_NaN();
  Tensor expected = logits.clone();
  log_softmax_rows(expected);
  const std::vector<std::int32_t> without{0, 500};
  for (const std::size_t count : {1, 10, 998, 2000}) {
    const auto best = most_probable(logits, count, without);
    ASSERT_EQ(best.size(), static_cast<std::size_t>(rows));
    for (std::int64_t r = 1; r < rows; ++r) {  // row 0 has a NaN, which its log softmax spreads
      const float* row = expected.data<float>() + r * classes;
      std::vector<std::int32_t> order;
      for (std::int32_t i = 0; i < classes; ++i)
        if (i != 0 && i != 500) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
      order.resize(std::min(order.size(), count));
      ASSERT_EQ(best[static_cast<std::size_t>(r)].size(), order.size());
      for (std::size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(best[static_cast<std::size_t>(r)][i].id, order[i]);
        EXPECT_EQ(best[static_cast<std::size_t>(r)][i].log_probability, row[order[i]]);
      }
    }
  }
}

// Without probabilities the logits stand in their place. Rows that have no probabilities have no classes.
TEST(MostProbable, AreTheLargestLogitsWhereProbabilitiesAreLeftOut) {
  constexpr std::int64_t rows = 5, classes = 700;
  Tensor logits = drawn({rows, classes}, 6);
  float* x = logits.data<float>();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  x[699] = std::numeric_limits<float>::quiet_NaN();
  x[classes + 130] = infinity;
  std::fill_n(x + 2 * classes, classes, -infinity);
  x[3 * classes + 5] = -infinity;
  x[3 * classes + 6] = x[3 * classes + 650] = 100.0f;
  const std::vector<std::int32_t> without{3};
  const auto best = most_probable(logits, 4, without, LogProbabilities::left_out),
             given = most_probable(logits, 4, without);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(given[r].empty());
    EXPECT_TRUE(best[r].empty());
  }
  for (std::int64_t r = 3; r < rows; ++r) {
    std::vector<std::int32_t> order;
    for (std::int32_t i = 0; i < classes; ++i)
      if (i != 3) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return x[r * classes + a] > x[r * classes + b]; });
    const auto& row = best[static_cast<std::size_t>(r)];
    ASSERT_EQ(row.size(), 4u);
    for (std::size_t i = 0; i < row.size(); ++i) {
      EXPECT_EQ(row[i].id, order[i]);
      EXPECT_EQ(row[i].log_probability, x[r * classes + order[i]]);
      EXPECT_EQ(given[static_cast<std::size_t>(r)][i].id, order[i]);
    }
  }
}

}  // namespace
}  // namespace fovea::autograd

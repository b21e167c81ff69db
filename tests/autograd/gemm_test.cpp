// Products cut into blocks: right for every transpose and remainder, and the same bits for any executor.
#include "autograd/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"

namespace fovea::autograd {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};
// One block, few blocks with remainders, many, and blocks that are halved.
constexpr Sizes all_sizes[] = {{1, 1, 1},     {5, 7, 3},       {257, 300, 40}, {64, 1030, 33},
                               {1000, 65, 9}, {130, 128, 600}, {96, 97, 700}};

// Rows are further apart than they are long, as those of a column slice.
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

TEST(Gemm, HasTheSameBitsForAnyNumberOfThreads) {
  for (const Sizes& s : all_sizes) {
    const Tensor x = Tensor::normal({s.m * s.k}, 1), y = Tensor::normal({s.k * s.n}, 2);
    const auto run = [&](Executor& executor) {
      const Tensor c(DType::f32, {s.m * s.n});
      gemm(s.m, s.n, s.k, {x.data<float>(), s.k}, {y.data<float>(), s.k, Transpose::yes}, 0.0f,
           c.data<float>(), s.n, &executor);
      return c;
    };
    const Tensor alone = run(serial_executor());
    for (const int threads : {2, 5}) {
      const auto pool = make_thread_pool(threads);
      const Tensor c = run(*pool);
      EXPECT_EQ(std::memcmp(alone.raw(), c.raw(), static_cast<std::size_t>(4 * c.count())), 0)
          << s.m << " x " << s.n << " x " << s.k << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace fovea::autograd

// Exponentials, transposes, products and pieces of a workspace, alone, on every instruction set of this CPU.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_test.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/load-inl.h"
#include "kernels/simd/memory-inl.h"
#include "kernels/simd/transpose-inl.h"
#include "kernels/simd_code.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T, bool kTanh>
void EachOf(const T* x, int64_t n, T* y) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    if constexpr (kTanh)
      hn::StoreU(Tanh(d, v), d, y + i);
    else
      hn::StoreU(Exp(d, v), d, y + i);
  }
}
template <class T>
void FoldEach(const T* x, T* sums) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  hn::Vec<decltype(d)> vectors[16];
  for (int i = 0; i < 16; ++i) vectors[i] = hn::LoadU(d, x + i * kLanes);
  FoldSums<16, kLanes>(d, vectors, sums);
}
template <class T>
int64_t LanesOf() {
  return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}
void Widened(const uint16_t* from, int64_t n, float* to) {
  const hn::ScalableTag<float> d;
  hn::StoreU(LoadWideN(d, reinterpret_cast<const hwy::float16_t*>(from), n), d, to);
}
template <class T>
void ProductOf(int64_t m, int64_t n, int64_t k, const T* a, const T* b, int64_t ldb, T* c, int64_t ldc,
               bool add) {
  const ProductArgs<T> args{a, k, 1, b, ldb, c, ldc, k};
  add ? Product<true, T>(m, n, args) : Product<false, T>(m, n, args);
}
size_t CarveTwo(std::byte* base, int64_t first, double** second) {
  Carve carve(base);
  carve.Take<float>(first);
  *second = carve.Take<double>(3);
  return carve.Used();
}

constexpr SimdCode kSimdCode{{EachOf<float, false>, EachOf<float, true>, FoldEach<float>, LanesOf<float>,
                              Transpose<float>, ProductOf<float>},
                             {EachOf<double, false>, EachOf<double, true>, FoldEach<double>, LanesOf<double>,
                              Transpose<double>, ProductOf<double>},
                             TransposeBlocks,
                             Widened,
                             CarveTwo};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fovea/core/dtype.h"
#include "kernels/code_here.h"

namespace fovea::testing {
namespace {

using kernels::SimdCode;
using kernels::SimdCodeOf;

std::vector<std::pair<std::string, SimdCode>> code_here() {
  return FOVEA_CODE_HERE(SimdCode, kSimdCode);
}

// Calls body(name, code) for the code of float and of double.
template <class Body>
void for_both(Body&& body) {
  for (const auto& [name, code] : code_here()) {
    body(name, code.f32);
    body(name, code.f64);
  }
}

template <class T>
std::vector<T> each(void (*function)(const T*, std::int64_t, T*), std::vector<T> x) {
  const std::size_t count = x.size();
  x.resize((count + 15) / 16 * 16, T{0});
  std::vector<T> y(x.size());
  function(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  y.resize(count);
  return y;
}

// From the smallest x with a normal result to the largest that callers give. The points follow no pattern of
// the fraction that remains of x / ln 2.
TEST(Exp, IsWithinItsErrorOfTheExponential) {
  for_both([]<class T>(const std::string& name, const SimdCodeOf<T>& code) {
    const double low = sizeof(T) == 8 ? -708 : -87, high = sizeof(T) == 8 ? 709 : 88;
    std::vector<T> x;
    for (int i = 0; i <= 200'003; ++i) x.push_back(static_cast<T>(low + (high - low) * i / 200'003.0));
    for (int i = 1; i < 30; ++i) {  // near 0, and where the fraction of x / ln 2 changes its sign
      x.push_back(static_cast<T>(std::ldexp(1.0, -i)));
      x.push_back(static_cast<T>(-std::ldexp(1.0, -i)));
      x.push_back(static_cast<T>((i - 15 + 0.5) * std::log(2.0)));
    }
    const std::vector<T> y = each(code.exp, x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double exact = std::exp(static_cast<long double>(x[i]));
      worst = std::max(worst, static_cast<double>(std::abs(y[i] - exact) / exact));
    }
    EXPECT_LT(worst, sizeof(T) == 8 ? 4e-16 : 3e-7) << name;  // as Exp promises
    EXPECT_GT(worst, 0.0) << name;
  });
}

TEST(Exp, KeepsItsEdges) {
  for_both([]<class T>(const std::string& name, const SimdCodeOf<T>& code) {
    const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    const std::vector<T> y = each(
        code.exp, std::vector<T>{0, -0.0, -infinity, -1000, nan, -nan, sizeof(T) == 8 ? T(-709) : T(-88)});
    EXPECT_EQ(y[0], T{1}) << name;
    EXPECT_EQ(y[1], T{1}) << name;
    EXPECT_EQ(y[2], T{0}) << name;
    EXPECT_EQ(y[3], T{0}) << name;
    EXPECT_TRUE(std::isnan(y[4]) && std::isnan(y[5])) << name;
    EXPECT_EQ(y[6], T{0}) << name << ": no subnormal";
  });
}

TEST(Tanh, IsWithinItsErrorAndOdd) {
  for_both([]<class T>(const std::string& name, const SimdCodeOf<T>& code) {
    std::vector<T> x;
    for (int i = 0; i <= 100'003; ++i) x.push_back(static_cast<T>(-25 + 50 * i / 100'003.0));
    for (const T extreme : {T(1e30), -std::numeric_limits<T>::infinity(), T(0)}) x.push_back(extreme);
    const std::vector<T> y = each(code.tanh, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(y[i], std::tanh(static_cast<double>(x[i])), sizeof(T) == 8 ? 1e-15 : 2e-7)
          << name << " " << x[i];
    EXPECT_TRUE(std::isnan(each(code.tanh, std::vector<T>{std::numeric_limits<T>::quiet_NaN()})[0])) << name;
  });
}

// Whole numbers, so that sums do not depend on their order.
TEST(FoldSums, OfEachVectorStandInOrder) {
  for_both([]<class T>(const std::string& name, const SimdCodeOf<T>& code) {
    const std::int64_t lanes = code.lanes();
    std::vector<T> x(static_cast<std::size_t>(16 * lanes)), sums(64, T{-1});
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>((i * i) % 97);
    code.fold(x.data(), sums.data());
    for (std::int64_t v = 0; v < 16; ++v) {
      T sum{0};
      for (std::int64_t i = 0; i < lanes; ++i) sum += x[static_cast<std::size_t>(v * lanes + i)];
      EXPECT_EQ(sums[static_cast<std::size_t>(v)], sum) << name << " " << v;
    }
  });
}

TEST(Product, IsTheSumOfProductsAndKeepsToItsRows) {
  for_both([]<class T>(const std::string& name, const SimdCodeOf<T>& code) {
    const std::int64_t lanes = code.lanes();
    for (std::int64_t m = 1; m <= 13; ++m) {
      for (const std::int64_t vectors : {1, 2, 3, 4, 5, 7}) {
        for (const bool add : {false, true}) {
          const std::int64_t n = vectors * lanes, k = 5, ld = n + 3;
          std::vector<T> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * ld)),
              c(static_cast<std::size_t>(m * ld), T{2});
          for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>((i * 7) % 11) - 5;
          for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<T>((i * 5) % 13) - 6;
          code.product(m, n, k, a.data(), b.data(), ld, c.data(), ld, add);
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t j = 0; j < ld; ++j) {
              T want = j >= n || add ? T{2} : T{0};
              for (std::int64_t l = 0; j < n && l < k; ++l)
                want += a[static_cast<std::size_t>(i * k + l)] * b[static_cast<std::size_t>(l * ld + j)];
              ASSERT_EQ(c[static_cast<std::size_t>(i * ld + j)], want)
                  << name << " " << m << "x" << n << " at " << i << ", " << j;
            }
          }
        }
      }
    }
  });
}

TEST(Transpose, OfBlocksTurnsRowsIntoColumns) {
  for (const auto& [name, code] : code_here()) {
    for (const std::int64_t rows : {16, 32, 48}) {
      for (const std::int64_t columns : {16, 64}) {
        const std::int64_t from_stride = columns + 5, to_stride = rows + 3;
        std::vector<std::uint32_t> from(static_cast<std::size_t>(rows * from_stride)),
            to(static_cast<std::size_t>(columns * to_stride), 0xdeadbeef);
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint32_t>(i * 2654435761u);
        code.transpose_blocks(from.data(), rows, columns, from_stride, to.data(), to_stride);
        for (std::int64_t c = 0; c < columns; ++c) {
          for (std::int64_t r = 0; r < to_stride; ++r)
            ASSERT_EQ(to[static_cast<std::size_t>(c * to_stride + r)],
                      r < rows ? from[static_cast<std::size_t>(r * from_stride + c)] : 0xdeadbeef)
                << name << " " << rows << "x" << columns;
        }
      }
    }
  }
}

// Any count of rows and elements, with zeros behind the rows.
TEST(Transpose, OfAnyRowsPadsWithZeros) {
  for_both([]<class T>(const std::string& name, const SimdCodeOf<T>& code) {
    for (const std::int64_t count : {1, 5, 15, 16, 17, 40}) {
      for (const std::int64_t dim : {1, 7, 16, 20, 33}) {
        const std::int64_t row_stride = dim + 2, stride = count + 9;
        std::vector<T> from(static_cast<std::size_t>(count * row_stride)),
            to(static_cast<std::size_t>(dim * stride + 4), T{-1});
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(i + 1);
        code.transpose(from.data(), row_stride, count, dim, stride, to.data());
        for (std::int64_t d = 0; d < dim; ++d) {
          for (std::int64_t j = 0; j < stride; ++j)
            ASSERT_EQ(to[static_cast<std::size_t>(d * stride + j)],
                      j < count ? from[static_cast<std::size_t>(j * row_stride + d)] : T{0})
                << name << " " << count << "x" << dim;
        }
        for (std::int64_t i = 0; i < 4; ++i)
          ASSERT_EQ(to[static_cast<std::size_t>(dim * stride + i)], T{-1}) << name;
      }
    }
  });
}

TEST(Load, OfFewerLanesReadsNoFurther) {
  for (const auto& [name, code] : code_here()) {
    for (std::int64_t n = 0; n <= code.f32.lanes(); ++n) {
      std::vector<std::uint16_t> from(static_cast<std::size_t>(n),
                                      float16(1.5f).bits);  // a sanitizer reports a read of one more
      std::vector<float> to(16, -1.0f);
      code.widened(from.data(), n, to.data());
      for (std::int64_t i = 0; i < code.f32.lanes(); ++i)
        EXPECT_EQ(to[static_cast<std::size_t>(i)], i < n ? 1.5f : 0.0f) << name;
    }
  }
}

TEST(Carve, GivesAlignedPiecesAndCountsWithoutMemory) {
  alignas(64) std::byte memory[512];
  for (const auto& [name, code] : code_here()) {
    for (const std::int64_t first : {0, 1, 16, 17}) {
      double *piece = nullptr, *none = nullptr;
      const std::size_t used = code.carve_two(memory, first, &piece),
                        counted = code.carve_two(nullptr, first, &none);
      EXPECT_EQ(used, counted) << name;
      EXPECT_EQ(none, nullptr) << name;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % 64, 0u) << name;
      EXPECT_EQ(reinterpret_cast<std::byte*>(piece) - memory, (first * 4 + 63) / 64 * 64) << name;
      EXPECT_EQ(used, static_cast<std::size_t>((first * 4 + 63) / 64 * 64 + 64)) << name;
    }
  }
}

}  // namespace
}  // namespace fovea::testing
#endif

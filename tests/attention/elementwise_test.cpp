// The functions for writing mods, against libm in long double, and their derivatives.
#include "fovea/attention/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "fovea/core/philox.h"

namespace fovea {
namespace {

using elementwise::Dual;
using Exact = long double;

template <class T>
class Elementwise : public ::testing::Test {
 protected:
  static constexpr bool wide = sizeof(T) == 8;
  static constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  double between(double low, double high) { return low + (high - low) * random_.next_uniform(); }
  T any_power_of_two(double most) {
    return static_cast<T>(std::exp2(between(-most, most)) * between(1.0, 2.0));
  }
  PhiloxStream random_{7};
};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Types);

template <class T>
double relative(T got, Exact wanted) {
  return wanted == 0 ? (got == T(0) ? 0.0 : INFINITY)
                     : static_cast<double>(std::abs((static_cast<Exact>(got) - wanted) / wanted));
}

TYPED_TEST(Elementwise, SquareRootsFromTheSmallestNumberToTheLargest) {
  using T = TypeParam;
  double worst = 0;
  for (int n = 0; n < 100000; ++n) {
    const T x = this->any_power_of_two(this->wide ? 1020 : 124);
    worst = std::max(worst, relative(elementwise::sqrt(x), std::sqrt(Exact(x))));
  }
  for (T x = std::numeric_limits<T>::denorm_min(); x < this->infinity; x *= T(1.9))
    worst = std::max(worst, relative(elementwise::sqrt(x), std::sqrt(Exact(x))));
  EXPECT_LT(worst, this->wide ? 2.3e-16 : 1.2e-7);
  EXPECT_EQ(elementwise::sqrt(T(0)), T(0));
  EXPECT_EQ(elementwise::sqrt(this->infinity), this->infinity);
  EXPECT_LT(relative(elementwise::sqrt(std::numeric_limits<T>::max()),
                     std::sqrt(Exact(std::numeric_limits<T>::max()))),
            2.3e-7);
  for (const T x : {T(-1), -this->infinity, this->nan}) EXPECT_TRUE(std::isnan(elementwise::sqrt(x))) << x;
}

TYPED_TEST(Elementwise, SinesOfLargeAngles) {
  using T = TypeParam;
  double absolute = 0, near_zero = 0;
  const auto look = [&](T x) {
    const Exact sine = std::sin(Exact(x)), cosine = std::cos(Exact(x));
    const T s = elementwise::sin(x), c = elementwise::cos(x);
    absolute = std::max({absolute, static_cast<double>(std::abs(Exact(s) - sine)),
                         static_cast<double>(std::abs(Exact(c) - cosine))});
    if (std::abs(x) < T(1e5)) near_zero = std::max({near_zero, relative(s, sine), relative(c, cosine)});
  };
  for (int n = 0; n < 200000; ++n)
    look(static_cast<T>(this->between(-1, 1) * std::exp2(this->between(-10, 30))));
  // Points where the difference of x and a multiple of pi/2 has lost the most digits.
  for (int n = -20000; n < 20000; ++n) look(static_cast<T>(n * 1.5707963267948966));
  for (const double x : {elementwise::largest_angle, -elementwise::largest_angle, 1e-30, 0.0})
    look(static_cast<T>(x));
  EXPECT_LT(absolute, this->wide ? 2e-16 : 1e-7);
  EXPECT_LT(near_zero, this->wide ? 4e-16 : 2e-7);
  for (const T x : {T(1.1e9), T(-1.1e9), this->infinity, this->nan}) {
    EXPECT_TRUE(std::isnan(elementwise::sin(x))) << x;
    EXPECT_TRUE(std::isnan(elementwise::cos(x))) << x;
  }
}

TYPED_TEST(Elementwise, PowersOverTheWholeRange) {
  using T = TypeParam;
  const double most = this->wide ? 700 : 86;  // beyond this, results are not normal numbers
  double worst = 0;
  for (int n = 0; n < 200000; ++n) {
    const T x =
        n % 2 == 0 ? this->any_power_of_two(this->wide ? 1020 : 124) : static_cast<T>(this->between(0.5, 2));
    const double log = std::log(static_cast<double>(x));
    if (log == 0) continue;
    const T y = static_cast<T>(this->between(-most, most) / log);
    worst = std::max(worst, relative(elementwise::pow(x, y), std::pow(Exact(x), Exact(y))));
  }
  EXPECT_LT(worst, this->wide ? 1e-15 : 1.3e-7);
}

TYPED_TEST(Elementwise, PowersWhereTheyAreSpecial) {
  using T = TypeParam;
  const T large = std::numeric_limits<T>::max(), small = std::numeric_limits<T>::min(),
          digits = T(1) / std::numeric_limits<T>::epsilon();
  const T values[] = {0,
                      1,
                      -1,
                      2,
                      -2,
                      3,
                      -3,
                      T(0.5),
                      T(-0.5),
                      T(2.5),
                      T(-2.5),
                      digits,
                      -digits,
                      2 * digits + 2,
                      digits - 1,
                      1 - digits,
                      this->infinity,
                      -this->infinity,
                      this->nan,
                      large,
                      -large,
                      small};
  for (const T x : values) {
    for (const T y : values) {
      const T wanted = std::pow(x, y), got = elementwise::pow(x, y);
      // Close to the end of the range a result may be 0 or infinity.
      const bool same = got == wanted || (std::isnan(got) && std::isnan(wanted)) ||
                        relative(got, Exact(wanted)) < 4e-7 * (this->wide ? 1e-8 : 1) ||
                        (std::abs(wanted) < small * 10 && got == T(0)) ||
                        (std::abs(wanted) > large / 10 && std::isinf(got) && (got > 0) == (wanted > 0));
      EXPECT_TRUE(same) << "pow(" << x << ", " << y << ") = " << got << ", std::pow " << wanted;
    }
  }
}

TYPED_TEST(Elementwise, WholeNumbers) {
  using T = TypeParam;
  const auto look = [](T x) {
    EXPECT_EQ(elementwise::floor(x), std::floor(x)) << x;
    EXPECT_EQ(elementwise::ceil(x), std::ceil(x)) << x;
    EXPECT_EQ(elementwise::sign(x), T((x > 0) - (x < 0))) << x;
    EXPECT_EQ(elementwise::abs(x), std::abs(x)) << x;
    EXPECT_LE(std::abs(elementwise::round(x) - x), T(0.5)) << x;
    EXPECT_EQ(elementwise::round(x), std::floor(elementwise::round(x))) << x;
  };
  for (int n = 0; n < 20000; ++n)
    look(static_cast<T>(this->between(-1, 1) * std::exp2(this->between(-3, this->wide ? 54 : 25))));
  // Magnitudes at which numbers have one fractional bit left, or none.
  for (const int bits : {21, 22, 23, 24, 50, 51, 52, 53}) {
    const T x = std::exp2(T(bits));
    for (const T y : {x, std::nextafter(x, T(0)), std::nextafter(x, this->infinity), x + T(0.5)}) {
      look(y);
      look(-y);
    }
  }
  look(0);
  EXPECT_EQ(elementwise::round(T(2.5)), T(3));
  EXPECT_EQ(elementwise::round(T(-2.5)), T(-2));
  EXPECT_EQ(elementwise::floor(this->infinity), this->infinity);
  EXPECT_TRUE(std::isnan(elementwise::floor(this->nan)));
  EXPECT_TRUE(std::isnan(elementwise::sign(this->nan)));
}

TYPED_TEST(Elementwise, SoftplusAtBothEnds) {
  using T = TypeParam;
  for (int n = 0; n < 20000; ++n) {
    const T x = static_cast<T>(this->between(-60, 60));
    const Exact wanted = std::log1p(std::exp(-std::abs(Exact(x)))) + (x > 0 ? Exact(x) : Exact(0));
    EXPECT_LT(std::abs(static_cast<double>(elementwise::softplus(x) - wanted)),
              (this->wide ? 3e-16 : 1e-7) * (1 + std::abs(static_cast<double>(x))));
  }
  EXPECT_EQ(elementwise::softplus(T(1e30)), T(1e30));
}

// A constant, also an integer, takes the type of the number beside it.
TYPED_TEST(Elementwise, ConstantsBesideNumbers) {
  using T = TypeParam;
  const T x = T(-0.75);
  EXPECT_EQ(elementwise::where(x < 0, x, 0), x);
  EXPECT_EQ(elementwise::where(x > 0, x, 1), T(1));
  EXPECT_EQ(elementwise::maximum(x, 0), T(0));
  EXPECT_EQ(elementwise::minimum(1, x), x);
  EXPECT_EQ(elementwise::clamp(x, -0.5f, 1), T(-0.5));
  EXPECT_EQ(elementwise::pow(x, 2), x * x);
  EXPECT_EQ(elementwise::pow(2.0f, T(3)), T(8));
  EXPECT_EQ(elementwise::abs(-3), 3);
  EXPECT_EQ(elementwise::where(true, 2, 3), 2);
  static_assert(std::is_same_v<decltype(elementwise::pow(x, 2)), T>);
  static_assert(std::is_same_v<decltype(elementwise::where(true, Dual<T>(x), 0.0)), Dual<T>>);
  const Dual<T> d(x, T(1));
  EXPECT_TRUE(d < 0 && 0 > d && d <= -0.75 && d >= x && d != 1 && d == x && !(d < d));
}

// Derivatives against central differences of libm in long double.
TYPED_TEST(Elementwise, Derivatives) {
  using T = TypeParam;
  struct Case {
    const char* name;
    std::function<Dual<T>(Dual<T>)> function;
    std::function<Exact(Exact)> exact;
    double low, high;
  };
  const std::vector<Case> cases{
      {"sqrt", [](Dual<T> x) { return elementwise::sqrt(x); }, [](Exact x) { return std::sqrt(x); }, 0.1, 50},
      {"sin", [](Dual<T> x) { return elementwise::sin(x); }, [](Exact x) { return std::sin(x); }, -50, 50},
      {"cos", [](Dual<T> x) { return elementwise::cos(x); }, [](Exact x) { return std::cos(x); }, -50, 50},
      {"pow of x", [](Dual<T> x) { return elementwise::pow(x, T(2.5)); },
       [](Exact x) { return std::pow(x, 2.5L); }, 0.1, 9},
      {"pow of -x", [](Dual<T> x) { return elementwise::pow(x, 3); }, [](Exact x) { return x * x * x; }, -9,
       -0.1},
      {"2^x", [](Dual<T> x) { return elementwise::pow(2.0, x); }, [](Exact x) { return std::exp2(x); }, -9,
       9},
      {"x^x", [](Dual<T> x) { return elementwise::pow(x, x); }, [](Exact x) { return std::pow(x, x); }, 0.1,
       5},
      {"softplus", [](Dual<T> x) { return elementwise::softplus(x); },
       [](Exact x) { return std::log1p(std::exp(x)); }, -20, 20},
      {"square", [](Dual<T> x) { return elementwise::square(x); }, [](Exact x) { return x * x; }, -9, 9},
      {"clamp", [](Dual<T> x) { return elementwise::clamp(x, -1, 2); },
       [](Exact x) { return std::clamp(x, -1.0L, 2.0L); }, -3, 3},
      {"floor", [](Dual<T> x) { return elementwise::floor(x) + elementwise::sign(x) + x; },
       [](Exact x) { return std::floor(x) + ((x > 0) - (x < 0)) + x; }, -3, 3},
  };
  for (const Case& c : cases) {
    for (int n = 0; n < 300; ++n) {
      const T x = static_cast<T>(this->between(c.low, c.high));
      if (const double whole = std::abs(static_cast<double>(x) - std::round(static_cast<double>(x)));
          whole < 1e-4)
        continue;  // a corner of clamp or floor
      const Exact h = 1e-6L, wanted = (c.exact(Exact(x) + h) - c.exact(Exact(x) - h)) / (2 * h);
      const Dual<T> got = c.function(Dual<T>(x, T(1)));
      const double scale = 1 + static_cast<double>(std::abs(wanted));
      // Rounding x moves sin and cos by as much, and x^x by its own slope. 1e-10 is the error of the
      // difference.
      const double tolerance = (this->wide ? 1e-9 : 4e-6) * scale;
      EXPECT_NEAR(static_cast<double>(got.derivative), static_cast<double>(wanted), tolerance)
          << c.name << " at " << x;
      EXPECT_NEAR(static_cast<double>(got.value), static_cast<double>(c.exact(Exact(x))),
                  (this->wide ? 1e-14 : 4e-6) * (1 + std::abs(static_cast<double>(c.exact(Exact(x))))))
          << c.name << " at " << x;
    }
  }
}

TYPED_TEST(Elementwise, DerivativesAtZero) {
  using T = TypeParam;
  const Dual<T> zero(T(0), T(1)), fixed(T(0), T(0));
  const auto slope = [&](T exponent) { return elementwise::pow(zero, Dual<T>(exponent)).derivative; };
  EXPECT_EQ(elementwise::sqrt(zero).derivative, this->infinity);
  EXPECT_EQ(elementwise::sqrt(fixed).derivative, T(0));
  EXPECT_EQ(slope(2), T(0));
  EXPECT_EQ(slope(1), T(1));
  EXPECT_EQ(slope(T(0.5)), this->infinity);
  EXPECT_EQ(slope(0), T(0));
  EXPECT_EQ(elementwise::pow(zero, 1).derivative, T(1));
  EXPECT_EQ(elementwise::pow(zero, 0).derivative, T(0));
  EXPECT_EQ(elementwise::pow(fixed, T(0.5)).derivative, T(0));
  // The derivative by the exponent is 0 at base 0 and does not exist below base 0.
  EXPECT_EQ(elementwise::pow(fixed, Dual<T>(T(2), T(1))).derivative, T(0));
  EXPECT_EQ(elementwise::pow(Dual<T>(T(1)), Dual<T>(T(2), T(1))).derivative, T(0));
  EXPECT_TRUE(std::isnan(elementwise::pow(Dual<T>(T(-2)), Dual<T>(T(2), T(1))).derivative));
  EXPECT_EQ(elementwise::pow(Dual<T>(T(-2), T(1)), Dual<T>(T(2))).derivative, T(-4));
}

}  // namespace
}  // namespace fovea

// sqrt and pow, a part of elementwise.h, which includes this file.
#pragma once

#include "fovea/attention/elementwise.h"

namespace fovea::elementwise {

/// The square root: relative error below 1.2e-7 (2.3e-16 in double), for subnormal numbers too; NaN for x <
/// 0. Uses Newton's iteration, because GCC calls libm for the errno of a negative argument and does not
/// vectorise that.
template <class T>
requires std::is_floating_point_v<T>
inline T sqrt(T x) {
  constexpr bool wide = sizeof(T) == 8;
  using Bits = BitsOf<T>;
  constexpr T small = wide ? T(0x1p-900) : T(0x1p-100), up = wide ? T(0x1p200) : T(0x1p50),
              down = wide ? T(0x1p-100) : T(0x1p-25), infinity = std::numeric_limits<T>::infinity();
  const bool scaled = x < small;
  const T s = where(scaled, x * up, x);
  // Halving the exponent gives 1/sqrt(s) to 3.5 %. Each Newton step then squares the error and multiplies it
  // by 3/2: 2e-3, 5e-6, 4e-11, and in double 2e-21.
  constexpr Bits halved = wide ? Bits(0x5fe6eb50c7b537a9) : Bits(0x5f375a86);
  T y = std::bit_cast<T>(static_cast<Bits>(halved - (std::bit_cast<Bits>(s) >> 1)));
  const T half = s * T(0.5);
  y = y * (T(1.5) - half * y * y);  // unrolled: at -O2 GCC keeps a loop here, and then does not vectorise the
                                    // caller's loop
  y = y * (T(1.5) - half * y * y);
  y = y * (T(1.5) - half * y * y);
  if constexpr (wide) y = y * (T(1.5) - half * y * y);
  // One step of Heron's method on the root itself. It is halved, so that the square of the largest number
  // does not overflow.
  const T root = half * y, corrected = root + y * (T(0.25) * s - root * root);
  const T result = corrected * where(scaled, T(2) * down, T(2));
  return where((x > T(0)) & (x < infinity), result,
               where(x < T(0), std::numeric_limits<T>::quiet_NaN(), x));  // 0, infinity and NaN are their own
                                                                          // roots
}
/// The derivative at 0 is +inf: add a small constant under the root where scores may be 0. If x does not
/// depend on the variable of the derivative, the derivative is 0 there too.
template <class T>
inline Dual<T> sqrt(Dual<T> x) {
  const T root = elementwise::sqrt(x.value);
  return {root, where(x.derivative == T(0), T(0), x.derivative * (T(0.5) / root))};
}

// A number in two parts; `low` is at most half a unit in the last place of `high`.
struct Pair {
  double high, low;
};
// Exact for |a| >= |b|, or a = 0.
inline Pair sum(double a, double b) {
  const double high = a + b;
  return {high, b - (high - a)};
}
// Exact (Dekker 1971) except for the last bit of a product of two lower halves. Numbers are halved by bits.
// The usual multiplication by 2^27 + 1 gives something else if the compiler contracts it.
inline Pair product(double a, double b) {
  constexpr std::int64_t upper = ~std::int64_t{0x7ffffff};
  const double high = a * b, a1 = std::bit_cast<double>(std::bit_cast<std::int64_t>(a) & upper),
               b1 = std::bit_cast<double>(std::bit_cast<std::int64_t>(b) & upper), a2 = a - a1, b2 = b - b1;
  return {high, ((a1 * b1 - high) + a1 * b2 + a2 * b1) + a2 * b2};
}

// ln x for x > 0, relative error below 1e-19. With x = m·2^k it is 2·artanh of f = (m - 1)/(m + 1), |f| <=
// 0.172. The terms from f^5 on are below 1 % of the sum and computed in double.
inline Pair log_in_two(double x) {
  const bool subnormal = x < 0x1p-1000;
  const double normal = where(subnormal, x * 0x1p100, x);
  // The exponent is converted to double by bits: AVX2 has no conversion of 64-bit numbers.
  constexpr auto root = std::bit_cast<std::uint64_t>(0.7071067811865476);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(normal) - root + (std::uint64_t{1023} << 52);
  const double k = std::bit_cast<double>((bits >> 52) | std::bit_cast<std::uint64_t>(0x1p52)) -
                   (0x1p52 + 1023.0) - where(subnormal, 100.0, 0.0);
  const double m = std::bit_cast<double>((bits & 0xfffffffffffff) + root);
  const double above = m - 1.0, below = m + 1.0, below_low = m - (below - 1.0);
  const double f = above / below;
  const Pair back = product(f, below);
  const double f_low = ((above - back.high) - back.low - f * below_low) / below;
  Pair z = product(f, f);
  z.low += 2.0 * f * f_low;
  double q = 1.0 / 27.0;
  q = q * z.high + 1.0 / 25.0;
  q = q * z.high + 1.0 / 23.0;
  q = q * z.high + 1.0 / 21.0;
  q = q * z.high + 1.0 / 19.0;
  q = q * z.high + 1.0 / 17.0;
  q = q * z.high + 1.0 / 15.0;
  q = q * z.high + 1.0 / 13.0;
  q = q * z.high + 1.0 / 11.0;
  q = q * z.high + 1.0 / 9.0;
  q = q * z.high + 1.0 / 7.0;
  q = q * z.high + 1.0 / 5.0;
  const Pair p = sum(0x1.5555555555555p-2, z.high * q);  // 1/3, then the other terms
  Pair w = product(z.high, p.high);
  w.low += z.high * (p.low + 0x1.5555555555555p-56) + z.low * p.high;
  const Pair v = product(f, w.high), half = sum(f, v.high);
  const double half_low = half.low + (v.low + f * w.low + f_low * w.high) + f_low;
  const Pair whole = sum(k * 0x1.62e42fefa3p-1, 2.0 * half.high);  // ln 2 cut to 41 bits: the product is
                                                                   // exact
  return {whole.high, whole.low + (2.0 * half_low + k * 0x1.3de6af278ece6p-42)};
}

/// x^y. In double the relative error is below 1e-15, because the product y·ln x has 100 bits and more. Floats
/// are computed in double: below 1.3e-7.
///
/// As in std::pow, x^0 and 1^y are 1, even for NaN. A negative x has a power for whole y and NaN for others.
/// 0^y is 0 for y > 0 and +inf for y < 0. Infinities of x and y give their limits.
///
/// Unlike in std::pow, -0 counts as 0. In double, results below e^-708 are 0 and results above e^709 are
/// +inf, as for exp.
template <class T>
requires std::is_floating_point_v<T>
inline T pow(T x, T y) {
  constexpr double infinity = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN();
  const auto base = static_cast<double>(x), exponent = static_cast<double>(y), size = elementwise::abs(base);
  // Beyond 2^100 every power is 0, 1 or infinity. A larger exponent would overflow in `product`.
  const double bounded = minimum(maximum(exponent, -0x1p100), 0x1p100);
  double power;
  if constexpr (sizeof(T) == 8) {
    const Pair log = log_in_two(size);
    const Pair whole = product(bounded, log.high);
    const double low = whole.low + bounded * log.low;
    power = elementwise::exp(whole.high) * (1.0 + where(elementwise::abs(whole.high) < 1000.0, low, 0.0));
  } else {  // an error of 1e-15 in ln x is 1e-13 in the largest float
    power = elementwise::exp(bounded * log_in_two(size).high);
  }
  power = where((size == 0.0) | (size == infinity), where((size == 0.0) == (exponent < 0.0), infinity, 0.0),
                power);
  const double floor = elementwise::floor(exponent), half = 0.5 * exponent;
  const bool whole = floor == exponent, odd = whole & (elementwise::floor(half) != half);
  power = where(base < 0.0, where(whole | (size == infinity), where(odd, -power, power), nan), power);
  power = where((base == base) & (exponent == exponent), power, nan);
  return static_cast<T>(where((exponent == 0.0) | (base == 1.0), 1.0, power));
}
/// The derivative by x is y·x^(y-1). At base 0 it is 0 for y > 1 and y = 0, 1 for y = 1 and +inf for other y.
/// The derivative by y is x^y·ln x, taken as 0 at base 0 and as NaN below. A derivative that is multiplied by
/// 0, such as that by a constant y, adds nothing even if it is infinite or NaN.
template <class T>
inline Dual<T> pow(Dual<T> x, Dual<T> y) {
  const T power = elementwise::pow(x.value, y.value), lower = elementwise::pow(x.value, y.value - T(1));
  const T size = where(x.value > T(0), x.value, T(1));
  const T by_x = where((x.derivative == T(0)) | (y.value == T(0)), T(0), x.derivative * y.value * lower);
  const T log = where(x.value < T(0), std::numeric_limits<T>::quiet_NaN(),
                      static_cast<T>(log_in_two(static_cast<double>(size)).high));
  const T by_y = where((y.derivative == T(0)) | (x.value == T(0)), T(0),
                       where(log == T(0), T(0), y.derivative * power * log));
  return {power, by_x + by_y};
}
/// One of the two is a constant: pow(score, 3), pow(2.0, score).
template <class T, Constant<T> N>
inline Dual<T> pow(Dual<T> x, N y) {
  const T power = elementwise::pow(x.value, T(y)), lower = elementwise::pow(x.value, T(y) - T(1));
  return {power, where((x.derivative == T(0)) | (T(y) == T(0)), T(0), x.derivative * T(y) * lower)};
}
template <class A, class B>
requires(Mixed<A, B> && !(IsDual<A> && !IsDual<B>)) inline auto pow(A x, B y) {
  using C = std::conditional_t<std::is_integral_v<B> && !IsDual<A>, A, Common<A, B>>;
  return elementwise::pow(as<C>(x), as<C>(y));
}

}  // namespace fovea::elementwise

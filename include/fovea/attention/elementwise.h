// Arithmetic for score mods: on float, double and dual numbers over them. The code has neither branches nor
// calls, so that a loop over scores becomes vector instructions at plain -O2. The functions of libm do not.
//
// How to see that a function still vectorises: write a loop of 16 elements over it, in a function with the
// attribute `flatten`. Compile it for float, double and Dual, with -O2 -mavx2 -mfma and with -O2 -mavx512f
// -mavx512vl -mavx512dq. objdump must show no scalar arithmetic (addss, mulsd, cvt..sd, call).
//
// These prevent it: && and || (write & and |), an inner loop, arithmetic right shifts of 64-bit numbers, and
// their conversion to double (AVX2 has neither).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "fovea/attention/dual.h"

namespace fovea::elementwise {

/// e^x: relative error below 3e-7 (4e-16 in double); 0 below about -87 (-708), and +inf above 88 (709).
template <class T>
requires std::is_floating_point_v<T>
inline T exp(T x) {
  constexpr bool wide = sizeof(T) == 8;
  using Bits = std::conditional_t<wide, std::int64_t, std::int32_t>;
  constexpr T low = wide ? T(-708) : T(-87), high = wide ? T(709) : T(88);
  // n = round(x / ln 2), by adding 1.5·2^(mantissa bits).
  constexpr T magic = wide ? T(6755399441055744.0) : T(12582912.0);
  const T inside = where(x < low, low, where(x > high, high, x));
  const T shifted = inside * T(1.4426950408889634) + magic, n = shifted - magic;
  T r = inside - n * (wide ? T(6.93147180369123816490e-01) : T(0.693145752));
  r = r - n * (wide ? T(1.90821492927058770002e-10) : T(1.42860677e-6));
  T p;
  if constexpr (wide) {  // Taylor to degree 13: |r| <= 0.347 leaves 4e-18
    p = T(1.0 / 6227020800.0);
    p = p * r + T(1.0 / 479001600.0);
    p = p * r + T(1.0 / 39916800.0);
    p = p * r + T(1.0 / 3628800.0);
    p = p * r + T(1.0 / 362880.0);
    p = p * r + T(1.0 / 40320.0);
    p = p * r + T(1.0 / 5040.0);
    p = p * r + T(1.0 / 720.0);
    p = p * r + T(1.0 / 120.0);
    p = p * r + T(1.0 / 24.0);
    p = p * r + T(1.0 / 6.0);
    p = p * r + T(0.5);
  } else {
    p = T(1.98756915e-4);
    p = p * r + T(1.39819994e-3);
    p = p * r + T(8.33345189e-3);
    p = p * r + T(4.16657963e-2);
    p = p * r + T(1.66666656e-1);
    p = p * r + T(0.5);
  }
  p = (r * r) * p + r + T(1);
  constexpr int mantissa = wide ? 52 : 23;
  using Unsigned = std::make_unsigned_t<Bits>;  // wraps for NaN, where any scale will do
  const Unsigned exponent =
      std::bit_cast<Unsigned>(shifted) - std::bit_cast<Unsigned>(magic) + Unsigned(wide ? 1023 : 127);
  const T scale = std::bit_cast<T>(static_cast<Unsigned>(exponent << mantissa));
  const T result = p * scale;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  return where(x < low, T(0), where(x > high, infinity, result));
}

/// tanh x: relative error below 3e-7 (6e-16 in double). This holds near 0 too, where soft caps of small
/// scores lie.
template <class T>
requires std::is_floating_point_v<T>
inline T tanh(T x) {
  // Near 0 the minimax forms of the Cephes library (Moshier 1989), elsewhere 1 - 2 / (e^2x + 1).
  const T z = x * x;
  T near;
  if constexpr (sizeof(T) == 8) {
    const T p =
        (T(-9.64399179425052238628e-1) * z - T(9.92877231001918586564e1)) * z - T(1.61468768441708447952e3);
    const T q = ((z + T(1.12811678491632931402e2)) * z + T(2.23548839060100448583e3)) * z +
                T(4.84406305325125486048e3);
    near = x + x * z * (p / q);
  } else {
    T p = T(-5.70498872745e-3);
    p = p * z + T(2.06390887954e-2);
    p = p * z - T(5.37397155531e-2);
    p = p * z + T(1.33314422036e-1);
    p = p * z - T(3.33332819422e-1);
    near = x + x * z * p;
  }
  const T inside = where(x < T(-20), T(-20), where(x > T(20), T(20), x));
  const T far = T(1) - T(2) / (elementwise::exp(inside * T(2)) + T(1));
  return where(z < T(0.390625), near, far);  // |x| < 0.625
}

/// ln x for positive, normal x: relative error below 3e-7 (1e-15 in double), absolute near 1. The result for
/// other x is undefined.
template <class T>
requires std::is_floating_point_v<T>
inline T log(T x) {
  constexpr bool wide = sizeof(T) == 8;
  using Bits = std::conditional_t<wide, std::int64_t, std::int32_t>;
  constexpr int mantissa = wide ? 52 : 23;
  // x = 2^n · m with m in [sqrt(1/2), sqrt(2)); ln m by 2·artanh((m - 1) / (m + 1)).
  constexpr Bits root = std::bit_cast<Bits>(T(0.7071067811865476));
  using Unsigned = std::make_unsigned_t<Bits>;  // wraps for an x that has no logarithm
  const auto bits = static_cast<Unsigned>(std::bit_cast<Unsigned>(x) - static_cast<Unsigned>(root));
  T n;
  if constexpr (wide) {  // AVX2 has no arithmetic right shift of 64-bit numbers and does not convert them:
                         // 2^52 + n by bits
    n = std::bit_cast<T>(((bits + (Unsigned(1023) << mantissa)) >> mantissa) |
                         std::bit_cast<Unsigned>(0x1p52)) -
        T(0x1p52 + 1023.0);
  } else {
    n = T(static_cast<Bits>(bits) >> mantissa);
  }
  const T m = std::bit_cast<T>(static_cast<Bits>((bits & ((Unsigned(1) << mantissa) - 1)) + Unsigned(root)));
  const T f = (m - T(1)) / (m + T(1)), s = f * f;
  T p = T(1.0 / 9.0);
  if constexpr (wide) {  // |f| <= 0.172: 0.172^24 / 25 is 2e-20
    p = T(1.0 / 23.0);
    p = p * s + T(1.0 / 21.0);
    p = p * s + T(1.0 / 19.0);
    p = p * s + T(1.0 / 17.0);
    p = p * s + T(1.0 / 15.0);
    p = p * s + T(1.0 / 13.0);
    p = p * s + T(1.0 / 11.0);
    p = p * s + T(1.0 / 9.0);
  }
  p = p * s + T(1.0 / 7.0);
  p = p * s + T(1.0 / 5.0);
  p = p * s + T(1.0 / 3.0);
  p = p * s + T(1);
  return n * T(0.6931471805599453) + T(2) * f * p;
}

template <class T>
inline Dual<T> exp(Dual<T> x) {
  const T e = elementwise::exp(x.value);
  return {e, e * x.derivative};
}
template <class T>
inline Dual<T> tanh(Dual<T> x) {
  const T t = elementwise::tanh(x.value);
  return {t, (T(1) - t * t) * x.derivative};
}
template <class T>
inline Dual<T> log(Dual<T> x) {
  return {elementwise::log(x.value), x.derivative / x.value};
}
template <class T>
inline T sigmoid(T x) {
  return Scalar<T>(1) / (elementwise::exp(-x) + Scalar<T>(1));
}
/// ln(1 + e^x), a smooth rectifier, as max(x, 0) + ln(1 + e^-|x|), which does not overflow. Absolute error
/// below 1e-7 (3e-16 in double), in addition to the rounding of the result.
template <class T>
inline T softplus(T x) {
  const T one = Scalar<T>(1);
  return where(x > Scalar<T>(0), x, T(Scalar<T>(0))) +
         elementwise::log(one + elementwise::exp(where(x > Scalar<T>(0), -x, x)));
}
/// x|, also for integers. The derivative at 0 is taken as 0.
template <class T>
inline T abs(T x) {
  if constexpr (IsDual<T>) {
    using S = Scalar<T>;
    return {where(x.value < 0, -x.value, x.value),
            where(x.value < 0, -x.derivative, where(x.value > 0, x.derivative, S(0)))};
  } else if constexpr (std::is_integral_v<T>) {
    return x < 0 ? -x : x;
  } else {
    return std::bit_cast<T>(std::bit_cast<BitsOf<T>>(x) & std::numeric_limits<BitsOf<T>>::max());
  }
}
/// The larger and the smaller of two numbers, of which one may be a score and one a constant. If both are
/// equal, the derivative is that of the first. If `b` is NaN, the result is `a`.
template <class T>
inline T maximum(T a, T b) {
  return where(value_of(a) < value_of(b), b, a);
}
template <class T>
inline T minimum(T a, T b) {
  return where(value_of(b) < value_of(a), b, a);
}
template <class A, class B>
requires Mixed<A, B>
inline Common<A, B> maximum(A a, B b) {
  return maximum(as<Common<A, B>>(a), as<Common<A, B>>(b));
}
template <class A, class B>
requires Mixed<A, B>
inline Common<A, B> minimum(A a, B b) {
  return minimum(as<Common<A, B>>(a), as<Common<A, B>>(b));
}
/// x cut to [low, high]. The derivative is 0 outside.
template <class T, class Low, class High>
inline auto clamp(T x, Low low, High high) {
  return minimum(maximum(x, low), high);
}
template <class T>
inline T square(T x) {
  return x * x;
}
/// -1, 0 or 1; NaN for NaN. Its derivative is 0 everywhere.
template <class T>
inline T sign(T x) {
  using S = Scalar<T>;
  const S v = value_of(x);
  return T(where(v > S(0), S(1), where(v < S(0), S(-1), v)));
}
/// The largest whole number that is not above x. The derivative is 0 everywhere, also for ceil and round.
template <class T>
inline T floor(T x) {
  using S = Scalar<T>;
  const S v = value_of(x);
  // With m mantissa bits, adding and subtracting 1.5·2^m rounds to a whole number, exactly for |x| < 2^(m-1).
  // From 2^m on every number is whole.
  constexpr S magic = sizeof(S) == 8 ? S(6755399441055744.0) : S(12582912.0),
              whole = sizeof(S) == 8 ? S(0x1p51) : S(0x1p22);
  const S inside = where(elementwise::abs(v) < whole, v, S(0));
  const S nearest = (inside + magic) - magic;
  const S below = where(nearest > inside, nearest - S(1), nearest);
  // Between `whole` and 2·whole a number may end in a half: drop the last bit.
  const S high = std::bit_cast<S>(std::bit_cast<BitsOf<S>>(v) & ~BitsOf<S>(1));
  const S cut = where((v < S(0)) & (high != v), high - S(1), high);
  return T(where(elementwise::abs(v) < whole, below, where(elementwise::abs(v) < S(2) * whole, cut, v)));
}
/// The smallest whole number that is not below x.
template <class T>
inline T ceil(T x) {
  return T(-value_of(elementwise::floor(-value_of(x))));
}
/// floor(x + 1/2): the nearest whole number, halves upwards.
template <class T>
inline T round(T x) {
  using S = Scalar<T>;
  const S v = value_of(x), below = value_of(elementwise::floor(v));
  return T(where(v - below >= S(0.5), below + S(1), below));
}

}  // namespace fovea::elementwise

#include "fovea/attention/elementwise_angle.h"  // sin, cos
#include "fovea/attention/elementwise_power.h"  // sqrt, pow

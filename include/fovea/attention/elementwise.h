// Arithmetic that a score mod is written in: float, double, and dual numbers over them, in code without
// branches or calls, so that a loop over scores becomes vector instructions at plain -O2 (libm's functions do
// not).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace fovea::elementwise {

/// value + derivative·ε with ε² = 0: carries one derivative through an expression.
template <class T>
struct Dual {
  T value{}, derivative{};
  Dual() = default;
  Dual(T v) : value(v) {}  // NOLINT(google-explicit-constructor): a constant among dual numbers
  Dual(T v, T d) : value(v), derivative(d) {}
};

template <class T>
struct ScalarOf {
  using type = T;
};
template <class T>
struct ScalarOf<Dual<T>> {
  using type = T;
};
template <class T>
using Scalar = typename ScalarOf<T>::type;

template <class T>
concept IsDual = !std::is_same_v<Scalar<T>, T>;
template <class N, class T>
concept Constant = std::is_arithmetic_v<N> && !std::is_same_v<N, Dual<T>>;

// clang-format off
template <class T> inline Dual<T> operator-(Dual<T> a) { return {-a.value, -a.derivative}; }
template <class T> inline Dual<T> operator+(Dual<T> a, Dual<T> b) { return {a.value + b.value, a.derivative + b.derivative}; }
template <class T> inline Dual<T> operator-(Dual<T> a, Dual<T> b) { return {a.value - b.value, a.derivative - b.derivative}; }
template <class T> inline Dual<T> operator*(Dual<T> a, Dual<T> b) { return {a.value * b.value, a.derivative * b.value + a.value * b.derivative}; }
template <class T> inline Dual<T> operator/(Dual<T> a, Dual<T> b) { return {a.value / b.value, (a.derivative - a.value / b.value * b.derivative) / b.value}; }
template <class T, Constant<T> N> inline Dual<T> operator+(Dual<T> a, N b) { return {a.value + T(b), a.derivative}; }
template <class T, Constant<T> N> inline Dual<T> operator-(Dual<T> a, N b) { return {a.value - T(b), a.derivative}; }
template <class T, Constant<T> N> inline Dual<T> operator*(Dual<T> a, N b) { return {a.value * T(b), a.derivative * T(b)}; }
template <class T, Constant<T> N> inline Dual<T> operator/(Dual<T> a, N b) { return {a.value / T(b), a.derivative / T(b)}; }
template <class T, Constant<T> N> inline Dual<T> operator+(N a, Dual<T> b) { return {T(a) + b.value, b.derivative}; }
template <class T, Constant<T> N> inline Dual<T> operator-(N a, Dual<T> b) { return {T(a) - b.value, -b.derivative}; }
template <class T, Constant<T> N> inline Dual<T> operator*(N a, Dual<T> b) { return {T(a) * b.value, T(a) * b.derivative}; }
template <class T, Constant<T> N> inline Dual<T> operator/(N a, Dual<T> b) { return {T(a) / b.value, -T(a) * b.derivative / (b.value * b.value)}; }
// clang-format on

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;

/// condition ? a : b; both are computed. By bits: GCC moves the arithmetic of a ?: into its arms, and then
/// will not vectorise arms that might trap.
template <class T>
requires std::is_floating_point_v<T>
inline T where(bool condition, T a, T b) {
  const auto mask = static_cast<BitsOf<T>>(-static_cast<BitsOf<T>>(condition));
  return std::bit_cast<T>(
      static_cast<BitsOf<T>>((std::bit_cast<BitsOf<T>>(a) & mask) | (std::bit_cast<BitsOf<T>>(b) & ~mask)));
}
template <class T>
inline Dual<T> where(bool condition, Dual<T> a, Dual<T> b) {
  return {where(condition, a.value, b.value), where(condition, a.derivative, b.derivative)};
}
template <class T>
inline Scalar<T> value_of(T x) {
  if constexpr (IsDual<T>)
    return x.value;
  else
    return x;
}

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
  using Unsigned = std::make_unsigned_t<Bits>;  // wraps for NaN, whose scale does not matter
  const Unsigned exponent =
      std::bit_cast<Unsigned>(shifted) - std::bit_cast<Unsigned>(magic) + Unsigned(wide ? 1023 : 127);
  const T scale = std::bit_cast<T>(static_cast<Unsigned>(exponent << mantissa));
  const T result = p * scale;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  return where(x < low, T(0), where(x > high, infinity, result));
}

/// tanh x: relative error below 3e-7 (6e-16 in double), near 0 too, where a soft cap of small scores lies.
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

/// ln x for positive, normal x: relative error below 3e-7 (1e-15 in double), absolute near 1. What comes of
/// other x is not defined.
template <class T>
requires std::is_floating_point_v<T>
inline T log(T x) {
  constexpr bool wide = sizeof(T) == 8;
  using Bits = std::conditional_t<wide, std::int64_t, std::int32_t>;
  constexpr int mantissa = wide ? 52 : 23;
  // x = 2^n · m with m in [sqrt(1/2), sqrt(2)); ln m by 2·artanh((m - 1) / (m + 1)).
  constexpr Bits root = std::bit_cast<Bits>(T(0.7071067811865476));
  using Unsigned = std::make_unsigned_t<Bits>;  // wraps for what is no number to take the logarithm of
  const Bits bits = static_cast<Bits>(std::bit_cast<Unsigned>(x) - static_cast<Unsigned>(root));
  const Bits n = bits >> mantissa;
  const T m = std::bit_cast<T>(static_cast<Bits>((bits & ((Bits(1) << mantissa) - 1)) + root));
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
  return T(n) * T(0.6931471805599453) + T(2) * f * p;
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
/// |x|; its derivative at 0 is taken as 0.
template <class T>
inline T abs(T x) {
  if constexpr (IsDual<T>) {
    using S = Scalar<T>;
    return {where(x.value < 0, -x.value, x.value),
            where(x.value < 0, -x.derivative, where(x.value > 0, x.derivative, S(0)))};
  } else {
    return where(x < 0, -x, x);
  }
}
template <class T>
inline T maximum(T a, T b) {
  return where(value_of(a) < value_of(b), b, a);
}
template <class T>
inline T minimum(T a, T b) {
  return where(value_of(b) < value_of(a), b, a);
}

}  // namespace fovea::elementwise

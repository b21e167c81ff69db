// Dual numbers, which carry the derivative of a score mod, and `where`, a choice without a branch.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace fovea::elementwise {

/// Makes std::exp(score) in a mod fail with one readable error. If the score is a dual number, only the
/// overload of a libm function for long double fits, and it stops at the sentence below. A conversion to
/// float or double would make `condition ? score : 0.0` ambiguous. Without any conversion the compiler prints
/// a page of overloads that do not fit.
struct NotForLibm {
  template <class L>
  requires std::is_same_v<L, long double>
  operator L() const {  // NOLINT(google-explicit-constructor)
    static_assert(!std::is_same_v<L, long double>,
                  "a mod calls a function of libm, which has no derivative and does not vectorise: write "
                  "elementwise::exp(score) for std::exp(score), and likewise for the others");
    return 0;
  }
};

/// value + derivative·ε with ε² = 0: carries one derivative through an expression.
template <class T>
struct Dual : NotForLibm {
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
// Comparisons compare the values, as for plain numbers.
template <class T> inline bool operator==(Dual<T> a, Dual<T> b) { return a.value == b.value; }
template <class T> inline bool operator<(Dual<T> a, Dual<T> b) { return a.value < b.value; }
template <class T> inline bool operator>(Dual<T> a, Dual<T> b) { return a.value > b.value; }
template <class T> inline bool operator<=(Dual<T> a, Dual<T> b) { return a.value <= b.value; }
template <class T> inline bool operator>=(Dual<T> a, Dual<T> b) { return a.value >= b.value; }
template <class T, Constant<T> N> inline bool operator==(Dual<T> a, N b) { return a.value == T(b); }
template <class T, Constant<T> N> inline bool operator<(Dual<T> a, N b) { return a.value < T(b); }
template <class T, Constant<T> N> inline bool operator>(Dual<T> a, N b) { return a.value > T(b); }
template <class T, Constant<T> N> inline bool operator<=(Dual<T> a, N b) { return a.value <= T(b); }
template <class T, Constant<T> N> inline bool operator>=(Dual<T> a, N b) { return a.value >= T(b); }
template <class T, Constant<T> N> inline bool operator<(N a, Dual<T> b) { return T(a) < b.value; }
template <class T, Constant<T> N> inline bool operator>(N a, Dual<T> b) { return T(a) > b.value; }
template <class T, Constant<T> N> inline bool operator<=(N a, Dual<T> b) { return T(a) <= b.value; }
template <class T, Constant<T> N> inline bool operator>=(N a, Dual<T> b) { return T(a) >= b.value; }
// clang-format on

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;

/// condition ? a : b; both are computed. Written with bit masks, because GCC moves the arithmetic of a ?:
/// into its arms and does not vectorise arms that might trap.
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
requires std::is_integral_v<T>
inline T where(bool condition, T a, T b) {
  return condition ? a : b;
}

// The common type of two different types: the dual number beside a constant, else the wider one.
template <class A, class B>
struct CommonOf {
  using type = std::common_type_t<A, B>;
};
template <class T, class N>
struct CommonOf<Dual<T>, N> {
  using type = Dual<T>;
};
template <class N, class T>
struct CommonOf<N, Dual<T>> {
  using type = Dual<T>;
};
template <class A, class B>
concept Mixed =
    !std::is_same_v<A, B> && ((std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) ||
                              (IsDual<A> && Constant<B, Scalar<A>>) || (IsDual<B> && Constant<A, Scalar<B>>));
template <class A, class B>
requires Mixed<A, B>
using Common = typename CommonOf<A, B>::type;
// A constant beside dual numbers is first converted to float or double.
template <class C, class N>
inline C as(N x) {
  if constexpr (IsDual<N>)
    return x;
  else
    return C(static_cast<Scalar<C>>(x));
}

/// A score and a constant: where(score < 0, score, 0.0).
template <class A, class B>
requires Mixed<A, B>
inline Common<A, B> where(bool condition, A a, B b) {
  return where(condition, as<Common<A, B>>(a), as<Common<A, B>>(b));
}
template <class T>
inline Scalar<T> value_of(T x) {
  if constexpr (IsDual<T>)
    return x.value;
  else
    return x;
}

}  // namespace fovea::elementwise

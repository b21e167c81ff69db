// sin and cos, a part of elementwise.h, which includes this file.
#pragma once

#include "fovea/attention/elementwise.h"

namespace fovea::elementwise {

/// The largest |x| for which sin and cos give a number, about 1.07e9. Beyond it they give NaN: quarter turns
/// are counted in 30 bits (below), and a wrong number would not be noticed.
inline constexpr double largest_angle = 0x1p30;

// x = quarter·pi/2 + remainder + low. |remainder| exceeds pi/4 by no more than the rounding of x·2/pi.
struct Turned {
  double remainder, low;
  std::int64_t quarter;
};

// Splits pi/2 into three parts of 23 bits and one of 53. `quarter` has at most 30 bits, so its products with
// the first three parts are exact. The first two differences are exact too: x and the products are multiples
// of 2^-22, 2^-46 and 2^-69, and each difference has at most 53 bits above its multiple. `low` takes the
// rounding errors of the later steps. Computed in double for both types: floats would need as many parts for
// a range of 2^13.
inline Turned turn(double x) {
  constexpr double magic = 6755399441055744.0;
  const double shifted = x * 0.6366197723675814 + magic, quarter = shifted - magic;
  const double first = x - quarter * 0x1.921fb4p+0, second = first - quarter * 0x1.4442dp-24;
  const double third = quarter * 0x1.846988p-48, coarse = second - third;
  const double rest = ((second - coarse) - third) - quarter * 0x1.8cc51701b839ap-72;
  const double remainder = coarse + rest, back = remainder - coarse;
  const double low = (coarse - (remainder - back)) + (rest - back);  // Knuth's sum: either term may be the
                                                                     // larger
  return {remainder, low, std::bit_cast<std::int64_t>(shifted)};
}

// Taylor polynomials of sin and cos on [-pi/4, pi/4] without their first term. In double they go to degrees
// 17 and 16 (the next terms are 9e-20 and 2e-18), in float to 9 and 10 (2e-9 and 1e-10).
template <class T>
inline T sine_beside(T z) {
  T p;
  if constexpr (sizeof(T) == 8) {
    p = T(1.0 / 355687428096000.0);
    p = p * z - T(1.0 / 1307674368000.0);
    p = p * z + T(1.0 / 6227020800.0);
    p = p * z - T(1.0 / 39916800.0);
    p = p * z + T(1.0 / 362880.0);
  } else {
    p = T(1.0 / 362880.0);
  }
  p = p * z - T(1.0 / 5040.0);
  p = p * z + T(1.0 / 120.0);
  return p * z - T(1.0 / 6.0);
}
template <class T>
inline T cosine_beside(T z) {
  T p;
  if constexpr (sizeof(T) == 8) {
    p = T(1.0 / 20922789888000.0);
    p = p * z - T(1.0 / 87178291200.0);
    p = p * z + T(1.0 / 479001600.0);
    p = p * z - T(1.0 / 3628800.0);
  } else {
    p = T(-1.0 / 3628800.0);
  }
  p = p * z + T(1.0 / 40320.0);
  p = p * z - T(1.0 / 720.0);
  return p * z + T(1.0 / 24.0);
}

// sin(x + ahead·pi/2).
template <class T>
inline T sine_ahead(T x, int ahead) {
  const Turned turned = turn(static_cast<double>(x));
  const auto quarter = static_cast<BitsOf<T>>(turned.quarter + ahead);
  const T r = static_cast<T>(turned.remainder), low = static_cast<T>(turned.low), z = r * r;
  const T sine = r + (r * z * sine_beside(z) + low);
  const T cosine = T(1) - (z * T(0.5) - (z * z * cosine_beside(z) - r * low));
  const T chosen = where((quarter & 1) != 0, cosine, sine);
  const T result = where((quarter & 2) != 0, -chosen, chosen);
  return where(elementwise::abs(x) <= T(largest_angle), result, std::numeric_limits<T>::quiet_NaN());
}

/// sin x for |x| <= largest_angle. The absolute error is below 1e-7 (2e-16 in double). The relative error is
/// below 2e-7; in double it is below 4e-16 for |x| < 1e5, even near a multiple of pi.
template <class T>
requires std::is_floating_point_v<T>
inline T sin(T x) {
  return sine_ahead(x, 0);
}
/// cos x, with the same errors.
template <class T>
requires std::is_floating_point_v<T>
inline T cos(T x) {
  return sine_ahead(x, 1);
}
template <class T>
inline Dual<T> sin(Dual<T> x) {
  return {elementwise::sin(x.value), elementwise::cos(x.value) * x.derivative};
}
template <class T>
inline Dual<T> cos(Dual<T> x) {
  return {elementwise::cos(x.value), -elementwise::sin(x.value) * x.derivative};
}

}  // namespace fovea::elementwise

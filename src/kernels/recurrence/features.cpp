#include "kernels/recurrence/features.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/features.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/gates-inl.h"
#include "kernels/simd/best.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// to = f(a, b), whole vectors first, and the rest as one vector in a buffer. `to` may be a or b.
template <class T, class F>
HWY_INLINE void MapPairs(const T* a, const T* b, int64_t count, T* to, F f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(f(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  if (i == count) return;
  alignas(64) T rest_a[hn::MaxLanes(d)] = {}, rest[hn::MaxLanes(d)] = {};
  for (int64_t j = i; j < count; ++j) {
    rest_a[j - i] = a[j];
    rest[j - i] = b[j];
  }
  hn::Store(f(d, hn::Load(d, rest_a), hn::Load(d, rest)), d, rest);
  for (int64_t j = i; j < count; ++j) to[j] = rest[j - i];
}
/// to = f(from, from).
template <class T, class F>
HWY_INLINE void MapElements(const T* from, int64_t count, T* to, F f) {
  MapPairs(from, from, count, to, f);
}

template <class T>
void EluPlusOne(const T* x, int64_t count, T* to) {
  MapElements(x, count, to, [](auto d, auto element, auto) { return EluAndOne(d, element); });
}
template <class T>
void TimesEluSlope(const T* x, const T* derivative, int64_t count, T* to) {
  MapPairs(x, derivative, count, to,
           [](auto d, auto element, auto factor) { return hn::Mul(factor, EluSlope(d, element)); });
}
template <class T>
T DivideBackward(const T* derivative, const T* quotient, T divisor, int64_t count, T* to) {
  const hn::ScalableTag<T> tag;
  auto sum = hn::Zero(tag);
  MapPairs(derivative, quotient, count, to, [&](auto d, auto x, auto y) HWY_ATTR {
    sum = hn::MulAdd(x, y, sum);
    return hn::Div(x, hn::Set(d, divisor));
  });
  return hn::GetLane(hn::SumOfLanes(tag, sum));
}

template <class T>
void Divide(const T* from, T divisor, int64_t count, T* to) {
  MapElements(from, count, to,
              [=](auto d, auto element, auto) { return hn::Div(element, hn::Set(d, divisor)); });
}

template <class T>
void Exponentials(T shift, T factor, int64_t count, T* x) {
  MapElements(x, count, x, [=](auto d, auto element, auto) {
    const auto bound = hn::Set(d, sizeof(T) == 8 ? T(709) : T(88));
    const auto exponent = AtMost(bound, hn::Sub(element, hn::Set(d, shift)));
    return hn::Mul(hn::Set(d, factor), Exp(d, exponent));
  });
}

/// Four maxima, so that a comparison need not wait for the one before it.
template <class T>
T Largest(const T* x, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto larger = [&](auto most, const T* from) HWY_ATTR {
    const auto element = hn::LoadU(d, from);
    return hn::IfThenElse(hn::Gt(element, most), element, most);
  };
  auto m0 = hn::Set(d, static_cast<T>(-HUGE_VAL)), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    m0 = larger(m0, x + i);
    m1 = larger(m1, x + i + lanes);
    m2 = larger(m2, x + i + 2 * lanes);
    m3 = larger(m3, x + i + 3 * lanes);
  }
  for (; i + lanes <= count; i += lanes) m0 = larger(m0, x + i);
  T most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
  for (; i < count; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

float LargestF32(const float* x, int64_t count) {
  return Largest(x, count);
}
double LargestF64(const double* x, int64_t count) {
  return Largest(x, count);
}
void MultiplyRowsF32(const float* a, const float* b, int64_t rows, int64_t inner, int64_t columns, float* c) {
  Product<false, float>(rows, columns, {a, inner, 1, b, columns, c, columns, inner});
}
void MultiplyRowsF64(const double* a, const double* b, int64_t rows, int64_t inner, int64_t columns,
                     double* c) {
  Product<false, double>(rows, columns, {a, inner, 1, b, columns, c, columns, inner});
}
void ExponentialsF32(float shift, float factor, int64_t count, float* x) {
  Exponentials(shift, factor, count, x);
}
void ExponentialsF64(double shift, double factor, int64_t count, double* x) {
  Exponentials(shift, factor, count, x);
}
void EluPlusOneF32(const float* x, int64_t count, float* to) {
  EluPlusOne(x, count, to);
}
void EluPlusOneF64(const double* x, int64_t count, double* to) {
  EluPlusOne(x, count, to);
}
void DivideF32(const float* from, float divisor, int64_t count, float* to) {
  Divide(from, divisor, count, to);
}
void DivideF64(const double* from, double divisor, int64_t count, double* to) {
  Divide(from, divisor, count, to);
}
void TimesEluSlopeF32(const float* x, const float* d, int64_t count, float* to) {
  TimesEluSlope(x, d, count, to);
}
void TimesEluSlopeF64(const double* x, const double* d, int64_t count, double* to) {
  TimesEluSlope(x, d, count, to);
}
float DivideBackwardF32(const float* d, const float* quotient, float divisor, int64_t count, float* to) {
  return DivideBackward(d, quotient, divisor, count, to);
}
double DivideBackwardF64(const double* d, const double* quotient, double divisor, int64_t count, double* to) {
  return DivideBackward(d, quotient, divisor, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

void elu_plus_one(const float* x, std::int64_t count, float* to) {
  FOVEA_BEST(EluPlusOneF32)(x, count, to);
}
void elu_plus_one(const double* x, std::int64_t count, double* to) {
  FOVEA_BEST(EluPlusOneF64)(x, count, to);
}
void divide(const float* from, float divisor, std::int64_t count, float* to) {
  FOVEA_BEST(DivideF32)(from, divisor, count, to);
}
void divide(const double* from, double divisor, std::int64_t count, double* to) {
  FOVEA_BEST(DivideF64)(from, divisor, count, to);
}
void times_elu_slope(const float* x, const float* d, std::int64_t count, float* to) {
  FOVEA_BEST(TimesEluSlopeF32)(x, d, count, to);
}
void times_elu_slope(const double* x, const double* d, std::int64_t count, double* to) {
  FOVEA_BEST(TimesEluSlopeF64)(x, d, count, to);
}
float divide_backward(const float* d, const float* quotient, float divisor, std::int64_t count, float* to) {
  return FOVEA_BEST(DivideBackwardF32)(d, quotient, divisor, count, to);
}
double divide_backward(const double* d, const double* quotient, double divisor, std::int64_t count,
                       double* to) {
  return FOVEA_BEST(DivideBackwardF64)(d, quotient, divisor, count, to);
}

void multiply_rows(const float* a, const float* b, std::int64_t rows, std::int64_t inner,
                   std::int64_t columns, float* c) {
  FOVEA_BEST(MultiplyRowsF32)(a, b, rows, inner, columns, c);
}
void multiply_rows(const double* a, const double* b, std::int64_t rows, std::int64_t inner,
                   std::int64_t columns, double* c) {
  FOVEA_BEST(MultiplyRowsF64)(a, b, rows, inner, columns, c);
}
void exponentials(float shift, float factor, std::int64_t count, float* x) {
  FOVEA_BEST(ExponentialsF32)(shift, factor, count, x);
}
void exponentials(double shift, double factor, std::int64_t count, double* x) {
  FOVEA_BEST(ExponentialsF64)(shift, factor, count, x);
}
float largest(const float* x, std::int64_t count) {
  return FOVEA_BEST(LargestF32)(x, count);
}
double largest(const double* x, std::int64_t count) {
  return FOVEA_BEST(LargestF64)(x, count);
}

}  // namespace fovea::kernels
#endif

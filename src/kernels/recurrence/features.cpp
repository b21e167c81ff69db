#include "kernels/recurrence/features.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/features.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// x = f(from, x), whole vectors first, and the rest as one vector in a buffer.
template <class T, class F>
HWY_INLINE void MapElements(const T* from, int64_t count, T* x, F f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(f(d, hn::LoadU(d, from + i), hn::LoadU(d, x + i)), d, x + i);
  if (i == count) return;
  alignas(64) T rest_from[hn::MaxLanes(d)] = {}, rest[hn::MaxLanes(d)] = {};
  for (int64_t j = i; j < count; ++j) {
    rest_from[j - i] = from[j];
    rest[j - i] = x[j];
  }
  hn::Store(f(d, hn::Load(d, rest_from), hn::Load(d, rest)), d, rest);
  for (int64_t j = i; j < count; ++j) x[j] = rest[j - i];
}

/// e^x below 0, 1 from 0 on.
template <class D, class V>
HWY_INLINE V Slope(D d, V x) {
  return Exp(d, hn::IfThenZeroElse(hn::Gt(x, hn::Zero(d)), x));
}

template <class T>
void EluPlusOne(int64_t count, T* x) {
  MapElements(x, count, x, [](auto d, auto element, auto) {
    return hn::Add(Slope(d, element), hn::IfThenZeroElse(hn::Lt(element, hn::Zero(d)), element));
  });
}
template <class T>
void TimesEluSlope(const T* x, int64_t count, T* derivative) {
  MapElements(x, count, derivative,
              [](auto d, auto element, auto factor) { return hn::Mul(factor, Slope(d, element)); });
}

void EluPlusOneF32(int64_t count, float* x) {
  EluPlusOne(count, x);
}
void EluPlusOneF64(int64_t count, double* x) {
  EluPlusOne(count, x);
}
void TimesEluSlopeF32(const float* x, int64_t count, float* d) {
  TimesEluSlope(x, count, d);
}
void TimesEluSlopeF64(const double* x, int64_t count, double* d) {
  TimesEluSlope(x, count, d);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(EluPlusOneF32);
HWY_EXPORT(EluPlusOneF64);
HWY_EXPORT(TimesEluSlopeF32);
HWY_EXPORT(TimesEluSlopeF64);

void elu_plus_one(std::int64_t count, float* x) {
  HWY_DYNAMIC_DISPATCH(EluPlusOneF32)(count, x);
}
void elu_plus_one(std::int64_t count, double* x) {
  HWY_DYNAMIC_DISPATCH(EluPlusOneF64)(count, x);
}
void times_elu_slope(const float* x, std::int64_t count, float* d) {
  HWY_DYNAMIC_DISPATCH(TimesEluSlopeF32)(x, count, d);
}
void times_elu_slope(const double* x, std::int64_t count, double* d) {
  HWY_DYNAMIC_DISPATCH(TimesEluSlopeF64)(x, count, d);
}

}  // namespace fovea::kernels
#endif

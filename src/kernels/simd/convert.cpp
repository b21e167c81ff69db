#include "kernels/simd/convert.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/convert.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

void Widen(const float16* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* halves = reinterpret_cast<const hwy::float16_t*>(from);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(LoadWide(d, halves + i), d, to + i);
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void Narrow(const float* from, int64_t count, float16* to) {
  int64_t i = 0;
#if FOVEA_NATIVE_F16
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto* halves = reinterpret_cast<hwy::float16_t*>(to);
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, from + i)), d16, halves + i);
#endif
  for (; i < count; ++i) to[i] = float16(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

void widen(const float16* from, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(Widen)(from, count, to);
}
void narrow(const float* from, std::int64_t count, float16* to) {
  HWY_DYNAMIC_DISPATCH(Narrow)(from, count, to);
}

}  // namespace fovea::kernels
#endif

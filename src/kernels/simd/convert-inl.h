// Rows of numbers from 16-bit types to f32 and back.
#if defined(FOVEA_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_CONVERT_INL_H_
#undef FOVEA_SIMD_CONVERT_INL_H_
#else
#define FOVEA_SIMD_CONVERT_INL_H_
#endif

#include "fovea/core/dtype.h"
#include "kernels/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE void Widen(const float16* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* halves = reinterpret_cast<const hwy::float16_t*>(from);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(LoadWide(d, halves + i), d, to + i);
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

HWY_INLINE void Narrow(const float* from, int64_t count, float16* to) {
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

HWY_INLINE void Widen(const bfloat16* from, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* halves = reinterpret_cast<const uint16_t*>(from);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::PromoteTo(du, hn::LoadU(d16, halves + i));
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(bits)), d, to + i);
  }
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

// As bfloat16's constructor rounds.
HWY_INLINE void Narrow(const float* from, int64_t count, bfloat16* to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto* halves = reinterpret_cast<uint16_t*>(to);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, from + i);
    const auto bits = hn::BitCast(du, x), high = hn::ShiftRight<16>(bits);
    const auto even = hn::And(high, hn::Set(du, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), even));
    const auto quiet = hn::Or(high, hn::Set(du, 0x40u));
    const auto half = hn::IfThenElse(hn::RebindMask(du, hn::Ne(x, x)), quiet, rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, half)), d16, halves + i);
  }
  for (; i < count; ++i) to[i] = bfloat16(from[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

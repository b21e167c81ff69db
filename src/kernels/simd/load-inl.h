// Loads of elements as they are stored: 16-bit numbers are widened in the register.
#if defined(FOVEA_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_LOAD_INL_H_
#undef FOVEA_SIMD_LOAD_INL_H_
#else
#define FOVEA_SIMD_LOAD_INL_H_
#endif

#include "kernels/simd/math-inl.h"

/// Whether Highway 1.0 converts f16 by the processor's instructions. Its other conversions turn infinity and
/// NaN into finite numbers, and do not round.
#undef FOVEA_NATIVE_F16
#if HWY_ARCH_X86
#define FOVEA_NATIVE_F16 (HWY_TARGET <= HWY_AVX2)
#else
#define FOVEA_NATIVE_F16 (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)
#endif

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class D, class S>
HWY_INLINE hn::Vec<D> LoadWide(D d, const S* from) {
  if constexpr (sizeof(S) == sizeof(hn::TFromD<D>)) {
    return hn::LoadU(d, from);
#if !FOVEA_NATIVE_F16
  } else if constexpr (hwy::IsSame<S, hwy::float16_t>()) {
    const hn::RebindToUnsigned<D> du;
    const auto bits =
        hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
    const auto wild = hn::Eq(hn::And(bits, hn::Set(du, 0x7c00u)), hn::Set(du, 0x7c00u));
    // The exponent is 112 too small, or the number is subnormal: one product corrects both.
    const auto number = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
    const auto whole = hn::Or(number, hn::IfThenElseZero(wild, hn::Set(du, 0x7f800000u)));
    return hn::BitCast(d, hn::Or(whole, hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)))));
#endif
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<S, D>(), from));
  }
}
/// Loads the first n lanes, zeros behind. Reads no further.
template <class D, class S>
HWY_INLINE hn::Vec<D> LoadWideN(D d, const S* from, int64_t n) {
  // Where the CPU has loads under a mask. Copied one by one, the last 8 elements of rows of 24 took most of a
  // decoding step.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(S) == sizeof(hn::TFromD<D>))
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, from);
#endif
  alignas(64) S lanes[hn::MaxLanes(D())];
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(S) == 2) {
    const hn::Rebind<uint16_t, D> d16;
    hn::StoreU(
        hn::MaskedLoad(hn::FirstN(d16, static_cast<size_t>(n)), d16, reinterpret_cast<const uint16_t*>(from)),
        d16, reinterpret_cast<uint16_t*>(lanes));
    return LoadWide(d, lanes);
  }
#endif
  for (int64_t i = 0; i < static_cast<int64_t>(hn::Lanes(d)); ++i) {
    if (i < n)
      hwy::CopyBytes<sizeof(S)>(from + i, lanes + i);
    else
      hwy::ZeroBytes<sizeof(S)>(lanes + i);
  }
  return LoadWide(d, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// Masks as bits, lane 0 lowest.
#if defined(FOVEA_SIMD_MASK_BITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_MASK_BITS_INL_H_
#undef FOVEA_SIMD_MASK_BITS_INL_H_
#else
#define FOVEA_SIMD_MASK_BITS_INL_H_
#endif

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The bits of a mask, lane 0 lowest.
template <class D, class M>
HWY_INLINE uint64_t BitsOfMask([[maybe_unused]] D d, M mask) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return mask.raw;
#else
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  uint64_t bits;
  hwy::CopyBytes<8>(bytes, &bits);
  return bits;
#endif
}
/// The mask of the lowest bits, as many as there are lanes.
template <class D>
HWY_INLINE hn::Mask<D> MaskOfBits([[maybe_unused]] D d, uint64_t bits) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  using Raw = decltype(hn::Mask<D>::raw);
  return hn::Mask<D>{static_cast<Raw>(bits)};
#else
  uint8_t bytes[8];
  hwy::CopyBytes<8>(&bits, bytes);
  return hn::LoadMaskBits(d, bytes);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

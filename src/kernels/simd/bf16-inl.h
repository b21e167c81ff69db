// bf16 numbers as the upper halves of f32 numbers.
#if defined(FOVEA_SIMD_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_BF16_INL_H_
#undef FOVEA_SIMD_BF16_INL_H_
#else
#define FOVEA_SIMD_BF16_INL_H_
#endif

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class D32>
using UnsignedOf = hn::RebindToUnsigned<D32>;

/// f32 to the nearest bf16, ties to even; NaN stays NaN. The result is in the low halves.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<UnsignedOf<D>> NearestBf16([[maybe_unused]] D d, V x) {
  const UnsignedOf<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), even));
  return hn::IfThenElse(hn::RebindMask(du, hn::Ne(x, x)), hn::Set(du, 0x7fc0u), rounded);
}
template <class D, class VU>
HWY_INLINE hn::Vec<D> WideBf16(D d, VU low_halves) {
  return hn::BitCast(d, hn::ShiftLeft<16>(low_halves));
}
/// Stores u32 numbers below 2^16 as u16.
template <class DU, class VU = hn::Vec<DU>>
HWY_INLINE void StoreHalves([[maybe_unused]] DU du, VU x, uint16_t* to) {
  const hn::Rebind<uint16_t, DU> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<DU>(), x)), d16, to);
}

/// Pairs of rows: to[i][c] = from[2i][c] | from[2i + 1][c] << 16. The columns are a multiple of 16.
inline HWY_NOINLINE void ZipRows(const uint16_t* from, int64_t rows, int64_t columns, int64_t from_stride,
                                 uint32_t* to, int64_t to_stride) {
  const hn::CappedTag<uint32_t, 16> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; r += 2) {
    const uint16_t *even = from + r * from_stride, *odd = even + from_stride;
    for (int64_t c = 0; c < columns; c += lanes) {
      const auto low = hn::PromoteTo(d, hn::LoadU(d16, even + c)),
                 high = hn::PromoteTo(d, hn::LoadU(d16, odd + c));
      hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), d, to + r / 2 * to_stride + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

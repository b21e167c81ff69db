// Dot products of pairs of bf16 numbers, and roundings to bf16. For AVX-512 these are the instructions of
// AVX512_BF16, in assembly. The target that Highway 1.0 compiles this for lacks them, and GCC does not inline
// a function into one that has fewer instructions. Elsewhere numbers are widened, which is for checks.
#if defined(FOVEA_SIMD_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_DOTS_INL_H_
#undef FOVEA_SIMD_DOTS_INL_H_
#else
#define FOVEA_SIMD_DOTS_INL_H_
#endif

#include "kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
/// sums[i] += a[2i]·b[2i] + a[2i + 1]·b[2i + 1] for vectors of f32 sums and of bf16 numbers. Subnormal
/// numbers are taken for 0.
template <class Sums, class Pairs>
HWY_INLINE void AddDots(Sums& sums, Pairs a, Pairs b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
}

/// Pairs of bf16 numbers: element i holds low[i], rounded, in its lower half and high[i] in its upper one.
template <class V>
HWY_INLINE hn::Vec<UnsignedOf<hn::ScalableTag<float>>> PairsOf(V low, V high) {
  __m512i halves;  // those of `low`, then those of `high`
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(high.raw), "v"(low.raw));
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return {_mm512_permutexvar_epi16(order, halves)};
}
/// Numbers, rounded to bf16.
template <class V>
HWY_INLINE void StoreRounded(V x, uint16_t* to) {
  __m256i halves;
  asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(x.raw));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}
#else
template <class V>
HWY_INLINE void AddDots(V& sums, V a, V b) {
  const hn::DFromV<V> d;
  const UnsignedOf<decltype(d)> du;
  const auto low = [&](V x) HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(du, x))); };
  const auto high = [&](V x) HWY_ATTR {
    return hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0xffff0000u)));
  };
  sums = hn::MulAdd(high(a), high(b), hn::MulAdd(low(a), low(b), sums));
}
template <class V>
HWY_INLINE hn::Vec<UnsignedOf<hn::DFromV<V>>> PairsOf(V low, V high) {
  const hn::DFromV<V> d;
  return hn::Or(NearestBf16(d, low), hn::ShiftLeft<16>(NearestBf16(d, high)));
}
template <class V>
HWY_INLINE void StoreRounded(V x, uint16_t* to) {
  const hn::DFromV<V> d;
  StoreHalves(UnsignedOf<decltype(d)>(), NearestBf16(d, x), to);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

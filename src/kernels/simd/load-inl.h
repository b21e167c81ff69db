// Loads of elements as they are stored: 16-bit numbers are widened in the register.
#if defined(FOVEA_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_LOAD_INL_H_
#undef FOVEA_SIMD_LOAD_INL_H_
#else
#define FOVEA_SIMD_LOAD_INL_H_
#endif

#include <cstring>

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
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffu)),
               exponent = hn::And(bits, hn::Set(du, 0x7c00u));
    const auto wild = hn::Eq(exponent, hn::Set(du, 0x7c00u));
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 112u << 23));
    // Subnormal numbers as integers: one product for both kinds gave 0 where FlushSubnormals is on.
    const auto integer = hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), magnitude));
    const auto small = hn::BitCast(du, hn::Mul(integer, hn::Set(d, 0x1p-24f)));
    const auto number = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), small, normal);
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

/// An f32 number that was widened from bf16, or projected from such. LoadTwo reads it in the order of bf16,
/// so that a call has the same bits whether its keys are read in 16 bits or widened.
struct F32FromBf16 {
  float value;
};

/// Whether LoadTwo takes the elements at even places, and then those at odd ones. For bf16 that takes two
/// instructions where two vectors, one behind the other, take four.
template <class S>
inline constexpr bool kEvenThenOdd = HWY_TARGET != HWY_SCALAR &&
                                     (hwy::IsSame<S, hwy::bfloat16_t>() || hwy::IsSame<S, F32FromBf16>());

/// Loads two vectors of elements; their order is that of kEvenThenOdd.
template <class D, class S>
HWY_INLINE void LoadTwo(D d, const S* from, hn::Vec<D>& first, hn::Vec<D>& second) {
  if constexpr (hwy::IsSame<S, F32FromBf16>()) {
    if constexpr (kEvenThenOdd<S>)
      hn::LoadInterleaved2(d, &from->value, first, second);
    else
      LoadTwo(d, &from->value, first, second);
  } else if constexpr (kEvenThenOdd<S>) {
    const hn::RebindToUnsigned<D> du;
    const hn::Repartition<uint16_t, D> d16;
    const auto pairs = hn::BitCast(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
    first = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    second = hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xffff0000u)));
  } else {
    first = LoadWide(d, from);
    second = LoadWide(d, from + hn::Lanes(d));
  }
}
/// The same for the first n elements, zeros behind. Reads no further.
template <class D, class S>
HWY_INLINE void LoadTwoN(D d, const S* from, int64_t n, hn::Vec<D>& first, hn::Vec<D>& second) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  // By pairs under a mask. Copied to an array, the last 8 elements of bf16 rows of 24 took twice as long.
  if constexpr (hwy::IsSame<S, hwy::bfloat16_t>()) {
    const hn::RebindToUnsigned<D> du;
    auto pairs = hn::MaskedLoad(hn::FirstN(du, static_cast<size_t>(n / 2)), du,
                                reinterpret_cast<const uint32_t*>(from));
    if (n % 2 != 0) {
      uint16_t last;
      hwy::CopyBytes<2>(from + n - 1, &last);
      const auto its_lane = hn::Eq(hn::Iota(du, 0), hn::Set(du, static_cast<uint32_t>(n / 2)));
      pairs = hn::Or(pairs, hn::IfThenElseZero(its_lane, hn::Set(du, uint32_t{last})));
    }
    first = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    second = hn::BitCast(d, hn::And(pairs, hn::Set(du, 0xffff0000u)));
    return;
  }
#endif
  if constexpr (kEvenThenOdd<S> || hwy::IsSame<S, F32FromBf16>()) {
    alignas(64) S both[2 * hn::MaxLanes(D())] = {};
    std::memcpy(both, from, static_cast<size_t>(n) * sizeof(S));
    LoadTwo(d, both, first, second);
  } else {
    first = n >= lanes ? LoadWide(d, from) : LoadWideN(d, from, n);
    second = n > lanes ? LoadWideN(d, from + lanes, n - lanes) : hn::Zero(d);
  }
}

/// Puts rows of `width` elements, whole pairs of vectors, into the order of LoadTwo, and back.
template <class S, class T>
HWY_INLINE void Ravel(int64_t width, T* row) {
  if constexpr (kEvenThenOdd<S>) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < width; i += 2 * lanes) {
      hn::Vec<decltype(d)> even, odd;
      hn::LoadInterleaved2(d, row + i, even, odd);
      hn::StoreU(even, d, row + i);
      hn::StoreU(odd, d, row + i + lanes);
    }
  }
}
template <class S, class T>
HWY_INLINE void Unravel(int64_t width, T* row) {
  if constexpr (kEvenThenOdd<S>) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < width; i += 2 * lanes)
      hn::StoreInterleaved2(hn::LoadU(d, row + i), hn::LoadU(d, row + i + lanes), d, row + i);
  }
}

/// The length of a row of n elements, rounded up to whole pairs of vectors.
template <class T>
HWY_INLINE int64_t PaddedPairs(int64_t n) {
  return 2 * Padded<T>((n + 1) / 2);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

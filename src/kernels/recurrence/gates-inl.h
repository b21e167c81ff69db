// Functions of gates, by vectors: sigmoid, softplus, and the powers of 2 that decays are.
#if defined(FOVEA_RECURRENCE_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_GATES_INL_H_
#undef FOVEA_RECURRENCE_GATES_INL_H_
#else
#define FOVEA_RECURRENCE_GATES_INL_H_
#endif

#include "kernels/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// ExpByScaling (simd/math-inl.h) with the fraction taken from the whole number, which saves two
/// instructions.
HWY_INLINE __m512 ExpByRounding(__m512 x) {
  const auto constant = [](float value) { return _mm512_set1_ps(value); };
  const __mmask16 counts = _mm512_cmp_ps_mask(x, constant(-87.0f), _CMP_NLT_UQ);  // true for a NaN too
  const __m512 log2e = constant(1.44269502f), n = _mm512_roundscale_ps(_mm512_mul_ps(x, log2e), 0x00);
  const __m512 r = _mm512_fmadd_ps(x, constant(1.92596303e-8f), _mm512_fmsub_ps(x, log2e, n));
  __m512 p = _mm512_fmadd_ps(constant(0.00132647273f), r, constant(0.00967151299f));
  p = _mm512_fmadd_ps(p, r, constant(0.0555073358f));
  p = _mm512_fmadd_ps(p, r, constant(0.240222424f));
  p = _mm512_fmadd_ps(p, r, constant(0.693147004f));
  p = _mm512_fmadd_ps(p, r, constant(1.0f));
  return _mm512_maskz_scalef_ps(counts, p, n);
}
#endif

/// Exp for features and decays, of which a chunk has one for each element of its rows. By AVX2 with f32 the
/// polynomial is that of ExpByScaling (simd/math-inl.h), whose terms here do not wait for each other: 14
/// instructions, where Exp takes 18 that wait. The relative error is below 2.1e-7. x is at most 88.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V RowExp(D d, V x) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const auto constant = [&](float value) HWY_ATTR { return hn::Set(d, value); };
    const hn::RebindToSigned<D> di;
    // x / ln 2 in whole numbers and the rest, in which the multiply-add loses nothing of the product.
    const V log2e = constant(1.44269502f), magic = constant(12582912.0f),
            shifted = hn::MulAdd(x, log2e, magic),
            r = hn::MulAdd(x, constant(1.92596303e-8f), hn::MulSub(x, log2e, hn::Sub(shifted, magic))),
            square = hn::Mul(r, r), low = hn::MulAdd(r, constant(0.693147004f), constant(1.0f)),
            middle = hn::MulAdd(r, constant(0.0555073358f), constant(0.240222424f)),
            high = hn::MulAdd(r, constant(0.00132647273f), constant(0.00967151299f)),
            p = hn::MulAdd(square, hn::MulAdd(square, high, middle), low);
    // The bits of `magic` leave the exponent by the shift.
    const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
    return hn::IfThenZeroElse(hn::Lt(x, constant(-87.0f)), hn::Mul(p, hn::BitCast(d, power)));
  }
#endif
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64 && sizeof(hn::TFromD<D>) == 4) return V{ExpByRounding(x.raw)};
#endif
  return Exp(d, x);
}
/// Sums of gates in the unit of ExpOfGates. By AVX-512 they are binary logarithms, which saves three of the
/// eleven instructions of RowExp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AddGate([[maybe_unused]] D d, V gate, V sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64 && sizeof(hn::TFromD<D>) == 4)
    return hn::MulAdd(gate, hn::Set(d, 1.44269502f), sum);
#endif
  return hn::Add(gate, sum);
}
/// The decay of a sum of gates, with the polynomial of RowExp. By AVX-512 it is NaN for a sum of -infinity.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ExpOfGates(D d, V sum) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64 && sizeof(hn::TFromD<D>) == 4) {
    const auto constant = [](float value) { return _mm512_set1_ps(value); };
    const __m512 n = _mm512_roundscale_ps(sum.raw, 0x00), r = _mm512_sub_ps(sum.raw, n);
    __m512 p = _mm512_fmadd_ps(constant(0.00132647273f), r, constant(0.00967151299f));
    p = _mm512_fmadd_ps(p, r, constant(0.0555073358f));
    p = _mm512_fmadd_ps(p, r, constant(0.240222424f));
    p = _mm512_fmadd_ps(p, r, constant(0.693147004f));
    p = _mm512_fmadd_ps(p, r, constant(1.0f));
    return V{_mm512_scalef_ps(p, n)};
  }
#endif
  return RowExp(d, sum);
}
/// 1 / (1 + e^-x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1)), bound = hn::Set(d, sizeof(T) == 8 ? T(700) : T(87));
  return hn::Div(one, hn::Add(one, Exp(d, AtMost(bound, hn::Neg(x)))));
}
/// The derivative of elu: e^x below 0, 1 from 0 on.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V EluSlope(D d, V x) {
  return RowExp(d, AtMost(hn::Zero(d), x));
}
/// elu(x) + 1. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V EluAndOne(D d, V x) {
  return hn::Add(EluSlope(d, x), AtLeast(hn::Zero(d), x));
}
/// The derivative of x·σ(x), from x and σ(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SiluSlope(D d, V x, V sigmoid) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  return hn::Mul(sigmoid, hn::MulAdd(x, hn::Sub(one, sigmoid), one));
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + u) with u = e^-|x|, where ln(1 + u) = 2 artanh(s) with s = u / (2 + u).
/// s² <= 1/9, so 8 terms of the series leave 2e-9 in f32, and 17 leave 2e-18 in f64.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Softplus(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr int kTerms = sizeof(T) == 8 ? 17 : 8;
  const V u = Exp(d, hn::Neg(hn::Abs(x))), s = hn::Div(u, hn::Add(u, hn::Set(d, T(2)))),
          square = hn::Mul(s, s);
  V sum = hn::Set(d, T(2) / T(2 * kTerms - 1));
  _Pragma("GCC unroll 17") for (int k = kTerms - 1; k-- > 0;) sum =
      hn::MulAdd(sum, square, hn::Set(d, T(2) / T(2 * k + 1)));
  return hn::MulAdd(sum, s, AtLeast(hn::Zero(d), x));
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// As ExpByScaling of simd/math-inl.h, without its product by log2(e), whose rounding it also corrects.
HWY_INLINE __m512 PowerByScaling(__m512 x) {
  const auto constant = [](float value) { return _mm512_set1_ps(value); };
  const __mmask16 counts = _mm512_cmp_ps_mask(x, constant(-126.0f), _CMP_NLT_UQ);  // true for a NaN too
  const __m512 r = _mm512_reduce_ps(x, 0x00);  // x minus its nearest integer
  __m512 p = _mm512_fmadd_ps(constant(0.00132647273f), r, constant(0.00967151299f));
  p = _mm512_fmadd_ps(p, r, constant(0.0555073358f));
  p = _mm512_fmadd_ps(p, r, constant(0.240222424f));
  p = _mm512_fmadd_ps(p, r, constant(0.693147004f));
  p = _mm512_fmadd_ps(p, r, constant(1.0f));
  return _mm512_maskz_scalef_ps(counts, p, _mm512_roundscale_ps(x, 0x00));
}
#endif

/// 2^x for x <= 0, with a relative error below 2e-7 (4e-16); 0 where the result would be subnormal. NaN stays
/// NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V PowerOf2(D d, V x) {
  using T = hn::TFromD<D>;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4) return V{PowerByScaling(x.raw)};
#endif
  using TI = hn::TFromD<hn::RebindToSigned<D>>;
  const hn::RebindToSigned<D> di;
  constexpr bool kWide = sizeof(T) == 8;
  constexpr int kMantissa = kWide ? 52 : 23;
  constexpr TI kBias = kWide ? 1023 : 127;
  const auto vanishes = hn::Lt(x, hn::Set(d, kWide ? T(-1022) : T(-126)));
  const V magic = hn::Set(d, kWide ? T(6755399441055744.0) : T(12582912.0));
  const V shifted = hn::Add(x, magic);
  const V r = hn::Sub(x, hn::Sub(shifted, magic));  // exact, in [-1/2, 1/2]
  V p;
  if constexpr (kWide) {
    const V y = hn::Mul(r, hn::Set(d, T(0.69314718055994530942)));  // Taylor to degree 13, as Exp
    T factorial = T(6227020800.0);
    p = hn::Set(d, T(1) / factorial);
    for (int k = 12; k >= 0; --k) {
      factorial /= T(k + 1);
      p = hn::MulAdd(p, y, hn::Set(d, T(1) / factorial));
    }
  } else {
    p = hn::MulAdd(hn::Set(d, T(0.00132647273)), r, hn::Set(d, T(0.00967151299)));
    const T terms[] = {T(0.0555073358), T(0.240222424), T(0.693147004), T(1)};
    p = Horner(d, p, r, terms);
  }
  const auto exponent =
      hn::Add(hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic)), hn::Set(di, kBias));
  return hn::IfThenZeroElse(vanishes, hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<kMantissa>(exponent))));
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// AVX512_BF16's dot products of pairs of bf16 numbers: loads, products, and sums over the lanes of vectors.
#if defined(FOVEA_TILES_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_DOTS_INL_H_
#undef FOVEA_TILES_DOTS_INL_H_
#else
#define FOVEA_TILES_DOTS_INL_H_
#endif

#include "kernels/simd/dots-inl.h"
#include "kernels/tiles/chunk-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

using PairTag = hn::ScalableTag<uint16_t>;  // 32 elements, 16 pairs
using Pairs = hn::Vec<PairTag>;
using PairSums = hn::Vec<hn::ScalableTag<float>>;
constexpr int64_t kPairLanes = static_cast<int64_t>(hn::MaxLanes(PairTag()));

/// A bf16 number that is multiplied as it is, by AddDots. A hwy::bfloat16_t is widened instead.
struct DotBf16 {
  uint16_t bits;
};
/// A bf16 number that has been widened, for calls that ask for weights too. The results have the same bits.
struct WidenedBf16 {
  float value;
};
template <class S>
concept Dots = hwy::IsSame<S, DotBf16>() || hwy::IsSame<S, WidenedBf16>();

/// AddDots with one pair of `b` for all lanes.
HWY_INLINE void AddBroadcastDots(PairSums& sums, Pairs a, const uint32_t* b) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "m"(*b));
}
/// Loads the first n elements, zeros behind; n may be more than there are lanes.
HWY_INLINE Pairs LoadPairs(const DotBf16* from, int64_t n) {
  const PairTag d;
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, &from->bits);
}
HWY_INLINE Pairs LoadPairs(const WidenedBf16* from, int64_t n) {
  const hn::ScalableTag<float> d;
  const PairTag pairs;
  const auto first = hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, &from->value),
             second = n <= 16
                          ? hn::Zero(d)
                          : hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n - 16)), d, &from->value + 16);
  return hn::ConcatOdd(pairs, hn::BitCast(pairs, second), hn::BitCast(pairs, first));
}

HWY_INLINE Pairs LoadWholePairs(const DotBf16* from) {
  return hn::LoadU(PairTag(), &from->bits);
}
HWY_INLINE Pairs LoadWholePairs(const WidenedBf16* from) {
  return LoadPairs(from, kPairLanes);
}

// The sum of a vector's lanes: first those 8 apart, then those 4 apart, 2 apart and 1 apart. That order lets
// four rows share the first two steps (KeptScores).

/// The sums of lanes 8 apart: those of `a` in the lower half, those of `b` in the upper one. A blend takes
/// the place of one of two permutations: a Zen 4 starts one permutation a cycle while its two multipliers are
/// busy with dot products.
HWY_INLINE PairSums FoldHalves(PairSums a, PairSums b) {
  return {_mm512_add_ps(_mm512_mask_blend_ps(0xff00, a.raw, b.raw),
                        _mm512_shuffle_f32x4(a.raw, b.raw, _MM_PERM_BADC))};
}
/// The same for lanes 2 apart of each 128 bits.
HWY_INLINE PairSums FoldPairs(PairSums a, PairSums b) {
  return {_mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a.raw, b.raw),
                        _mm512_shuffle_ps(a.raw, b.raw, _MM_PERM_BADC))};
}
/// The last two steps for four vectors, each 128 bits of which hold a sum. Lane m of 128 bits t gets that of
/// four[m].
HWY_INLINE PairSums FoldQuarters(const PairSums (&four)[4]) {
  const auto a = FoldPairs(four[0], four[1]).raw, b = FoldPairs(four[2], four[3]).raw;
  return {_mm512_add_ps(_mm512_shuffle_ps(a, b, _MM_PERM_CACA), _mm512_shuffle_ps(a, b, _MM_PERM_DBDB))};
}
/// to[i] = the sum of the lanes of sums[i], where halves[i] = FoldHalves(sums[2i], sums[2i + 1]).
HWY_INLINE void FoldAll(const PairSums (&halves)[kSums / 2], float* to) {
  PairSums four[4];
  FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
    const auto a = halves[2 * i].raw, b = halves[2 * i + 1].raw;
    four[i] = {
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, _MM_PERM_CACA), _mm512_shuffle_f32x4(a, b, _MM_PERM_DBDB))};
  }
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  hn::StoreU(PairSums{_mm512_permutexvar_ps(order, FoldQuarters(four).raw)}, hn::ScalableTag<float>(), to);
}

/// The weights are rounded to bf16, so they are computed as powers of 2, as in the other kernels of bf16.
struct RoundedExponential {
  template <class D>
  static HWY_INLINE PairSums Of(D d, PairSums x) {
    return Power<true>(hn::Mul(x, hn::Set(d, 1.44269504f)));
  }
};
template <>
struct ExponentialOf<DotBf16> {
  using type = RoundedExponential;
};
template <>
struct ExponentialOf<WidenedBf16> {
  using type = RoundedExponential;
};

/// The dot products take smaller weights for 0, and 0 · infinity is NaN.
constexpr float kSmallestWeight = 0x1p-126f;
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

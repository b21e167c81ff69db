// The weights of `decode` for few rows: scores become weights, rounded to bf16, for several tiles at a time.
#if defined(FOVEA_TILES_FEW_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_FEW_WEIGHTS_INL_H_
#undef FOVEA_TILES_FEW_WEIGHTS_INL_H_
#else
#define FOVEA_TILES_FEW_WEIGHTS_INL_H_
#endif

#include "kernels/tiles/decode-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// The weights of a piece for kRows rows, rounded, in pairs.
template <int kRows>
struct RoundedWeights {
  alignas(64) uint32_t twos[kRows][tile_keys / 2];
  bool every;  ///< no weight of a row counts as 0

  /// From row to row, and from one two of pairs to the next.
  static constexpr int64_t kRow = tile_keys / 2, kTwoPairs = 2;
  HWY_INLINE const uint32_t* First() const { return twos[0]; }
  /// The weights of keys [j, j + 8) of row r, where j is a multiple of 8.
  HWY_INLINE void Eight(int r, int64_t j, uint32_t (&to)[4]) const {
    hwy::CopyBytes<sizeof(to)>(twos[r] + j / 2, to);
  }

  HWY_INLINE uint16_t* Row(int r) { return reinterpret_cast<uint16_t*>(twos[r]); }
  /// `smallest` holds the smallest weights of all rows.
  HWY_INLINE void SetEvery(PairSums smallest) {
    const hn::ScalableTag<float> d;
    every = hn::AllFalse(d, hn::Lt(smallest, hn::Set(d, kSmallestWeight)));
  }
  /// Rounds `count` weights of each row. Behind them there are zeros up to a whole vector.
  HWY_INLINE void Round(const float* weights, int64_t weight_stride, int64_t count) {
    const hn::ScalableTag<float> d;
    auto smallest = hn::Set(d, 1.0f);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      for (int64_t j = 0; j < count; j += 16) {
        const auto some = hn::LoadU(d, weights + r * weight_stride + j);
        StoreRounded(some, Row(r) + j);
        smallest = Smaller(smallest, some, count - j);
      }
    }
    SetEvery(smallest);
  }
  /// The smaller of each lane, where the first n of `some` exist. A NaN does not count as 0: Min returns its
  /// second argument then.
  static HWY_INLINE PairSums Smaller(PairSums smallest, PairSums some, int64_t n) {
    const hn::ScalableTag<float> d;
    return hn::Min(hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), some, smallest), smallest);
  }
};

/// The sum, or the maximum, of the lanes of four vectors, in the order of hn::SumOfLanes.
template <class F>
HWY_INLINE void FoldFour(const PairSums (&from)[4], F&& of_two, float (&to)[4]) {
  const auto halves = [&](PairSums a, PairSums b) HWY_ATTR {
    return of_two(PairSums{_mm512_mask_blend_ps(0xff00, a.raw, b.raw)},
                  PairSums{_mm512_shuffle_f32x4(a.raw, b.raw, _MM_PERM_BADC)});
  };
  const PairSums a = halves(from[0], from[1]), b = halves(from[2], from[3]);
  PairSums all = of_two(PairSums{_mm512_shuffle_f32x4(a.raw, b.raw, _MM_PERM_CACA)},
                        PairSums{_mm512_shuffle_f32x4(a.raw, b.raw, _MM_PERM_DBDB)});
  all = of_two(all, PairSums{_mm512_permute_ps(all.raw, _MM_PERM_BADC)});
  all = of_two(all, PairSums{_mm512_permute_ps(all.raw, _MM_PERM_CDAB)});
  alignas(64) float lanes[16];
  hn::Store(all, hn::ScalableTag<float>(), lanes);
  FOVEA_UNROLL for (int r = 0; r < 4; ++r) to[r] = lanes[4 * r];
}

/// Absorb for three or four rows and the `count` scores of a piece of at most a tile, whose weights are only
/// rounded. Each step runs over all rows, so that the maxima and sums over lanes do not wait for each other.
/// Returns false, and changes nothing but the memory behind the scores, if a row has seen no key.
template <int kRows>
HWY_NOINLINE bool AbsorbTile(float scale, int64_t count, float* scores, int64_t stride,
                             RowState<float>* states, float (&factors)[kRows],
                             RoundedWeights<kRows>& weights) {
  const hn::ScalableTag<float> d;
  for (int r = 0; r < kRows; ++r) {
    for (int64_t j = count; j < Padded<float>(count); ++j) scores[r * stride + j] = kHidden<float>;
  }
  float maxima[4], sums[4];
  PairSums lanes[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) lanes[r] = hn::LoadU(d, scores + r * stride);
  for (int64_t j = 16; j < count; j += 16) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) lanes[r] =
        hn::Max(lanes[r], hn::LoadU(d, scores + r * stride + j));
  }
  FoldFour(
      lanes, [](PairSums a, PairSums b) HWY_ATTR { return hn::Max(a, b); }, maxima);
  for (int r = 0; r < kRows; ++r) {
    const float best = maxima[r] * scale;
    maxima[r] = best > states[r].maximum ? best : states[r].maximum;
    if (maxima[r] == kHidden<float>) return false;
  }
  const auto factor = hn::Set(d, scale);
  PairSums shifts[kRows];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    shifts[r] = hn::Set(d, maxima[r]);
    lanes[r] = hn::Zero(d);
  }
  auto smallest = hn::Set(d, 1.0f);
  const auto absorb = [&]<bool kWhole>(int64_t j) HWY_ATTR {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto e = RoundedExponential::Of(
          d, hn::Sub(hn::Mul(hn::LoadU(d, scores + r * stride + j), factor), shifts[r]));
      StoreRounded(e, weights.Row(r) + j);
      lanes[r] = hn::Add(lanes[r], e);
      smallest = kWhole ? hn::Min(e, smallest) : RoundedWeights<kRows>::Smaller(smallest, e, count - j);
    }
  };
  int64_t j = 0;
  for (; j + 16 <= count; j += 16) absorb.template operator()<true>(j);
  if (j < count) absorb.template operator()<false>(j);
  weights.SetEvery(smallest);
  FoldFour(
      lanes, [](PairSums a, PairSums b) HWY_ATTR { return hn::Add(a, b); }, sums);
  for (int r = 0; r < kRows; ++r) factors[r] = Advance(maxima[r], sums[r], states[r]);
  return true;
}

/// Turns `count` scores of kRows rows into rounded weights, and writes the factors of what they gathered
/// before.
template <int kRows>
HWY_INLINE void AbsorbRows(float scale, int64_t count, float* scores, int64_t stride, RowState<float>* states,
                           float (&factors)[kRows], RoundedWeights<kRows>& weights) {
  if constexpr (kRows >= 3) {
    if (AbsorbTile(scale, count, scores, stride, states, factors, weights)) return;
  }
  for (int i = 0; i < kRows; ++i)
    factors[i] = Absorb<RoundedExponential>(scale, count, scores + i * stride, states[i]);
  weights.Round(scores, stride, count);
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

// The weights of `decode` for three or four rows over several tiles. Scores and weights stay in the order in
// which the loop over keys leaves them: the four keys of one row side by side, then those of the next row.
// Sums and maxima of four rows are then those of one vector.
#if defined(FOVEA_TILES_FOUR_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_FOUR_ROWS_INL_H_
#undef FOVEA_TILES_FOUR_ROWS_INL_H_
#else
#define FOVEA_TILES_FOUR_ROWS_INL_H_
#endif

#include "kernels/tiles/few_weights-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// The weights of a tile for three or four rows, rounded: two pairs of each row, then the next two.
struct WeightsOfFours {
  alignas(64) uint32_t twos[4 * tile_keys / 2];
  bool every;  ///< no weight of a row counts as 0

  static constexpr int64_t kRow = 2, kTwoPairs = 8;
  HWY_INLINE const uint32_t* First() const { return twos; }
  HWY_INLINE void Eight(int r, int64_t j, uint32_t (&to)[4]) const {
    const uint32_t* from = twos + 2 * j + kRow * r;
    hwy::CopyBytes<8>(from, to);
    hwy::CopyBytes<8>(from + kTwoPairs, to + 2);
  }
};

/// The most tiles whose keys few rows take at a time.
constexpr int64_t kMostTiles = 8;

/// The sum, or the maximum, of each four lanes, in all four of them.
template <class F>
HWY_INLINE PairSums FoldLanesOfRow(PairSums x, F&& of_two) {
  x = of_two(x, PairSums{_mm512_permute_ps(x.raw, _MM_PERM_BADC)});
  return of_two(x, PairSums{_mm512_permute_ps(x.raw, _MM_PERM_CDAB)});
}

/// The weights of keys [j, j + 4), which it rounds too.
HWY_INLINE PairSums WeightsOfFour(const float* fours, int64_t j, PairSums factor, PairSums shift,
                                  uint16_t* rounded) {
  const hn::ScalableTag<float> d;
  const auto e = RoundedExponential::Of(d, hn::Sub(hn::Mul(hn::Load(d, fours + 4 * j), factor), shift));
  StoreRounded(e, rounded + 4 * j);
  return e;
}

/// Absorb for kRows rows and the scores in fours of `count` keys, at most kMostTiles tiles. A row has the
/// bits that it has tile by tile (AbsorbTile). Returns false, and changes nothing but the scores behind the
/// last key, if a row has seen no key.
template <int kRows>
HWY_NOINLINE bool AbsorbFours(float scale, int64_t count, float* fours, RowState<float>* states,
                              float (*factors)[kRows], WeightsOfFours* weights) {
  const hn::ScalableTag<float> d;
  const int64_t tiles = (count + tile_keys - 1) / tile_keys;
  const auto hidden = hn::Set(d, kHidden<float>);
  const auto behind = hn::Load(d, fours + (count - 1) / 4 * 16);
  // The lanes of the last four that have a key.
  const __mmask16 there = static_cast<__mmask16>(0x1111 * ((2 << (count - 1) % 4) - 1));
  hn::Store(PairSums{_mm512_mask_mov_ps(hidden.raw, there, behind.raw)}, d, fours + (count - 1) / 4 * 16);

  alignas(64) float maxima[kMostTiles][16], sums[kMostTiles][16] = {};
  for (int lane = 0; lane < 16; ++lane) sums[0][lane] = lane / 4 < kRows ? states[lane / 4].maximum : 0.0f;
  auto maximum = hn::Load(d, sums[0]);
  const auto factor = hn::Set(d, scale);
  for (int64_t t = 0; t < tiles; ++t) {
    const float* tile = fours + t * 4 * tile_keys;
    const int64_t fours_there = (HWY_MIN(count - t * tile_keys, tile_keys) + 3) / 4;
    PairSums best[2] = {hn::Load(d, tile), hidden};
    int64_t v = 1;
    for (; v + 2 <= fours_there; v += 2) {
      FOVEA_UNROLL for (int k = 0; k < 2; ++k) best[k] = hn::Max(best[k], hn::Load(d, tile + (v + k) * 16));
    }
    if (v < fours_there) best[0] = hn::Max(best[0], hn::Load(d, tile + v * 16));
    const auto scaled = hn::Mul(FoldLanesOfRow(hn::Max(best[0], best[1]),
                                               [](PairSums a, PairSums b) HWY_ATTR { return hn::Max(a, b); }),
                                factor);
    maximum = hn::IfThenElse(hn::Gt(scaled, maximum), scaled, maximum);
    if (!hn::AllFalse(d, hn::Eq(maximum, hidden))) return false;
    hn::Store(maximum, d, maxima[t]);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const float* tile = fours + t * 4 * tile_keys;
    const int64_t keys = HWY_MIN(count - t * tile_keys, tile_keys);
    auto* rounded = reinterpret_cast<uint16_t*>(weights[t].twos);
    const auto shift = hn::Load(d, maxima[t]);
    auto smallest = hn::Set(d, 1.0f);
    PairSums sum[4];
    FOVEA_UNROLL for (int k = 0; k < 4; ++k) sum[k] = hn::Zero(d);
    int64_t j = 0;
    for (; j + 16 <= keys; j += 16) {
      FOVEA_UNROLL for (int k = 0; k < 4; ++k) {
        const auto e = WeightsOfFour(tile, j + 4 * k, factor, shift, rounded);
        sum[k] = hn::Add(sum[k], e);
        smallest = hn::Min(e, smallest);
      }
    }
    FOVEA_UNROLL for (int k = 0; k < 4; ++k) {
      if (j + 4 * k >= keys) break;
      const auto e = WeightsOfFour(tile, j + 4 * k, factor, shift, rounded);
      sum[k] = hn::Add(sum[k], e);
      const __mmask16 counts = j + 4 * k + 4 <= keys ? __mmask16{0xffff} : there;
      smallest = hn::Min(PairSums{_mm512_mask_mov_ps(smallest.raw, counts, e.raw)}, smallest);
    }
    weights[t].every = hn::AllFalse(d, hn::Lt(smallest, hn::Set(d, kSmallestWeight)));
    // In the order of FoldFour: keys 8 apart, 4 apart, 2 apart and 1 apart.
    const auto all = FoldLanesOfRow(hn::Add(hn::Add(sum[0], sum[2]), hn::Add(sum[1], sum[3])),
                                    [](PairSums a, PairSums b) HWY_ATTR { return hn::Add(a, b); });
    hn::Store(all, d, sums[t]);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    for (int r = 0; r < kRows; ++r) factors[t][r] = Advance(maxima[t][4 * r], sums[t][4 * r], states[r]);
  }
  return true;
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

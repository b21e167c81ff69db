// The scores of `decode` for 16 rows at a time, as where several queries or forks of a sequence share a key.
// The lanes of a vector are rows, and pairs of a key are broadcast to them, so that no sum over lanes is
// left. Each sum has the order of FoldAll (tiles/dots-inl.h). So a row has the same bits however many rows
// are beside it.
#if defined(FOVEA_TILES_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_SCORES_INL_H_
#undef FOVEA_TILES_SCORES_INL_H_
#else
#define FOVEA_TILES_SCORES_INL_H_
#endif

#include "kernels/tiles/dots-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// The rows of a vector of queries.
constexpr int64_t kLaneRows = 16;

/// Writes the queries of 16 rows, kVectors vectors each, as vectors of pairs: the same pair of all rows. They
/// take the second halves of the rows' memory, kVectors vectors in each.
HWY_INLINE void TransposeQueries(int64_t padded, float* queries) {
  const int64_t vectors = padded / kPairLanes;
  auto* from = reinterpret_cast<const uint32_t*>(queries);
  alignas(64) uint32_t block[kLaneRows * kLaneRows];
  for (int64_t v = 0; v < vectors; ++v) {
    TransposeBlocks(from + v * kLaneRows, kLaneRows, kLaneRows, padded, block, kLaneRows);
    for (int64_t l = 0; l < kLaneRows; ++l) {
      const int64_t pair = v * kLaneRows + l;
      hwy::CopyBytes<64>(block + l * kLaneRows,
                         queries + pair / vectors * padded + padded / 2 + pair % vectors * kLaneRows);
    }
  }
}

template <int kKeys>
HWY_INLINE void AddSums(const PairSums (&from)[kKeys], PairSums (&to)[kKeys]) {
  FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) to[k] = hn::Add(to[k], from[k]);
}

/// For kKeys keys, what lane kLane of a vector sums in KeptScores plus what lane kLane + 8 sums. There are
/// eight chains of products, since a Zen 4 starts one product a cycle and waits six for the sum.
template <int kLane, int kVectors, int kKeys>
HWY_INLINE void TwoLanes(const float* queries, const uint32_t* const (&keys)[kKeys], PairSums (&to)[kKeys]) {
  const hn::ScalableTag<float> d;
  const PairTag d16;
  constexpr int64_t kPadded = kVectors * kPairLanes;
  PairSums more[kKeys];
  FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) to[k] = more[k] = hn::Zero(d);
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    const int pair = v * 16 + kLane;
    const auto query = [&](int p) HWY_ATTR {
      return hn::LoadU(d16, reinterpret_cast<const uint16_t*>(queries + p / kVectors * kPadded + kPadded / 2 +
                                                              p % kVectors * kLaneRows));
    };
    const Pairs first = query(pair), second = query(pair + 8);
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) AddBroadcastDots(to[k], first, keys[k] + pair);
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) AddBroadcastDots(more[k], second, keys[k] + pair + 8);
  }
  AddSums(more, to);
}
/// The same with lanes kLane + 4 and kLane + 12.
template <int kLane, int kVectors, int kKeys>
HWY_INLINE void FourLanes(const float* queries, const uint32_t* const (&keys)[kKeys], PairSums (&to)[kKeys]) {
  PairSums odd[kKeys];
  TwoLanes<kLane, kVectors>(queries, keys, to);
  TwoLanes<kLane + 4, kVectors>(queries, keys, odd);
  AddSums(odd, to);
}
template <int kVectors, int kKeys>
HWY_INLINE void AllLanes(const float* queries, const uint32_t* const (&keys)[kKeys], PairSums (&to)[kKeys]) {
  PairSums odd[kKeys], more[kKeys];
  FourLanes<0, kVectors>(queries, keys, to);
  FourLanes<2, kVectors>(queries, keys, more);
  AddSums(more, to);
  FourLanes<1, kVectors>(queries, keys, odd);
  FourLanes<3, kVectors>(queries, keys, more);
  AddSums(more, odd);
  AddSums(odd, to);
}

/// Fetches kVectors lines into the first-level cache.
template <int kVectors, class S>
HWY_INLINE void FetchIntoFirst(const S* row) {
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    asm volatile("prefetcht0 %0" : : "m"(*(reinterpret_cast<const char*>(row) + 64 * v)));
  }
}

/// Writes the scores of keys [0, count) as vectors of the 16 rows whose queries TransposeQueries has written.
/// The keys have kVectors whole vectors. after_each() is called behind every four keys.
template <int kVectors, class S, class F>
HWY_INLINE void LaneScores(const float* queries, const StoredRows<S>& keys, int64_t count, float* scores,
                           F&& after_each) {
  constexpr int kKeys = 4;
  const hn::ScalableTag<float> d;
  for (int64_t j = 0; j < count; j += kKeys) {
    const uint32_t* rows[kKeys];
    // Behind the last key the last one is read again; those sums are thrown away.
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) rows[k] =
        reinterpret_cast<const uint32_t*>(keys.at(HWY_MIN(j + k, count - 1)));
    if (j + 2 * kKeys <= count) {
      FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) FetchIntoFirst<kVectors>(keys.at(j + kKeys + k));
    }
    PairSums sums[kKeys];
    asm("" : "+r"(queries));  // GCC would copy all queries to the stack before the loop
    AllLanes<kVectors>(queries, rows, sums);
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
      if (j + k < count) hn::Store(sums[k], d, scores + (j + k) * kLaneRows);
    }
    after_each();
  }
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

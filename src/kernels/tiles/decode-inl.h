// The algorithm `decode`: the loop of flash/split-inl.h over bf16 keys and values, by AVX512_BF16's dot
// products of pairs. That takes half the instructions of widening them to f32 first. The weights are rounded
// to bf16, as in the other kernels of bf16 (tiles/forward-inl.h).
#if defined(FOVEA_TILES_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_DECODE_INL_H_
#undef FOVEA_TILES_DECODE_INL_H_
#else
#define FOVEA_TILES_DECODE_INL_H_
#endif

#include "kernels/tiles/piece_rows-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// Stores the query in bf16, in the first half of the row's memory; exact, since the query was bf16.
template <Dots S>
HWY_INLINE void LoadQuery(S, const float* from, int64_t dim, int64_t, float* to) {
  const hn::ScalableTag<float> d;
  auto* halves = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < RoundUp(dim, kPairLanes); i += kPairLanes / 2)
    StoreRounded(hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(HWY_MAX(dim - i, 0))), d, from + i),
                 halves + i);
}

/// The vectors of a query that stay in registers while keys pass by. Four rows of four vectors leave 16
/// registers for two keys' sums, folded pairs and the key.
constexpr int kKeptVectors = 4;

/// The queries of kRows rows in kKept vectors each. Those of four rows exchange quarters: vector r holds
/// quarter t of row (r + t) mod 4. So a vector of a key gives a quarter of a sum of each row. Two steps of
/// the four rows' sums then take three permutations. With FoldHalves they take four, and two blends. Three
/// rows have a fourth of zeros beside them.
template <int kRows, int kKept, int kVectors>
HWY_INLINE void KeepQueries(const float* queries, int64_t padded, Pairs (&query)[kKept][kVectors]) {
  const PairTag pairs;
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    __m512i rows[kKept];
    FOVEA_UNROLL for (int r = 0; r < kKept; ++r) rows[r] =
        r < kRows
            ? hn::LoadU(pairs, reinterpret_cast<const uint16_t*>(queries + r * padded) + v * kPairLanes).raw
            : _mm512_setzero_si512();
    FOVEA_UNROLL for (int r = 0; r < kKept; ++r) {
      __m512i& kept = query[r][v].raw;
      kept = rows[r];
      FOVEA_UNROLL for (int t = 1; kKept == 4 && t < 4; ++t) kept =
          _mm512_mask_blend_epi32(static_cast<__mmask16>(0xf << 4 * t), kept, rows[(r + t) % kKept]);
    }
  }
}
/// The sums of lanes 8 and 4 apart of four rows, whose quarters KeepQueries has exchanged: 128 bits for each
/// row.
HWY_INLINE PairSums FoldExchanged(PairSums a, PairSums b, PairSums c, PairSums d) {
  const auto even = _mm512_add_ps(a.raw, _mm512_shuffle_f32x4(c.raw, c.raw, _MM_PERM_BADC)),
             odd = _mm512_add_ps(b.raw, _mm512_shuffle_f32x4(d.raw, d.raw, _MM_PERM_BADC));
  return {_mm512_add_ps(even, _mm512_shuffle_f32x4(odd, odd, _MM_PERM_CBAD))};
}

/// Where scores are left: those of each row side by side, or as LeaveFours has them.
enum class ScoreOrder : uint8_t { rows, fours };
/// Stores the scores of keys [j, j + 4) by four rows, those of each row side by side: one store, and no
/// permutation. Of three rows a fourth is stored too.
HWY_INLINE void LeaveFours(PairSums scores, int64_t j, float* fours) {
  hn::Store(scores, hn::ScalableTag<float>(), fours + 4 * j);
}

/// ScoresAt for rows of kVectors vectors, the last of which has `last` elements; with kWhole all of them. All
/// queries stay in registers. This is a function of its own because these loops need most registers of both
/// kinds. Beside row j, row j + `ahead` is fetched. A line that asks for that and for its level takes six
/// instructions and three loads.
template <int kRows, int kVectors, bool kWhole, ScoreOrder kOrder, FetchInto kInto, class S>
HWY_NOINLINE void KeptScores(const float* queries, int64_t padded, const S* const* keys, int64_t ahead,
                             int64_t last, int64_t count, float* scores, int64_t score_stride) {
  constexpr int kKept = kRows == 3 ? 4 : kRows, kKeys = kKeysOf<kRows>, kTwos = kKeys / 2;
  constexpr int kLines = kVectors * kPairLanes * static_cast<int>(sizeof(S)) / 64;
  const hn::ScalableTag<float> d;
  Pairs query[kKept][kVectors];
  KeepQueries<kRows>(queries, padded, query);
  const S* repeated[kKeys];
  for (int64_t j = 0; j < count; j += kKeys, keys += kKeys) {
    if (j + kKeys > count) keys = LastRows(keys, count - j, repeated);
    const S* const* fetched = keys + ahead;
    // One register has the place of these addresses. GCC would keep one for each, in a vector register.
    asm("" : "+r"(fetched));
    PairSums folded[kKept == 4 ? kKeys : kSums / 2];
    FOVEA_UNROLL for (int two = 0; two < kTwos; ++two) {
      PairSums sums[kKept][2];
      FOVEA_UNROLL for (int r = 0; r < kKept; ++r) sums[r][0] = sums[r][1] = hn::Zero(d);
      const S* lines[2] = {};
      FOVEA_UNROLL for (int i = 0; i < 2; ++i) {
        lines[i] = fetched[2 * two + i];
        asm("" : "+r"(lines[i]));  // or GCC loads it again for each line
      }
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
        FOVEA_UNROLL for (int i = 0; i < 2; ++i) {
          const S* row = keys[2 * two + i] + v * kPairLanes;
          const Pairs key = kWhole || v + 1 < kVectors ? LoadWholePairs(row) : LoadPairs(row, last);
          FOVEA_UNROLL for (int r = 0; r < kKept; ++r) AddDots(sums[r][i], query[r][v], key);
          // GCC would otherwise put products that wait for each other side by side.
          FOVEA_UNROLL for (int r = 0; r < kKept; ++r) asm volatile("" : "+v"(sums[r][i].raw));
          // Evenly between the products. With the lines of two keys at once, 32,768 keys that come from
          // memory took 1.03 to 1.1 of the time on one thread of a Zen 5.
          FetchLinesInto<kInto, kLines / kVectors>(lines[i] + v * kPairLanes);
        }
      }
      FOVEA_UNROLL for (int i = 0; kKept == 4 && i < 2; ++i) folded[2 * two + i] =
          FoldExchanged(sums[0][i], sums[1][i], sums[2][i], sums[3][i]);
      FOVEA_UNROLL for (int r = 0; kKept < 4 && r < kRows; ++r) folded[r * kTwos + two] =
          FoldHalves(sums[r][0], sums[r][1]);
    }
    if constexpr (kOrder == ScoreOrder::fours) {
      LeaveFours(FoldQuarters(folded), j, scores);
      continue;
    }
    alignas(64) float all[kSums];
    if constexpr (kKept == 4)
      hn::Store(FoldQuarters(folded), d, all);
    else
      FoldAll(folded, all);
    LeaveScores<kRows>(all, count - j, scores + j, score_stride);
  }
}

/// scores[r · score_stride + j] = ⟨query r, key j⟩ for kRows queries and the keys at keys[0, count). In fours
/// they are aligned to 64 bytes, and what stands behind the last key of the last four is not specified.
template <int kRows, ScoreOrder kOrder = ScoreOrder::rows, Dots S>
HWY_INLINE void ScoresAt(const float* queries, int64_t padded, const S* const* keys, Fetching fetching,
                         int64_t dim, int64_t count, float* scores, int64_t score_stride) {
  const auto kept = [&]<int kVectors>() HWY_ATTR {
    const int64_t last = dim - (kVectors - 1) * kPairLanes;
    const auto by = [&]<FetchInto kInto>(int64_t begin, int64_t end, int64_t ahead) HWY_ATTR {
      if (begin >= end) return;
      float* to = scores + (kOrder == ScoreOrder::fours ? 4 : 1) * begin;
      last == kPairLanes
          ? KeptScores<kRows, kVectors, true, kOrder, kInto>(queries, padded, keys + begin, ahead, kPairLanes,
                                                             end - begin, to, score_stride)
          : KeptScores<kRows, kVectors, false, kOrder, kInto>(queries, padded, keys + begin, ahead, last,
                                                              end - begin, to, score_stride);
    };
    // Where nothing is left to fetch, each row fetches itself: a third loop would be 200 KB of code in all.
    const int64_t fetch_until = fetching.count / kKeysOf<kRows> * kKeysOf<kRows>;
    const auto both = [&]<FetchInto kInto>() HWY_ATTR {
      by.template operator()<kInto>(0, fetch_until, fetching.ahead);
      by.template operator()<kInto>(fetch_until, count, 0);
    };
    if constexpr (hwy::IsSame<S, DotBf16>()) {
      if (kFetchesIntoFirstLevel) return both.template operator()<FetchInto::first_level>();
    }
    both.template operator()<FetchInto::second_level>();
  };
  switch ((dim + kPairLanes - 1) / kPairLanes) {
    case 1:
      return kept.template operator()<1>();
    case 2:
      return kept.template operator()<2>();
    case 3:
      return kept.template operator()<3>();
    case kKeptVectors:
      return kept.template operator()<kKeptVectors>();
    default:
      break;
  }
  const hn::ScalableTag<float> d;
  constexpr int kKeys = kKeysOf<kRows>;
  const PairTag pairs;
  const S* repeated[kKeys];
  for (int64_t j = 0; j < count; j += kKeys, keys += kKeys) {
    const S* const* fetched = keys + fetching.ahead;
    const bool fetch = j + kKeys <= fetching.count;
    if (j + kKeys > count) keys = LastRows(keys, count - j, repeated);
    PairSums sums[kSums];
    FOVEA_UNROLL for (int i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
      if (fetch) FetchRow(fetched[k], dim);
      for (int64_t i = 0; i < dim; i += kPairLanes) {
        const Pairs key = LoadPairs(keys[k] + i, dim - i);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
            AddDots(sums[r * kKeys + k],
                    hn::LoadU(pairs, reinterpret_cast<const uint16_t*>(queries + r * padded) + i), key);
      }
    }
    PairSums folded[kSums / 2];
    FOVEA_UNROLL for (int i = 0; i < kSums / 2; ++i) folded[i] = FoldHalves(sums[2 * i], sums[2 * i + 1]);
    alignas(64) float all[kSums];
    FoldAll(folded, all);
    if constexpr (kOrder == ScoreOrder::fours)
      LeaveFours(hn::Load(d, all), j, scores);
    else
      LeaveScores<kRows>(all, count - j, scores + j, score_stride);
  }
}

template <int kRows, Dots S>
HWY_INLINE void StoredScores(const float* queries, int64_t padded, const StoredRows<S>& keys, int64_t dim,
                             int64_t count, bool, float* scores, int64_t score_stride) {
  const S* rows[tile_keys];
  WriteAddresses(keys, count, rows);
  ScoresAt<kRows>(queries, padded, rows, {}, dim, count, scores, score_stride);
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

// The algorithm `decode`: the loop of flash/split-inl.h over bf16 keys and values, by AVX512_BF16's dot
// products of pairs. That takes half the instructions of widening them to f32 first. The weights are rounded
// to bf16, as in the other kernels of bf16 (tiles/forward-inl.h).
#if defined(FOVEA_TILES_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_DECODE_INL_H_
#undef FOVEA_TILES_DECODE_INL_H_
#else
#define FOVEA_TILES_DECODE_INL_H_
#endif

#include "kernels/tiles/dots-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// Stores the query in bf16, in the first half of the row's memory; exact, since the query was bf16.
template <Dots S>
HWY_INLINE void LoadQuery(S, const float* from, int64_t dim, int64_t, float* to) {
  PackRow(from, dim, RoundUp(dim, kPairLanes), 1, Terms<uint16_t>{reinterpret_cast<uint16_t*>(to), 0}, 0);
}

/// Stores the sums of kRows queries and 16 / kRows keys, of which the first `count` exist. A masked store,
/// since GCC turns a loop into a call of memcpy, and saves all registers around that call.
template <int kRows>
HWY_INLINE void LeaveScores(const float* sums, int64_t count, float* scores, int64_t score_stride) {
  constexpr int kKeys = kSums / kRows;
  const hn::CappedTag<float, kKeys> d;
  const auto there = hn::FirstN(d, static_cast<size_t>(count));
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
      hn::BlendedStore(hn::LoadU(d, sums + r * kKeys), there, d, scores + r * score_stride);
}

/// The vectors of a query that stay in registers while keys pass by. Four rows of four vectors leave 16
/// registers for two keys' sums, folded pairs and the key.
constexpr int kKeptVectors = 4;

/// StoredScores for rows of kVectors vectors, the last of which has `last` elements. All queries stay in
/// registers.
template <int kRows, int kVectors, class S>
HWY_INLINE void KeptScores(const float* queries, int64_t padded, const StoredRows<S>& keys, int64_t last,
                           int64_t count, bool fetch, float* scores, int64_t score_stride) {
  constexpr int kKeys = kSums / kRows, kTwos = kKeys / 2;
  const hn::ScalableTag<float> d;
  const PairTag pairs;
  const int64_t dim = (kVectors - 1) * kPairLanes + last;
  RowsToFetch<S> ahead(keys, dim, fetch);
  Pairs query[kRows][kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) query[r][v] =
        hn::LoadU(pairs, reinterpret_cast<const uint16_t*>(queries + r * padded) + v * kPairLanes);
  }
  for (int64_t j = 0; j < count; j += kKeys) {
    PairSums folded[kSums / 2];
    FOVEA_UNROLL for (int two = 0; two < kTwos; ++two) {
      PairSums sums[kRows][2];
      FOVEA_UNROLL for (int i = 0; i < 2; ++i) {
        const int64_t k = j + 2 * two + i;
        ahead.Next(dim);
        // Behind the last key the last one is read again; those sums are thrown away.
        const S* row = keys.at(k < count ? k : count - 1);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) sums[r][i] = hn::Zero(d);
        FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
          const Pairs key = LoadPairs(row + v * kPairLanes, v + 1 < kVectors ? kPairLanes : last);
          FOVEA_UNROLL for (int r = 0; r < kRows; ++r) AddDots(sums[r][i], query[r][v], key);
        }
      }
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) folded[r * kTwos + two] =
          FoldHalves(sums[r][0], sums[r][1]);
    }
    alignas(64) float all[kSums];
    FoldAll(folded, all);
    LeaveScores<kRows>(all, count - j, scores + j, score_stride);
  }
}

template <int kRows, Dots S>
HWY_INLINE void StoredScores(const float* queries, int64_t padded, const StoredRows<S>& keys, int64_t dim,
                             int64_t count, bool fetch, float* scores, int64_t score_stride) {
  const auto kept = [&]<int kVectors>() HWY_ATTR {
    KeptScores<kRows, kVectors>(queries, padded, keys, dim - (kVectors - 1) * kPairLanes, count, fetch,
                                scores, score_stride);
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
  constexpr int kKeys = kSums / kRows;
  const PairTag pairs;
  RowsToFetch<S> ahead(keys, dim, fetch);
  for (int64_t j = 0; j < count; j += kKeys) {
    PairSums sums[kSums];
    FOVEA_UNROLL for (int i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
      ahead.Next(dim);
      const S* row = keys.at(j + k < count ? j + k : count - 1);
      for (int64_t i = 0; i < dim; i += kPairLanes) {
        const Pairs key = LoadPairs(row + i, dim - i);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
            AddDots(sums[r * kKeys + k],
                    hn::LoadU(pairs, reinterpret_cast<const uint16_t*>(queries + r * padded) + i), key);
      }
    }
    PairSums folded[kSums / 2];
    FOVEA_UNROLL for (int i = 0; i < kSums / 2; ++i) folded[i] = FoldHalves(sums[2 * i], sums[2 * i + 1]);
    alignas(64) float all[kSums];
    FoldAll(folded, all);
    LeaveScores<kRows>(all, count - j, scores + j, score_stride);
  }
}

/// The values of one piece, each where it lies: positions [begin, begin + count), and behind them as many
/// rows as are fetched ahead. Null: the cache has no such row.
template <class S>
struct PieceRows {
  static constexpr int64_t kMost = tile_keys + 64;
  const S* rows[kMost];
  /// The same rows, if they all lie side by side: in an operand, or in one run of a cache.
  StoredRows<S> operand = {nullptr, 0};
  HWY_INLINE void Fill(const HeadRows<S>& values, int64_t begin, int64_t end) {
    const int64_t count = HWY_MIN(end - begin, kMost);
    if (!values.cached.rows) {
      operand = {values.operand.at(begin), values.operand.stride};
      for (int64_t k = 0; k < count; ++k) rows[k] = operand.at(k);
      return;
    }
    for (int64_t k = 0; k < count; ++k) rows[k] = nullptr;
    values.cached.ForStretches(begin, begin + count,
                               [&](int64_t from, int64_t to, const S* first, const RunsBehind<S>&) HWY_ATTR {
                                 if (to - from == count) operand = {first, values.cached.stride};
                                 for (int64_t k = from; k < to; ++k)
                                   rows[k - begin] = first + (k - from) * values.cached.stride;
                               });
  }
  /// Whether the first `count` rows are all there.
  HWY_INLINE bool All(int64_t count) const {
    for (int64_t k = 0; !operand.data && k < count; ++k) {
      if (!rows[k]) return false;
    }
    return true;
  }
};

/// Rows that are fetched bit by bit beside products, so that no product waits for them.
template <class S>
struct RowsInTurn {
  const PieceRows<S>* rows = nullptr;
  int64_t end = 0, dim = 0, next = 0;
  HWY_INLINE void Fetch(int64_t count) {
    for (const int64_t to = HWY_MIN(next + count, end); next < to; ++next) {
      if (rows->rows[next]) FetchRow(rows->rows[next], dim);
    }
  }
};

/// Values are added eight at a time, two in each pair, and the eights begin where pieces do. So the products
/// of a row depend on its own weights alone, whatever pages the values lie in and whichever rows are beside
/// it.
constexpr int kTwos = 4, kEight = 2 * kTwos;

/// The n elements of a value from element i on, n at most kPairLanes, with zeros behind them. With kSome
/// `value` may be null, and all are zeros then. With kWhole n is kPairLanes. This is a function because GCC
/// 12 inlines a lambda only after it has unrolled the loops of AddVector. These then keep their sums in
/// memory, and one query of 4,096 keys took 1.6 times as long.
template <bool kSome, bool kWhole, Dots S>
HWY_INLINE Pairs LoadSome(const S* value, int64_t i, int64_t n) {
  if (kSome && !value) return hn::Zero(PairTag());
  return kWhole ? LoadWholePairs(value + i) : LoadPairs(value + i, n);
}

/// Adds n elements of eight values, from element i on, to those of kRows gathered rows.
template <int kRows, bool kSome, bool kWhole, Dots S>
HWY_INLINE void AddVector(const Pairs (&factor)[kRows][kTwos], const S* const* values, int64_t i, int64_t n,
                          float* gathered, int64_t padded) {
  const hn::ScalableTag<float> d;
  const PairTag pairs;
  PairSums low[kRows], high[kRows];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    low[r] = hn::LoadU(d, gathered + r * padded + i);
    high[r] = hn::LoadU(d, gathered + r * padded + i + 16);
  }
  FOVEA_UNROLL for (int k = 0; k < kTwos; ++k) {
    const Pairs a = LoadSome<kSome, kWhole>(values[2 * k], i, n),
                b = LoadSome<kSome, kWhole>(values[2 * k + 1], i, n);
    const Pairs lower = hn::InterleaveLower(pairs, a, b), upper = hn::InterleaveUpper(pairs, a, b);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      AddDots(low[r], factor[r][k], lower);
      AddDots(high[r], factor[r][k], upper);
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    hn::StoreU(low[r], d, gathered + r * padded + i);
    hn::StoreU(high[r], d, gathered + r * padded + i + 16);
  }
}

/// gathered[r] += Σ weights · values for kRows rows, whose eight weights are pairs in `twos`. Each 32
/// gathered elements are in the order that interleaving leaves; Unravel restores theirs. With kSome values
/// may be null, and are 0 then.
template <int kRows, bool kSome, Dots S>
HWY_INLINE void AddEight(const uint32_t (*twos)[kTwos], const S* const* values, int64_t dim, float* gathered,
                         int64_t padded) {
  const PairTag pairs;
  const hn::RepartitionToWide<PairTag> du;
  Pairs factor[kRows][kTwos];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int k = 0; k < kTwos; ++k) factor[r][k] = hn::BitCast(pairs, hn::Set(du, twos[r][k]));
  }
  int64_t i = 0;
  for (; i + kPairLanes <= dim; i += kPairLanes)
    AddVector<kRows, kSome, true>(factor, values, i, kPairLanes, gathered, padded);
  if (i < dim) AddVector<kRows, kSome, false>(factor, values, i, dim - i, gathered, padded);
}

/// AddEight twice for whole vectors. The sums of 32 elements stay in registers for all sixteen values, and
/// the weights are broadcast from memory. Four queries of 4,096 keys take 0.94 of the time on one thread.
/// With the weights in registers and sums of 64 elements it was 0.98.
template <int kRows, Dots S>
HWY_INLINE void AddSixteen(const uint32_t (*first)[kTwos], const uint32_t (*second)[kTwos],
                           const S* const* values, int64_t dim, float* gathered, int64_t padded) {
  const hn::ScalableTag<float> d;
  const PairTag pairs;
  for (int64_t i = 0; i < dim; i += kPairLanes) {
    PairSums low[kRows], high[kRows];
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      low[r] = hn::LoadU(d, gathered + r * padded + i);
      high[r] = hn::LoadU(d, gathered + r * padded + i + 16);
    }
    FOVEA_UNROLL for (int k = 0; k < 2 * kTwos; ++k) {
      const Pairs a = LoadWholePairs(values[2 * k] + i), b = LoadWholePairs(values[2 * k + 1] + i);
      const Pairs lower = hn::InterleaveLower(pairs, a, b), upper = hn::InterleaveUpper(pairs, a, b);
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        const uint32_t* factor = k < kTwos ? first[r] + k : second[r] + (k - kTwos);
        AddBroadcastDots(low[r], lower, factor);
        AddBroadcastDots(high[r], upper, factor);
      }
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      hn::StoreU(low[r], d, gathered + r * padded + i);
      hn::StoreU(high[r], d, gathered + r * padded + i + 16);
    }
  }
}

/// AddEight for one row with weights of 0. Values with such a weight count as 0: they may be NaN, or missing
/// from the cache. The dot products take weights below the normal numbers for 0, so these are 0 here too.
template <Dots S>
HWY_NOINLINE void AddSomeOfEight(const float* weights, int64_t count, const S* const* values, int64_t dim,
                                 float* gathered) {
  alignas(16) uint16_t rounded[kEight];
  const S* seen[kEight];
  bool any = false;
  for (int64_t k = 0; k < kEight; ++k) {
    const float weight = k < count ? weights[k] : 0.0f;
    const bool counts = !(weight < kSmallestWeight) && values[k];
    seen[k] = counts ? values[k] : nullptr;
    const hn::CappedTag<float, 1> d1;
    rounded[k] =
        counts ? static_cast<uint16_t>(hn::GetLane(NearestBf16(d1, hn::Set(d1, weight)))) : uint16_t{0};
    any = any || counts;
  }
  if (!any) return;
  uint32_t twos[1][kTwos];
  hwy::CopyBytes<sizeof(rounded)>(rounded, twos);
  AddEight<1, true>(twos, seen, dim, gathered, 0);
}

/// The weights of eight values for kRows rows, rounded, in pairs.
template <int kRows>
struct EightWeights {
  alignas(16) uint32_t twos[kRows][kTwos];
  bool all[kRows];  // all eight values are there, and none of their weights counts as 0
  bool every;       // the same for every row

  HWY_INLINE EightWeights(const float* weights, int64_t weight_stride, bool there) : every(true) {
    const hn::CappedTag<float, kEight> d8;
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto eight = hn::LoadU(d8, weights + r * weight_stride);
      all[r] = there && hn::AllFalse(d8, hn::Lt(eight, hn::Set(d8, kSmallestWeight)));
      StoreHalves(UnsignedOf<decltype(d8)>(), NearestBf16(d8, eight), reinterpret_cast<uint16_t*>(twos[r]));
      every = every && all[r];
    }
  }
};

/// gathered[r] += Σ_j weights[r · weight_stride + j] · value j for kRows rows and the `count` values of a
/// piece. Without kScattered the rows lie side by side, and the addresses of those that are fetched are
/// computed. With addresses from the table, 16 queries of 2,048 keys took 1.3 times as long.
template <int kRows, bool kScattered, Dots S>
HWY_INLINE void AddPieceRows(const float* weights, int64_t weight_stride, const PieceRows<S>& values,
                             int64_t dim, int64_t count, int64_t fetched, float* gathered, int64_t padded) {
  const int64_t ahead = HWY_MIN(RowsAhead<S>(dim), PieceRows<S>::kMost - tile_keys);
  const bool whole = kRows > 1 && dim % kPairLanes == 0;
  const auto fetch = [&](int64_t j) HWY_ATTR {
    // All lines of a row, and row by row: fetched beside the products, a line of each of eight rows, 32,768
    // keys took 1.1 times as long.
    if (!kScattered && fetched > 0) {
      for (int64_t k = 0; k < kEight; ++k) FetchRow(values.operand.at(j + k + ahead), dim);
    }
    for (int64_t k = j + ahead; kScattered && k < HWY_MIN(j + ahead + kEight, fetched); ++k) {
      if (values.rows[k]) FetchRow(values.rows[k], dim);
    }
  };
  for (int64_t j = 0; j < count; j += kEight) {
    fetch(j);
    const EightWeights<kRows> first(weights + j, weight_stride, j + kEight <= count);
    if (first.every && whole && j + 2 * kEight <= count) {
      const EightWeights<kRows> second(weights + j + kEight, weight_stride, true);
      if (second.every) {
        fetch(j + kEight);
        AddSixteen<kRows>(first.twos, second.twos, values.rows + j, dim, gathered, padded);
        j += kEight;
        continue;
      }
    }
    if (first.every) {
      AddEight<kRows, false>(first.twos, values.rows + j, dim, gathered, padded);
      continue;
    }
    for (int r = 0; r < kRows; ++r) {
      float* to = gathered + r * padded;
      if (first.all[r])
        AddEight<1, false>(first.twos + r, values.rows + j, dim, to, padded);
      else
        AddSomeOfEight(weights + r * weight_stride + j, HWY_MIN(count - j, int64_t{kEight}), values.rows + j,
                       dim, to);
    }
  }
}

template <Dots S>
HWY_INLINE void AddPieceValues(S, const HeadRows<S>& values, const Piece& piece, int64_t rows_end,
                               int64_t rows, const float* weights, int64_t weight_stride, int64_t dim,
                               float* gathered, int64_t padded) {
  PieceRows<S> own;
  own.Fill(values, piece.begin, rows_end);
  const int64_t count = piece.end - piece.begin,
                fetched = HWY_MIN(rows_end - piece.begin, PieceRows<S>::kMost);
  ForRowGroups(rows, [&]<int kRows>(int64_t r) HWY_ATTR {
    const float* from = weights + r * weight_stride;
    float* to = gathered + r * padded;
    const int64_t fetch = r == 0 ? fetched : 0;
    if (own.operand.data)
      AddPieceRows<kRows, false>(from, weight_stride, own, dim, count, fetch, to, padded);
    else
      AddPieceRows<kRows, true>(from, weight_stride, own, dim, count, fetch, to, padded);
  });
}

/// Restores the order of each 32 elements. InterleaveLower left elements 0-3, 8-11, 16-19, 24-27 in the first
/// half.
template <Dots S>
HWY_INLINE void Unravel(S, int64_t width, float* gathered) {
  for (int64_t i = 0; i < width; i += kPairLanes) {
    alignas(64) float rows[kPairLanes];
    hwy::CopyBytes<sizeof(rows)>(gathered + i, rows);
    for (int64_t block = 0; block < 4; ++block) {
      hwy::CopyBytes<16>(rows + 4 * block, gathered + i + 8 * block);
      hwy::CopyBytes<16>(rows + 16 + 4 * block, gathered + i + 8 * block + 4);
    }
  }
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

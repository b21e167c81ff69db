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
  const hn::ScalableTag<float> d;
  auto* halves = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < RoundUp(dim, kPairLanes); i += kPairLanes / 2)
    StoreRounded(hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(HWY_MAX(dim - i, 0))), d, from + i),
                 halves + i);
}

/// Stores the sums of kRows queries and 16 / kRows keys, of which the first `count` exist. A masked store,
/// since GCC turns a loop into a call of memcpy, and saves all registers around that call.
template <int kRows>
HWY_INLINE void LeaveScores(const float* sums, int64_t count, float* scores, int64_t score_stride) {
  constexpr int kKeys = kSums / kRows;
  const hn::CappedTag<float, kKeys> d;
  if (count >= kKeys) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
        hn::StoreU(hn::LoadU(d, sums + r * kKeys), d, scores + r * score_stride);
    return;
  }
  const auto there = hn::FirstN(d, static_cast<size_t>(count));
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
      hn::BlendedStore(hn::LoadU(d, sums + r * kKeys), there, d, scores + r * score_stride);
}

/// The vectors of a query that stay in registers while keys pass by. Four rows of four vectors leave 16
/// registers for two keys' sums, folded pairs and the key.
constexpr int kKeptVectors = 4;

/// The queries of kRows rows in registers. Of two rows each, the first vectors hold the lower half of the
/// first row and the upper half of the second one, the second vectors the other halves. So a vector of a key
/// gives half a sum of either row, and the first step of four rows' sums (tiles/dots-inl.h) is one permutation
/// and one addition for two sums. Scores then reach 90 % of the rate of dot products in the first-level cache,
/// and 84 % with FoldHalves.
template <int kRows, int kVectors>
HWY_INLINE void KeepQueries(const float* queries, int64_t padded, Pairs (&query)[kRows][kVectors]) {
  const PairTag pairs;
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) query[r][v] =
        hn::LoadU(pairs, reinterpret_cast<const uint16_t*>(queries + r * padded) + v * kPairLanes);
    FOVEA_UNROLL for (int r = 0; kRows == 4 && r < kRows; r += 2) {
      const __m512i a = query[r][v].raw, b = query[r + 1][v].raw;
      query[r][v] = {_mm512_mask_blend_epi32(0xff00, a, b)};
      query[r + 1][v] = {_mm512_mask_blend_epi32(0xff00, b, a)};
    }
  }
}
/// The sums of lanes 8 apart of two rows, whose halves KeepQueries has exchanged.
HWY_INLINE PairSums FoldExchanged(PairSums a, PairSums b) {
  return {_mm512_add_ps(a.raw, _mm512_shuffle_f32x4(b.raw, b.raw, _MM_PERM_BADC))};
}

/// StoredScores for rows of kVectors vectors, the last of which has `last` elements; with kWhole all of them.
/// All queries stay in registers. This is a function of its own because these loops need most registers of
/// both kinds.
template <int kRows, int kVectors, bool kWhole, class S>
HWY_NOINLINE void KeptScores(const float* queries, int64_t padded, const StoredRows<S>& keys, int64_t last,
                             int64_t count, bool fetch, float* scores, int64_t score_stride) {
  constexpr int kKeys = kSums / kRows, kTwos = kKeys / 2;
  constexpr int kLines = kVectors * kPairLanes * static_cast<int>(sizeof(S)) / 64;
  const hn::ScalableTag<float> d;
  RowsToFetch<S> ahead(keys, RowsAhead<S>((kVectors - 1) * kPairLanes + last), fetch);
  Pairs query[kRows][kVectors];
  KeepQueries(queries, padded, query);
  const S* row = keys.data;
  const int64_t stride = keys.stride;
  for (int64_t j = 0; j < count; j += kKeys) {
    // Behind the last key the last one is read again; those sums are thrown away.
    const int64_t next = j + kKeys <= count ? INT64_MAX : count - j - 1;
    PairSums halves[kSums / 2];
    FOVEA_UNROLL for (int two = 0; two < kTwos; ++two) {
      PairSums sums[kRows][2];
      FOVEA_UNROLL for (int i = 0; i < 2; ++i) {
        ahead.template NextLines<kLines>();
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) sums[r][i] = hn::Zero(d);
        FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
          const Pairs key = kWhole || v + 1 < kVectors ? LoadWholePairs(row + v * kPairLanes)
                                                       : LoadPairs(row + v * kPairLanes, last);
          FOVEA_UNROLL for (int r = 0; r < kRows; ++r) AddDots(sums[r][i], query[r][v], key);
          // GCC would otherwise put products that wait for each other side by side.
          FOVEA_UNROLL for (int r = 0; r < kRows; ++r) asm volatile("" : "+v"(sums[r][i].raw));
        }
        row += 2 * two + i < next ? stride : 0;
        FOVEA_UNROLL for (int r = 0; kRows == 4 && r < kRows; r += 2) halves[2 * r + 2 * two + i] =
            FoldExchanged(sums[r][i], sums[r + 1][i]);
      }
      FOVEA_UNROLL for (int r = 0; kRows < 4 && r < kRows; ++r) halves[r * kTwos + two] =
          FoldHalves(sums[r][0], sums[r][1]);
    }
    alignas(64) float all[kSums];
    if constexpr (kRows == 4)
      hn::Store(FoldEightHalves(halves), d, all);
    else
      FoldAll(halves, all);
    LeaveScores<kRows>(all, count - j, scores + j, score_stride);
  }
}

template <int kRows, Dots S>
HWY_INLINE void StoredScores(const float* queries, int64_t padded, const StoredRows<S>& keys, int64_t dim,
                             int64_t count, bool fetch, float* scores, int64_t score_stride) {
  const auto kept = [&]<int kVectors>() HWY_ATTR {
    const int64_t last = dim - (kVectors - 1) * kPairLanes;
    last == kPairLanes
        ? KeptScores<kRows, kVectors, true>(queries, padded, keys, kPairLanes, count, fetch, scores,
                                            score_stride)
        : KeptScores<kRows, kVectors, false>(queries, padded, keys, last, count, fetch, scores, score_stride);
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
  RowsToFetch<S> ahead(keys, RowsAhead<S>(dim), fetch);
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

/// Absorb for four rows and `count` scores, a multiple of 16. Row by row, the sums over lanes wait for each
/// other. Returns false, and changes nothing, if a row has seen no key.
HWY_NOINLINE bool AbsorbFour(float scale, int64_t count, float* scores, int64_t stride,
                             RowState<float>* states, float* factors) {
  const hn::ScalableTag<float> d;
  PairSums lanes[4];
  FOVEA_UNROLL for (int r = 0; r < 4; ++r) lanes[r] = hn::LoadU(d, scores + r * stride);
  for (int64_t j = 16; j < count; j += 16) {
    FOVEA_UNROLL for (int r = 0; r < 4; ++r) lanes[r] =
        hn::Max(lanes[r], hn::LoadU(d, scores + r * stride + j));
  }
  float maxima[4], sums[4];
  FoldFour(
      lanes, [](PairSums a, PairSums b) HWY_ATTR { return hn::Max(a, b); }, maxima);
  for (int r = 0; r < 4; ++r) {
    const float best = maxima[r] * scale;
    maxima[r] = best > states[r].maximum ? best : states[r].maximum;
    if (maxima[r] == kHidden<float>) return false;
  }
  const auto factor = hn::Set(d, scale);
  PairSums shifts[4];
  FOVEA_UNROLL for (int r = 0; r < 4; ++r) {
    shifts[r] = hn::Set(d, maxima[r]);
    lanes[r] = hn::Zero(d);
  }
  for (int64_t j = 0; j < count; j += 16) {
    FOVEA_UNROLL for (int r = 0; r < 4; ++r) {
      float* at = scores + r * stride + j;
      const auto e = RoundedExponential::Of(d, hn::Sub(hn::Mul(hn::LoadU(d, at), factor), shifts[r]));
      hn::StoreU(e, d, at);
      lanes[r] = hn::Add(lanes[r], e);
    }
  }
  FoldFour(
      lanes, [](PairSums a, PairSums b) HWY_ATTR { return hn::Add(a, b); }, sums);
  for (int r = 0; r < 4; ++r) {
    RowState<float>& state = states[r];
    const bool same = state.maximum == maxima[r] || state.maximum == kHidden<float>;
    factors[r] = same ? 1.0f : static_cast<float>(std::exp(state.maximum - maxima[r]));
    state = {maxima[r], state.sum * factors[r] + sums[r]};
  }
  return true;
}

template <Dots S>
HWY_INLINE int NormalizeSome(S, const Problem<float>& p, float scale, int64_t n, int64_t rows, float* scores,
                             int64_t stride, RowState<float>* states, float* factors) {
  if (p.normalizer == NormalizerKind::softmax && rows >= 4 && n % 16 == 0 &&
      AbsorbFour(scale, n, scores, stride, states, factors))
    return 4;
  *factors = Normalize<ExponentialFor<S>>(p, scale, n, scores, *states);
  return 1;
}

/// The rows of one piece, each where it lies. Null: the cache has no such row.
template <class S>
struct PieceRows {
  const S* rows[tile_keys];
  StoredRows<S> first = {nullptr, 0};  ///< the first rows that are there
  int64_t found = 0;

  HWY_INLINE void Fill(const HeadRows<S>& values, int64_t begin, int64_t end) {
    first = {nullptr, 0};
    found = 0;
    for (int64_t k = 0; values.cached.rows && k < end - begin; ++k) rows[k] = nullptr;
    values.ForStretches(begin, end, [&](int64_t from, int64_t to, const StoredRows<S>& stretch) HWY_ATTR {
      if (found == 0) first = stretch;
      found += to - from;
      Addresses(stretch, to - from, rows + (from - begin));
    });
  }

 private:
  /// By vectors: a loop over the rows took 2 % of a call.
  static HWY_INLINE void Addresses(const StoredRows<S>& stretch, int64_t count, const S** to) {
    const hn::ScalableTag<uint64_t> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto stride = static_cast<uint64_t>(stretch.stride) * sizeof(S);
    auto address = hn::Add(hn::Set(d, reinterpret_cast<uint64_t>(stretch.data)),
                           hn::Mul(hn::Iota(d, 0), hn::Set(d, stride)));
    for (int64_t k = 0; k < count; k += lanes) {
      hn::BlendedStore(address, hn::FirstN(d, static_cast<size_t>(count - k)), d,
                       reinterpret_cast<uint64_t*>(to + k));
      address = hn::Add(address, hn::Set(d, stride * static_cast<uint64_t>(lanes)));
    }
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

/// The weights of a piece for kRows rows, rounded, in pairs.
template <int kRows>
struct RoundedWeights {
  alignas(64) uint32_t twos[kRows][tile_keys / 2];
  bool every;  ///< no weight of a row counts as 0

  /// For the first `count` weights, a multiple of eight. Behind them there is memory for whole vectors.
  HWY_INLINE RoundedWeights(const float* weights, int64_t weight_stride, int64_t count) {
    const hn::ScalableTag<float> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    auto smallest = hn::Set(d, 1.0f);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const float* from = weights + r * weight_stride;
      auto* to = reinterpret_cast<uint16_t*>(twos[r]);
      int64_t j = 0;
      // A NaN does not count as 0: Min returns its second argument then.
      for (; j + lanes <= count; j += lanes) {
        const auto some = hn::LoadU(d, from + j);
        StoreRounded(some, to + j);
        smallest = hn::Min(some, smallest);
      }
      if (j == count) continue;
      const auto some = hn::LoadU(d, from + j);
      StoreRounded(some, to + j);
      smallest = hn::Min(hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count - j)), some, smallest), smallest);
    }
    every = hn::AllFalse(d, hn::Lt(smallest, hn::Set(d, kSmallestWeight)));
  }
};

/// Adds kVectors vectors of the values of `pairs` pairs of keys, from element i on, to those of kRows
/// gathered rows. The last vector has `last` elements. The sums stay in registers over the whole piece: with
/// sums that were loaded and stored for each sixteen values, values reached 76 % of the rate of dot products
/// in the first-level cache, and 98 % so. Fetches `fetched` rows of those ahead behind every pair. Without
/// kScattered the addresses of the values are computed.
template <int kRows, int kVectors, bool kWhole, bool kScattered, Dots S>
HWY_NOINLINE void AddPieceColumns(const uint32_t (*twos)[tile_keys / 2], const PieceRows<S>& values,
                                  int64_t pairs, int64_t i, int64_t last, RowsToFetch<S>& ahead,
                                  int64_t fetched, int64_t dim, float* gathered, int64_t padded) {
  const hn::ScalableTag<float> d;
  const PairTag d16;
  PairSums sums[kRows][2 * kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) sums[r][v] =
        hn::LoadU(d, gathered + r * padded + i + 16 * v);
  }
  RowsToFetch<S> next = ahead;
  const S* row = values.first.data + i;
  const S* const* rows = values.rows;
  const uint32_t* weights = twos[0];
  for (const uint32_t* end = weights + pairs; weights < end; ++weights) {
    for (int64_t n = 0; n < fetched; ++n) next.Next(dim);
    const S *even = kScattered ? rows[0] + i : row,
            *odd = kScattered ? rows[1] + i : row + values.first.stride;
    rows += 2;
    row = odd + values.first.stride;
    Pairs value[2 * kVectors];
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
      const Pairs a = kWhole ? LoadWholePairs(even + v * kPairLanes) : LoadPairs(even + v * kPairLanes, last),
                  b = kWhole ? LoadWholePairs(odd + v * kPairLanes) : LoadPairs(odd + v * kPairLanes, last);
      value[2 * v] = hn::InterleaveLower(d16, a, b);
      value[2 * v + 1] = hn::InterleaveUpper(d16, a, b);
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const Pairs weight{_mm512_set1_epi32(static_cast<int>(weights[r * (tile_keys / 2)]))};
      FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) AddDots(sums[r][v], weight, value[v]);
    }
  }
  ahead = next;
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v)
        hn::StoreU(sums[r][v], d, gathered + r * padded + i + 16 * v);
  }
}

/// Adds eights of values to kRows rows, some of which have a weight that counts as 0, or lack a value.
template <int kRows, Dots S>
HWY_NOINLINE void AddEights(const float* weights, int64_t weight_stride, const RoundedWeights<kRows>& rounded,
                            const PieceRows<S>& values, int64_t begin, int64_t count, int64_t dim,
                            float* gathered, int64_t padded) {
  const hn::CappedTag<float, kEight> d8;
  for (int64_t j = begin; j < count; j += kEight) {
    const S* const* rows = values.rows + j;
    bool there = j + kEight <= count;
    for (int k = 0; there && k < kEight; ++k) there = rows[k] != nullptr;
    for (int r = 0; r < kRows; ++r) {
      const float* from = weights + r * weight_stride + j;
      float* to = gathered + r * padded;
      if (there && hn::AllFalse(d8, hn::Lt(hn::LoadU(d8, from), hn::Set(d8, kSmallestWeight)))) {
        uint32_t twos[1][kTwos];
        hwy::CopyBytes<sizeof(twos)>(rounded.twos[r] + j / 2, twos);
        AddEight<1, false>(twos, rows, dim, to, padded);
      } else {
        AddSomeOfEight(from, HWY_MIN(count - j, int64_t{kEight}), rows, dim, to);
      }
    }
  }
}

/// gathered[r] += Σ_j weights[r · weight_stride + j] · value j for kRows rows and the `count` values of a
/// piece. With `fetch` as many rows are fetched that lie a piece ahead, evenly over the products.
template <int kRows, Dots S>
HWY_INLINE void AddPieceRows(const float* weights, int64_t weight_stride, const PieceRows<S>& values,
                             int64_t dim, int64_t count, bool fetch, float* gathered, int64_t padded) {
  const int64_t eights = count / kEight * kEight, pairs = eights / 2;
  const RoundedWeights<kRows> rounded(weights, weight_stride, eights);
  RowsToFetch<S> ahead(values.first, tile_keys, fetch);
  if (!rounded.every || values.found < count || pairs == 0) {
    for (int64_t k = 0; k < count; ++k) ahead.Next(dim);
    return AddEights<kRows>(weights, weight_stride, rounded, values, 0, count, dim, gathered, padded);
  }
  // One row has eight sums: a product waits six cycles for the sum before it.
  constexpr int kVectors = kRows == 4 ? 2 : 4;
  const int64_t width = kVectors * kPairLanes, wide = dim / width * width,
                passes = dim / width + (dim - wide + kPairLanes - 1) / kPairLanes,
                fetched = fetch ? (2 + passes - 1) / passes : 0;
  const auto add = [&]<bool kScattered>() HWY_ATTR {
    int64_t i = 0;
    for (; i < wide; i += width)
      AddPieceColumns<kRows, kVectors, true, kScattered>(rounded.twos, values, pairs, i, kPairLanes, ahead,
                                                         fetched, dim, gathered, padded);
    for (; i < dim; i += kPairLanes)
      AddPieceColumns<kRows, 1, false, kScattered>(rounded.twos, values, pairs, i, dim - i, ahead, fetched,
                                                   dim, gathered, padded);
  };
  values.first.count >= count ? add.template operator()<false>() : add.template operator()<true>();
  if (eights < count)
    AddEights<kRows>(weights, weight_stride, rounded, values, eights, count, dim, gathered, padded);
}

template <Dots S>
HWY_INLINE void AddPieceValues(S, const HeadRows<S>& values, const Piece& piece, int64_t rows_end,
                               int64_t rows, const float* weights, int64_t weight_stride, int64_t dim,
                               float* gathered, int64_t padded) {
  PieceRows<S> own;
  own.Fill(values, piece.begin, piece.end);
  ForRowGroups(rows, [&]<int kRows>(int64_t r) HWY_ATTR {
    AddPieceRows<kRows>(weights + r * weight_stride, weight_stride, own, dim, piece.end - piece.begin, r == 0,
                        gathered + r * padded, padded);
  });
}

/// Restores the order of each 32 elements. InterleaveLower left elements 0-3, 8-11, 16-19, 24-27 in the first
/// half.
template <Dots S>
HWY_INLINE void Unravel(S, int64_t width, float* gathered) {
  const hn::ScalableTag<float> d;
  const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0),
                second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  for (int64_t i = 0; i < width; i += kPairLanes) {
    const __m512d low = _mm512_castps_pd(hn::LoadU(d, gathered + i).raw),
                  high = _mm512_castps_pd(hn::LoadU(d, gathered + i + 16).raw);
    hn::StoreU(PairSums{_mm512_castpd_ps(_mm512_permutex2var_pd(low, first, high))}, d, gathered + i);
    hn::StoreU(PairSums{_mm512_castpd_ps(_mm512_permutex2var_pd(low, second, high))}, d, gathered + i + 16);
  }
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

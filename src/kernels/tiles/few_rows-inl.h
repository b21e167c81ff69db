// The values of `decode` for few rows, and one piece of it from its scores to the gathered values. Where few
// rows share a key they go four at a time, so that each value is loaded once for four of them.
#if defined(FOVEA_TILES_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_FEW_ROWS_INL_H_
#undef FOVEA_TILES_FEW_ROWS_INL_H_
#else
#define FOVEA_TILES_FEW_ROWS_INL_H_
#endif

#include "kernels/tiles/decode-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

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

/// Adds n elements of eight values, from element i on, to those of a gathered row.
template <bool kSome, bool kWhole, Dots S>
HWY_INLINE void AddVector(const Pairs (&factor)[kTwos], const S* const* values, int64_t i, int64_t n,
                          float* gathered) {
  const hn::ScalableTag<float> d;
  const PairTag pairs;
  PairSums low = hn::LoadU(d, gathered + i), high = hn::LoadU(d, gathered + i + 16);
  FOVEA_UNROLL for (int k = 0; k < kTwos; ++k) {
    const Pairs a = LoadSome<kSome, kWhole>(values[2 * k], i, n),
                b = LoadSome<kSome, kWhole>(values[2 * k + 1], i, n);
    AddDots(low, factor[k], hn::InterleaveLower(pairs, a, b));
    AddDots(high, factor[k], hn::InterleaveUpper(pairs, a, b));
  }
  hn::StoreU(low, d, gathered + i);
  hn::StoreU(high, d, gathered + i + 16);
}

/// gathered += Σ weights · values for one row, whose eight weights are pairs in `twos`. Each 32 gathered
/// elements are in the order that interleaving leaves; Unravel restores theirs. With kSome values may be
/// null, and are 0 then.
template <bool kSome, Dots S>
HWY_INLINE void AddEight(const uint32_t* twos, const S* const* values, int64_t dim, float* gathered) {
  const PairTag pairs;
  const hn::RepartitionToWide<PairTag> du;
  Pairs factor[kTwos];
  FOVEA_UNROLL for (int k = 0; k < kTwos; ++k) factor[k] = hn::BitCast(pairs, hn::Set(du, twos[k]));
  int64_t i = 0;
  for (; i + kPairLanes <= dim; i += kPairLanes)
    AddVector<kSome, true>(factor, values, i, kPairLanes, gathered);
  if (i < dim) AddVector<kSome, false>(factor, values, i, dim - i, gathered);
}

/// AddEight with weights of 0. Values with such a weight count as 0: they may be NaN, or missing
/// from the cache. Rounding has made weights below the normal numbers 0, since the dot products take them for
/// it.
template <Dots S>
HWY_NOINLINE void AddSomeOfEight(const uint32_t* weights, int64_t count, const S* const* values, int64_t dim,
                                 float* gathered) {
  uint16_t rounded[kEight];
  hwy::CopyBytes<sizeof(rounded)>(weights, rounded);
  const S* seen[kEight];
  bool any = false;
  for (int64_t k = 0; k < kEight; ++k) {
    const bool counts = k < count && rounded[k] != 0 && values[k];
    seen[k] = counts ? values[k] : nullptr;
    if (!counts) rounded[k] = 0;
    any = any || counts;
  }
  if (!any) return;
  uint32_t twos[kTwos];
  hwy::CopyBytes<sizeof(rounded)>(rounded, twos);
  AddEight<true>(twos, seen, dim, gathered);
}

/// The weights of a piece for kRows rows, rounded, in pairs.
template <int kRows>
struct RoundedWeights {
  alignas(64) uint32_t twos[kRows][tile_keys / 2];
  bool every;  ///< no weight of a row counts as 0

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

/// The most tiles whose keys few rows take at a time.
constexpr int64_t kMostTiles = 8;

/// Absorb for three or four rows and the `count` scores of at most kMostTiles tiles, whose weights are only
/// rounded. Each step runs over all tiles, and each tile over all rows, so that the maxima and sums over
/// lanes do not wait for each other. Returns false, and changes nothing but the memory behind the scores, if
/// a row has seen no key.
template <int kRows>
HWY_NOINLINE bool AbsorbTiles(float scale, int64_t count, float* scores, int64_t stride,
                              RowState<float>* states, float (*factors)[kRows],
                              RoundedWeights<kRows>* weights) {
  const hn::ScalableTag<float> d;
  const int64_t tiles = (count + tile_keys - 1) / tile_keys;
  for (int r = 0; r < kRows; ++r) {
    for (int64_t j = count; j < Padded<float>(count); ++j) scores[r * stride + j] = kHidden<float>;
  }
  float maxima[kMostTiles][4], sums[4];
  PairSums lanes[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int64_t t = 0; t < tiles; ++t) {
    const float* tile = scores + t * tile_keys;
    const int64_t keys = HWY_MIN(count - t * tile_keys, tile_keys);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) lanes[r] = hn::LoadU(d, tile + r * stride);
    for (int64_t j = 16; j < keys; j += 16) {
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) lanes[r] =
          hn::Max(lanes[r], hn::LoadU(d, tile + r * stride + j));
    }
    FoldFour(
        lanes, [](PairSums a, PairSums b) HWY_ATTR { return hn::Max(a, b); }, maxima[t]);
  }
  for (int r = 0; r < kRows; ++r) {
    float maximum = states[r].maximum;
    for (int64_t t = 0; t < tiles; ++t) {
      const float best = maxima[t][r] * scale;
      maximum = best > maximum ? best : maximum;
      if (maximum == kHidden<float>) return false;
      maxima[t][r] = maximum;
    }
  }
  const auto factor = hn::Set(d, scale);
  alignas(64) float tile_sums[kMostTiles][kRows * 16];
  for (int64_t t = 0; t < tiles; ++t) {
    const float* tile = scores + t * tile_keys;
    const int64_t keys = HWY_MIN(count - t * tile_keys, tile_keys);
    RoundedWeights<kRows>& rounded = weights[t];
    PairSums shifts[kRows];
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      shifts[r] = hn::Set(d, maxima[t][r]);
      lanes[r] = hn::Zero(d);
    }
    auto smallest = hn::Set(d, 1.0f);
    const auto absorb = [&]<bool kWhole>(int64_t j) HWY_ATTR {
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        const auto e = RoundedExponential::Of(
            d, hn::Sub(hn::Mul(hn::LoadU(d, tile + r * stride + j), factor), shifts[r]));
        StoreRounded(e, rounded.Row(r) + j);
        lanes[r] = hn::Add(lanes[r], e);
        smallest = kWhole ? hn::Min(e, smallest) : RoundedWeights<kRows>::Smaller(smallest, e, keys - j);
      }
    };
    int64_t j = 0;
    for (; j + 16 <= keys; j += 16) absorb.template operator()<true>(j);
    if (j < keys) absorb.template operator()<false>(j);
    rounded.SetEvery(smallest);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) hn::Store(lanes[r], d, tile_sums[t] + 16 * r);
  }
  if (kRows < 4) lanes[3] = hn::Zero(d);
  for (int64_t t = 0; t < tiles; ++t) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) lanes[r] = hn::Load(d, tile_sums[t] + 16 * r);
    FoldFour(
        lanes, [](PairSums a, PairSums b) HWY_ATTR { return hn::Add(a, b); }, sums);
    for (int r = 0; r < kRows; ++r) factors[t][r] = Advance(maxima[t][r], sums[r], states[r]);
  }
  return true;
}

/// The weights of `pairs` pairs of keys for kRows rows, and the factors of what was gathered before.
template <int kRows>
struct PiecePairs {
  const RoundedWeights<kRows>* weights;
  const float* factors;
  int64_t pairs;
};

/// Rows that are fetched beside products, kWidth elements at a time, in the order in which they lie.
template <int kWidth, Dots S>
struct RowStream {
  const S* const* row = nullptr;
  const S* const* end = nullptr;
  int64_t dim = 0, at = 0;
  HWY_INLINE void Fetch() {
    if (row >= end) return;
    FetchLines<kWidth* static_cast<int>(sizeof(S)) / 64>(*row + at);
    at += kWidth;
    if (at >= dim) {
      at = 0;
      ++row;
    }
  }
};

/// Adds kVectors vectors of values, from element i on, to those of kRows gathered rows. The last vector has
/// `last` elements. Of each piece it adds `pairs` pairs, from pair `begin` on. The sums stay in registers
/// over all of them.
template <int kRows, int kVectors, bool kWhole, Dots S, class Stream>
HWY_INLINE void AddColumns(const PiecePairs<kRows>* pieces, int64_t piece_count, int64_t begin, int64_t pairs,
                           const S* const* rows, Stream& ahead, int64_t i, int64_t last, float* gathered,
                           int64_t padded) {
  const hn::ScalableTag<float> d;
  const PairTag d16;
  PairSums sums[kRows][2 * kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) sums[r][v] =
        hn::LoadU(d, gathered + r * padded + i + 16 * v);
  }
  for (const PiecePairs<kRows>* piece = pieces; piece < pieces + piece_count; ++piece) {
    if (begin == 0) {
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        const auto factor = hn::Set(d, piece->factors[r]);
        FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) sums[r][v] = hn::Mul(sums[r][v], factor);
      }
    }
    const uint32_t* weights = piece->weights->twos[0] + begin;
    for (const uint32_t* end = weights + HWY_MIN(pairs, piece->pairs - begin); weights < end;
         ++weights, rows += 2) {
      ahead.Fetch();
      ahead.Fetch();
      const S *even = rows[0] + i, *odd = rows[1] + i;
      Pairs value[2 * kVectors];
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
        const Pairs a = kWhole ? LoadWholePairs(even + v * kPairLanes)
                               : LoadPairs(even + v * kPairLanes, last),
                    b = kWhole ? LoadWholePairs(odd + v * kPairLanes) : LoadPairs(odd + v * kPairLanes, last);
        value[2 * v] = hn::InterleaveLower(d16, a, b);
        value[2 * v + 1] = hn::InterleaveUpper(d16, a, b);
      }
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        const Pairs weight{_mm512_set1_epi32(static_cast<int>(weights[r * (tile_keys / 2)]))};
        FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) AddDots(sums[r][v], weight, value[v]);
      }
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v)
        hn::StoreU(sums[r][v], d, gathered + r * padded + i + 16 * v);
  }
}

/// The pairs of values whose columns follow each other where a row has more columns than the registers hold
/// sums. These rows and as many that are fetched lie in the first-level cache, so memory is read once and in
/// order. Over 1,024 values a pass for each half of the columns read every other 128 bytes of the last-level
/// cache (docs/tried.md).
constexpr int64_t kPairsInBlock = 16;

/// AddColumns for all columns and pieces.
template <int kRows, Dots S>
HWY_NOINLINE void AddAllColumns(const PiecePairs<kRows>* pieces, int64_t piece_count, const S* const* rows,
                                Fetching fetching, int64_t dim, float* gathered, int64_t padded) {
  // One row has eight sums: a product waits six cycles for the sum before it.
  constexpr int kVectors = kRows >= 3 ? 2 : 4;
  constexpr int64_t kWidth = kVectors * kPairLanes;
  RowStream<kWidth, S> ahead{rows + fetching.ahead, rows + fetching.ahead + fetching.count, dim};
  if (dim == kWidth) {
    AddColumns<kRows, kVectors, true>(pieces, piece_count, 0, tile_keys, rows, ahead, 0, kPairLanes, gathered,
                                      padded);
    return;
  }
  const S* const* fetched = ahead.end;
  for (const PiecePairs<kRows>* piece = pieces; piece < pieces + piece_count; ++piece) {
    int64_t begin = 0;
    do {
      const S* const* behind = rows + 2 * HWY_MIN(kPairsInBlock, piece->pairs - begin);
      ahead.end = HWY_MIN(behind + fetching.ahead, fetched);
      int64_t i = 0;
      for (; i + kWidth <= dim; i += kWidth)
        AddColumns<kRows, kVectors, true>(piece, 1, begin, kPairsInBlock, rows, ahead, i, kPairLanes,
                                          gathered, padded);
      for (; i < dim; i += kPairLanes)
        AddColumns<kRows, 1, false>(piece, 1, begin, kPairsInBlock, rows, ahead, i, dim - i, gathered,
                                    padded);
      rows = behind;
      begin += kPairsInBlock;
    } while (begin < piece->pairs);
  }
}

/// Adds eights of values, from the one of key `begin` on, to kRows rows, some of which have a weight that
/// counts as 0, or lack a value.
template <int kRows, Dots S>
HWY_NOINLINE void AddEights(const RoundedWeights<kRows>& weights, const S* const* values, int64_t begin,
                            int64_t count, int64_t dim, float* gathered, int64_t padded) {
  const hn::CappedTag<uint16_t, kEight> d;
  for (int64_t j = begin; j < count; j += kEight) {
    const S* const* rows = values + j;
    bool there = j + kEight <= count;
    for (int k = 0; there && k < kEight; ++k) there = rows[k] != nullptr;
    for (int r = 0; r < kRows; ++r) {
      const uint32_t* from = weights.twos[r] + j / 2;
      float* to = gathered + r * padded;
      const auto eight = hn::LoadU(d, reinterpret_cast<const uint16_t*>(from));
      if (there && hn::AllFalse(d, hn::Eq(eight, hn::Zero(d)))) {
        AddEight<false>(from, rows, dim, to);
      } else {
        AddSomeOfEight(from, HWY_MIN(count - j, int64_t{kEight}), rows, dim, to);
      }
    }
  }
}

/// gathered[r] = factors[r] · gathered[r] + Σ_j weight j · value j for kRows rows and the `count` values of a
/// piece.
template <int kRows, Dots S>
HWY_INLINE void AddPieceRows(const RoundedWeights<kRows>& weights, const float* factors, const S* const* rows,
                             bool all_there, Fetching fetching, int64_t dim, int64_t count, float* gathered,
                             int64_t padded) {
  const int64_t eights = weights.every && all_there ? count / kEight * kEight : 0;
  const PiecePairs<kRows> piece{&weights, factors, eights / 2};
  AddAllColumns<kRows>(&piece, 1, rows, fetching, dim, gathered, padded);
  if (eights < count) AddEights<kRows>(weights, rows, eights, count, dim, gathered, padded);
}

template <Dots S>
HWY_INLINE void AddPieceValues(S, const HeadRows<S>& values, const Piece& piece, int64_t rows,
                               const float* weights, int64_t weight_stride, int64_t dim, float* gathered,
                               int64_t padded) {
  const int64_t count = piece.end - piece.begin;
  const float unchanged[4] = {1, 1, 1, 1};
  PieceRows<S> own;
  own.Fill(values, piece.begin, piece.end, PieceRowsAhead(values, dim));
  ForRowGroups<4>(rows, [&]<int kRows>(int64_t r) HWY_ATTR {
    RoundedWeights<kRows> rounded;
    rounded.Round(weights + r * weight_stride, weight_stride, count);
    AddPieceRows<kRows>(rounded, unchanged, own.rows, own.found == count, own.fetching, dim, count,
                        gathered + r * padded, padded);
  });
}

/// ProductsOfPiece for a piece whose keys are all there. One loop goes over all of them, so queries stay in
/// registers from one page of a cache to the next. Returns false if keys are missing.
HWY_INLINE bool WholeProducts(const Problem<float>& p, const HeadRows<DotBf16>& keys, const Piece& piece,
                              int64_t first, int64_t rows, const SplitScratch<float>& scratch) {
  const int64_t padded = PaddedPairs<float>(p.score_dim), count = piece.end - piece.begin,
                stride = scratch.stride;
  PieceRows<DotBf16> own;
  own.Fill(keys, piece.begin, piece.end, PieceRowsAhead(keys, p.score_dim));
  if (own.found < count) return false;
  ForRowGroups<4>(rows, [&]<int kRows>(int64_t r) HWY_ATTR {
    ScoresAt<kRows>(scratch.queries + (first + r) * padded, padded, own.rows, own.fetching, p.score_dim,
                    count, scratch.scores + (first + r) * stride, stride);
  });
  return true;
}

/// Turns `count` scores of kRows rows into rounded weights, and writes the factors of what they gathered
/// before.
template <int kRows>
HWY_INLINE void AbsorbRows(float scale, int64_t count, float* scores, int64_t stride, RowState<float>* states,
                           float (&factors)[kRows], RoundedWeights<kRows>& weights) {
  if constexpr (kRows >= 3) {
    if (AbsorbTiles(scale, count, scores, stride, states, &factors, &weights)) return;
  }
  for (int i = 0; i < kRows; ++i)
    factors[i] = Absorb<RoundedExponential>(scale, count, scores + i * stride, states[i]);
  weights.Round(scores, stride, count);
}

/// One piece for few rows, which all see it whole.
HWY_NOINLINE void AddPieceToFew(const Problem<float>& p, const HeadRows<DotBf16>& keys,
                                const HeadRows<DotBf16>& values, const Piece& piece, int64_t first,
                                int64_t rows, const SplitScratch<float>& scratch) {
  const int64_t width = SplitWidth(p), count = piece.end - piece.begin, stride = scratch.stride;
  if (!WholeProducts(p, keys, piece, first, rows, scratch))
    ProductsOfPiece(p, keys, piece, first, rows, scratch);
  PieceRows<DotBf16> own;
  own.Fill(values, piece.begin, piece.end, PieceRowsAhead(values, p.value_dim));
  ForRowGroups<4>(rows, [&]<int kRows>(int64_t r) HWY_ATTR {
    RoundedWeights<kRows> weights;
    float factors[kRows];
    AbsorbRows<kRows>(ScaleOf(p), count, scratch.scores + (first + r) * stride, stride,
                      scratch.states + first + r, factors, weights);
    AddPieceRows<kRows>(weights, factors, own.rows, own.found == count, own.fetching, p.value_dim, count,
                        scratch.gathered + (first + r) * width, width);
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

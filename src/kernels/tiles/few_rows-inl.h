// The values of `decode` for few rows, and one piece of it from its scores to the gathered values. Where few
// rows share a key they go four at a time, so that each value is loaded once for four of them.
#if defined(FOVEA_TILES_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_FEW_ROWS_INL_H_
#undef FOVEA_TILES_FEW_ROWS_INL_H_
#else
#define FOVEA_TILES_FEW_ROWS_INL_H_
#endif

#include "kernels/tiles/few_weights-inl.h"

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

/// The weights of `pairs` pairs of keys, a multiple of four, and the factors of what was gathered before.
template <class Weights>
struct PiecePairs {
  const Weights* weights;
  const float* factors;
  int64_t pairs;
};

/// Rows that are fetched beside products, kWidth elements at a time, in the order in which they lie.
template <int kWidth, Dots S>
struct RowStream {
  static constexpr int kLines = kWidth * static_cast<int>(sizeof(S)) / 64;
  const S* const* row = nullptr;
  const S* const* end = nullptr;
  int64_t dim = 0, at = 0;
  HWY_INLINE void Fetch() {
    if (row >= end) return;
    FetchLines<kLines>(*row + at);
    at += kWidth;
    if (at >= dim) {
      at = 0;
      ++row;
    }
  }
  /// Fetch twice. Two of them are often a row.
  HWY_INLINE void FetchTwo() {
    if (dim == 2 * kWidth) {
      if (row < end) FetchLines<2 * kLines>(*row++);
    } else {
      Fetch();
      Fetch();
    }
  }
};

/// Adds kVectors vectors of values, from element i on, to those of kRows gathered rows. The last vector has
/// `last` elements. Of each piece it adds `pairs` pairs, from pair `begin` on. The sums stay in registers
/// over all of them.
template <int kRows, int kVectors, bool kWhole, class Weights, Dots S, class Stream>
HWY_INLINE void AddColumns(const PiecePairs<Weights>* pieces, int64_t piece_count, int64_t begin,
                           int64_t pairs, const S* const* rows, Stream& ahead, int64_t i, int64_t last,
                           float* gathered, int64_t padded) {
  const hn::ScalableTag<float> d;
  const PairTag d16;
  PairSums sums[kRows][2 * kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) sums[r][v] =
        hn::LoadU(d, gathered + r * padded + i + 16 * v);
  }
  for (const PiecePairs<Weights>* piece = pieces; piece < pieces + piece_count; ++piece) {
    if (begin == 0) {
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        const auto factor = hn::Set(d, piece->factors[r]);
        FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) sums[r][v] = hn::Mul(sums[r][v], factor);
      }
    }
    const uint32_t* weights = piece->weights->First() + begin / 2 * Weights::kTwoPairs;
    for (int64_t left = HWY_MIN(pairs, piece->pairs - begin); left > 0;
         left -= 2, weights += Weights::kTwoPairs, rows += 4) {
      FOVEA_UNROLL for (int k = 0; k < 2; ++k) {
        ahead.FetchTwo();
        const S *even = rows[2 * k] + i, *odd = rows[2 * k + 1] + i;
        Pairs value[2 * kVectors];
        FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
          const Pairs a = kWhole ? LoadWholePairs(even + v * kPairLanes)
                                 : LoadPairs(even + v * kPairLanes, last),
                      b = kWhole ? LoadWholePairs(odd + v * kPairLanes)
                                 : LoadPairs(odd + v * kPairLanes, last);
          value[2 * v] = hn::InterleaveLower(d16, a, b);
          value[2 * v + 1] = hn::InterleaveUpper(d16, a, b);
        }
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
          const Pairs weight{_mm512_set1_epi32(static_cast<int>(weights[r * Weights::kRow + k]))};
          FOVEA_UNROLL for (int v = 0; v < 2 * kVectors; ++v) AddDots(sums[r][v], weight, value[v]);
        }
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
template <int kRows, class Weights, Dots S>
HWY_NOINLINE void AddAllColumns(const PiecePairs<Weights>* pieces, int64_t piece_count, const S* const* rows,
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
  for (const PiecePairs<Weights>* piece = pieces; piece < pieces + piece_count; ++piece) {
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
template <int kRows, class Weights, Dots S>
HWY_NOINLINE void AddEights(const Weights& weights, const S* const* values, int64_t begin, int64_t count,
                            int64_t dim, float* gathered, int64_t padded) {
  const hn::CappedTag<uint16_t, kEight> d;
  for (int64_t j = begin; j < count; j += kEight) {
    const S* const* rows = values + j;
    bool there = j + kEight <= count;
    for (int k = 0; there && k < kEight; ++k) there = rows[k] != nullptr;
    for (int r = 0; r < kRows; ++r) {
      uint32_t from[kTwos];
      weights.Eight(r, j, from);
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
template <int kRows, class Weights, Dots S>
HWY_INLINE void AddPieceRows(const Weights& weights, const float* factors, const S* const* rows,
                             bool all_there, Fetching fetching, int64_t dim, int64_t count, float* gathered,
                             int64_t padded) {
  const int64_t eights = weights.every && all_there ? count / kEight * kEight : 0;
  const PiecePairs<Weights> piece{&weights, factors, eights / 2};
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

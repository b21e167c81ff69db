// The loop of `decode` over one piece for many rows, which all see the piece whole: several queries, or forks
// of a sequence that share keys. Each row has the bits that it has alone. What is left to the loop for few
// rows (tiles/few_rows-inl.h): the last few rows, and 16 rows with a weight too small for the dot products.
#if defined(FOVEA_TILES_MANY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_MANY_ROWS_INL_H_
#undef FOVEA_TILES_MANY_ROWS_INL_H_
#else
#define FOVEA_TILES_MANY_ROWS_INL_H_
#endif

#include "kernels/tiles/tiles_together-inl.h"
#include "kernels/tiles/values-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// Fewer rows than this are left to the loop for few rows, which takes as long for 14.
constexpr int64_t kLeastLaneRows = 14;
/// The rows whose weights are held at a time.
constexpr int64_t kMostLaneRows = 64;

/// Absorb for 16 rows at once, of which `rows` exist: scores[16j + r] is that of row r and key j. weights[16k
/// + r] gets the weights of keys 2k and 2k + 1, factors[r] what Absorb returns. `count` is a multiple of 16.
/// Returns false, and changes no state, if a row has no finite maximum, a sum that is NaN, or a weight that
/// the dot products take for 0.
HWY_NOINLINE bool AbsorbLanes(float scale, int64_t count, const float* scores, int64_t rows,
                              RowState<float>* states, uint32_t* weights, float* factors) {
  const hn::ScalableTag<float> d;
  alignas(64) float maxima[kLaneRows], sums[kLaneRows];
  for (int64_t r = 0; r < kLaneRows; ++r) maxima[r] = r < rows ? states[r].maximum : kHidden<float>;
  PairSums best[4];
  FOVEA_UNROLL for (int i = 0; i < 4; ++i) best[i] = hn::Load(d, scores + i * kLaneRows);
  for (int64_t j = 4; j < count; j += 4) {
    FOVEA_UNROLL for (int i = 0; i < 4; ++i) best[i] =
        hn::Max(best[i], hn::Load(d, scores + (j + i) * kLaneRows));
  }
  const auto factor = hn::Set(d, scale);
  const auto old = hn::Load(d, maxima),
             highest = hn::Mul(hn::Max(hn::Max(best[0], best[1]), hn::Max(best[2], best[3])), factor);
  const auto maximum = hn::IfThenElse(hn::Gt(highest, old), highest, old);
  // Lane j mod 16 of a row's sum, as Exponentials adds them.
  PairSums lanes[kLaneRows];
  FOVEA_UNROLL for (int i = 0; i < kLaneRows; ++i) lanes[i] = hn::Zero(d);
  auto smallest = hn::Set(d, 1.0f);
  // Eight of them at a time, since 16 would leave too few registers for the constants of Exp.
  FOVEA_UNROLL for (int first = 0; first < kLaneRows; first += 8) {
    for (int64_t j = first; j < count; j += kLaneRows) {
      FOVEA_UNROLL for (int i = 0; i < 8; i += 2) {
        const float* two = scores + (j + i) * kLaneRows;
        const auto even = RoundedExponential::Of(d, hn::Sub(hn::Mul(hn::Load(d, two), factor), maximum)),
                   odd = RoundedExponential::Of(
                       d, hn::Sub(hn::Mul(hn::Load(d, two + kLaneRows), factor), maximum));
        lanes[first + i] = hn::Add(lanes[first + i], even);
        lanes[first + i + 1] = hn::Add(lanes[first + i + 1], odd);
        smallest = hn::Min(smallest, hn::Min(even, odd));
        hn::Store(PairsOf(even, odd), UnsignedOf<decltype(d)>(), weights + (j + i) / 2 * kLaneRows);
      }
    }
  }
  FOVEA_UNROLL for (int half = kLaneRows / 2; half > 0; half /= 2) {
    FOVEA_UNROLL for (int i = 0; i < half; ++i) lanes[i] = hn::Add(lanes[i], lanes[i + half]);
  }
  const auto exist = hn::FirstN(d, static_cast<size_t>(rows));
  const auto plain =
      hn::And(hn::And(hn::Ge(smallest, hn::Set(d, kSmallestWeight)), hn::Eq(lanes[0], lanes[0])),
              hn::Gt(maximum, hn::Set(d, kHidden<float>)));
  if (!hn::AllFalse(d, hn::AndNot(plain, exist))) return false;
  hn::Store(maximum, d, maxima);
  hn::Store(lanes[0], d, sums);
  for (int64_t r = 0; r < rows; ++r) factors[r] = Advance(maxima[r], sums[r], states[r]);
  return true;
}
#undef FOVEA_UNROLL

template <class F>
HWY_INLINE void LaneScoresOfPiece(const float* queries, const HeadRows<DotBf16>& keys, const Piece& piece,
                                  int64_t dim, float* scores, F&& after_each) {
  keys.ForStretches(piece.begin, piece.end,
                    [&](int64_t begin, int64_t end, const StoredRows<DotBf16>& from) HWY_ATTR {
                      const auto lanes = [&]<int kVectors>() HWY_ATTR {
                        LaneScores<kVectors>(queries, from, end - begin,
                                             scores + (begin - piece.begin) * kLaneRows, after_each);
                      };
                      switch (dim / kPairLanes) {
                        case 1:
                          return lanes.template operator()<1>();
                        case 2:
                          return lanes.template operator()<2>();
                        case 3:
                          return lanes.template operator()<3>();
                        default:
                          return lanes.template operator()<kKeptVectors>();
                      }
                    });
}

class ManyRows {
 public:
  ManyRows(const Problem<float>& p, const HeadRows<DotBf16>& keys, const HeadRows<DotBf16>& values,
           const Piece& piece, const SplitScratch<float>& scratch)
      : p_(p), keys_(keys), values_(values), piece_(piece), scratch_(scratch) {}

  /// Whether the piece is one that Add can take.
  HWY_INLINE bool Fill(int64_t rows_begin, int64_t rows_end) {
    const int64_t count = Count();
    if (p_.score_dim % kPairLanes != 0 || p_.score_dim > kKeptVectors * kPairLanes || count % kLaneRows != 0)
      return false;
    value_rows_.Fill(values_, piece_.begin, piece_.end, 0);
    if (value_rows_.found < count) return false;
    const int64_t next_end = HWY_MIN(rows_end, piece_.end + tile_keys);
    next_keys_.Fill(keys_, piece_.end, next_end, 0);
    next_values_.Fill(values_, piece_.end, next_end, 0);
    fetch_keys_ = {&next_keys_, next_end - piece_.end, p_.score_dim};
    fetch_values_ = {&next_values_, next_end - piece_.end, p_.value_dim};
    if (piece_.begin == rows_begin) fetch_own_ = {&value_rows_, count, p_.value_dim};
    return true;
  }

  /// Adds the piece to rows [first, first + rows), at most kMostLaneRows.
  HWY_INLINE void Add(int64_t first, int64_t rows) {
    const int64_t padded = PaddedPairs<float>(p_.score_dim), width = SplitWidth(p_), count = Count();
    const int64_t at_once = 4 * kLaneRows / HWY_MAX(rows, kLaneRows);
    bool added[kMostLaneRows / kLaneRows] = {};
    for (int64_t g = 0, r = 0; r < rows; ++g, r += kLaneRows) {
      const int64_t there = HWY_MIN(rows - r, kLaneRows), row = first + r;
      float factors[kLaneRows];
      if (there >= kLeastLaneRows) {
        LaneScoresOfPiece(scratch_.queries + row * padded, keys_, piece_, p_.score_dim, scores_, [&] {
          fetch_own_.Fetch(at_once);
          fetch_keys_.Fetch(at_once);
        });
        added[g] =
            AbsorbLanes(ScaleOf(p_), count, scores_, there, scratch_.states + row, weights_[g], factors);
      }
      if (!added[g]) {
        AddPieceToFew(p_, keys_, values_, piece_, row, there, scratch_);
        continue;
      }
      for (int64_t i = 0; i < there; ++i) {
        if (factors[i] != 1.0f) Scale(factors[i], width, scratch_.gathered + (row + i) * width);
      }
    }
    int64_t i = 0;
    for (; i + kPairLanes < p_.value_dim; i += kPanelWidth) AddColumns<kPanelVectors>(i, first, rows, added);
    if (i < p_.value_dim) AddColumns<2>(i, first, rows, added);
  }

 private:
  HWY_INLINE int64_t Count() const { return piece_.end - piece_.begin; }

  template <int kVectors>
  HWY_INLINE void AddColumns(int64_t i, int64_t first, int64_t rows, const bool* added) {
    const int64_t width = SplitWidth(p_), pairs = Count() / 2;
    PackPanel<kVectors>(value_rows_.rows, pairs, i, p_.value_dim, panel_);
    for (int64_t g = 0, r = 0; r < rows; ++g, r += kLaneRows) {
      if (added[g])
        AddPanelRows<kVectors>(HWY_MIN(rows - r, kLaneRows), weights_[g], panel_, pairs,
                               scratch_.gathered + (first + r) * width + i, width, fetch_values_);
    }
  }

  const Problem<float>& p_;
  const HeadRows<DotBf16>&keys_, &values_;
  const Piece piece_;
  const SplitScratch<float>& scratch_;
  PieceRows<DotBf16> value_rows_, next_keys_, next_values_;
  RowsInTurn<DotBf16> fetch_own_{}, fetch_keys_{}, fetch_values_{};
  alignas(64) float scores_[tile_keys * kLaneRows];
  alignas(64) uint32_t weights_[kMostLaneRows / kLaneRows][kPanelPairs * kLaneRows];
  alignas(64) Panel panel_;
};

/// Adds one piece to rows that all see it whole.
HWY_NOINLINE bool AddWholePiece(DotBf16, const Problem<float>& p, const HeadRows<DotBf16>& keys,
                                const HeadRows<DotBf16>& values, const Piece& piece,
                                const KeysAfter<DotBf16>& after, int64_t rows_begin, int64_t rows_end,
                                int64_t first, int64_t rows, const SplitScratch<float>& scratch) {
  if (rows >= kLeastLaneRows && first % kLaneRows == 0) {
    ManyRows many(p, keys, values, piece, scratch);
    if (many.Fill(rows_begin, rows_end)) {
      for (int64_t r = 0; r < rows; r += kMostLaneRows) many.Add(first + r, HWY_MIN(rows - r, kMostLaneRows));
      return true;
    }
  }
  if (rows <= kMostRowsTogether && AddTilesToFew(p, keys, values, piece, after, first, rows, scratch))
    return true;
  Piece tile = piece;
  for (; tile.begin < piece.end; tile.begin = tile.end) {
    tile.end = HWY_MIN(tile.begin + tile_keys, piece.end);
    AddPieceToFew(p, keys, values, tile, first, rows, scratch);
  }
  return true;
}

/// Writes the queries of all rows as AddWholePiece reads them too.
HWY_INLINE void LoadedQueries(DotBf16, int64_t rows, int64_t padded, float* queries) {
  if (padded > kKeptVectors * kPairLanes) return;
  for (int64_t r = 0; r + kLeastLaneRows <= rows; r += kLaneRows) {
    if (rows < r + kLaneRows) Fill(0.0f, (r + kLaneRows - rows) * padded, queries + rows * padded);
    TransposeQueries(padded, queries + r * padded);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

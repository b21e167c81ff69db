// The steps of the algorithm `split` (split-inl.h) over one piece of keys: products, weights and values of
// the rows of a member.
#if defined(FOVEA_FLASH_SPLIT_PIECES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SPLIT_PIECES_INL_H_
#undef FOVEA_FLASH_SPLIT_PIECES_INL_H_
#else
#define FOVEA_FLASH_SPLIT_PIECES_INL_H_
#endif

#include "kernels/flash/direct-inl.h"
#include "kernels/flash/split_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The three other steps that depend on S and have overloads (tiles/{decode,few_rows}-inl.h). LoadQuery
/// writes a query as StoredScores reads it. AddPieceValues adds the values of one piece to `rows` rows.
/// Unravel puts the gathered values into order.
template <class T, class S>
HWY_INLINE void AddPieceValues(S, const HeadRows<S>& values, const Piece& piece, int64_t rows,
                               const T* weights, int64_t weight_stride, int64_t dim, T* gathered,
                               int64_t padded) {
  values.ForStretches(
      piece.begin, piece.end, [&](int64_t begin, int64_t end, const StoredRows<S>& from) HWY_ATTR {
        ForRowGroups<4>(rows, [&]<int kRows>(int64_t r) {
          AddStoredRows<kRows>(weights + r * weight_stride + (begin - piece.begin), weight_stride, from, dim,
                               end - begin, r == 0, gathered + r * padded, padded);
        });
      });
}
template <class T, class S>
HWY_INLINE void LoadQuery(S, const T* from, int64_t dim, int64_t padded, T* to) {
  Copy(from, dim, to);
  Fill(T{0}, padded - dim, to + dim);
  Ravel<S>(padded, to);
}
template <class T, class S>
HWY_INLINE void Unravel(S, int64_t width, T* gathered) {
  Unravel<S>(width, gathered);
}

/// The elements from row to row of gathered values: whole pairs of vectors.
template <class T>
HWY_INLINE int64_t SplitWidth(const Problem<T>& p) {
  return PaddedPairs<T>(p.value_dim);
}

/// The rows that share a key: the queries of all heads of a group, head by head.
template <class T>
HWY_INLINE int64_t GroupRows(const Problem<T>& p) {
  return p.query_heads / p.kv_heads * p.query_len;
}

/// The scratch buffers of one thread. Queries [dim, padded], scores [stride] and gathered [SplitWidth] have a
/// row for each query of the heads and entries that are computed together. `keep` [stride] holds the factors
/// of dropout for one row.
template <class T>
struct SplitScratch {
  int64_t stride;
  T *queries, *scores, *gathered, *keep;
  RowState<T>* states;
  ModBuffers<T> mods;
};
template <class T>
HWY_NOINLINE SplitScratch<T> TakeSplitScratch(const Problem<T>& p, int64_t rows, int64_t key_len,
                                              Carve& carve) {
  const int64_t stride = TileStride<T>(key_len);
  return {stride,
          carve.Take<T>((rows + 15) / 16 * 16 * PaddedPairs<T>(p.score_dim)),  // see LoadedQueries
          carve.Take<T>(rows * stride),
          carve.Take<T>(rows * SplitWidth(p)),
          carve.Take<T>(stride),
          carve.Take<RowState<T>>(rows),
          TakeModBuffers(p.mods, 1, false, carve)};
}

/// The queries of one entry and of some heads that share a head of keys, and these keys and values.
template <class T, class S>
struct SplitMember {
  const Problem<T>* problem;
  BlockAt<T> at;
  HeadRows<S> keys, values;
};

/// The products of one piece, which all rows see whole, with the queries of `rows` rows from `first` on.
template <class T, class S>
HWY_INLINE void ProductsOfPiece(const Problem<T>& p, const HeadRows<S>& keys, const Piece& piece,
                                int64_t first, int64_t rows, const SplitScratch<T>& scratch) {
  const int64_t padded = PaddedPairs<T>(p.score_dim), stride = scratch.stride;
  keys.ForStretches(
      piece.begin, piece.end, [&](int64_t begin, int64_t end, const StoredRows<S>& from) HWY_ATTR {
        ForRowGroups<4>(rows, [&]<int kRows>(int64_t r) {
          StoredScores<kRows>(scratch.queries + (first + r) * padded, padded, from, p.score_dim, end - begin,
                              r == 0, scratch.scores + (first + r) * stride + (begin - piece.begin), stride);
        });
      });
}

/// The keys that are probably read behind a piece: those of `rows` from position `begin` on.
template <class S>
struct KeysAfter {
  const HeadRows<S>& rows;
  int64_t begin;
};
/// Adds one piece to rows [first, first + rows), which all see it whole, if there is a faster way than that
/// of SplitBlock (tiles/many_rows-inl.h). Returns false if there is none. Keys may be fetched up to
/// `rows_end`, and `after` too.
template <class T, class S>
HWY_INLINE bool AddWholePiece(S, const Problem<T>&, const HeadRows<S>&, const HeadRows<S>&, const Piece&,
                              const KeysAfter<S>&, int64_t, int64_t, int64_t, int64_t,
                              const SplitScratch<T>&) {
  return false;
}
/// The most keys of a piece that AddWholePiece takes for `rows` rows.
template <class S>
HWY_INLINE int64_t MostWholeKeys(S, int64_t) {
  return kTileKeys;
}
/// Joins piece n with the pieces after it, up to `most` keys, if piece n begins at a tile, and as long as all
/// of them are full and adjacent. Advances n past the joined pieces. The result may hold several tiles,
/// unlike the pieces of a schedule.
HWY_INLINE Piece JoinPieces(const BlockSchedule& schedule, int64_t most, int64_t& n) {
  Piece joined = schedule.pieces()[n++];
  // A piece is cut where tiles end, and a row has the same bits only if all its pieces are cut there.
  if (joined.begin % kTileKeys != 0) return joined;
  for (; n < schedule.piece_count(); ++n) {
    const Piece& next = schedule.pieces()[n];
    if (!joined.full || !next.full || next.begin != joined.end || next.end - joined.begin > most) break;
    joined.end = next.end;
  }
  return joined;
}
/// Called once the queries of all rows are loaded, in memory for a multiple of 16 rows.
template <class T, class S>
HWY_INLINE void LoadedQueries(S, int64_t, int64_t, T*) {}

/// The scores of one piece for the rows of `heads` heads from at.h on, in the rows of `scratch.scores` from
/// `first` on. They are as the score mods leave them, and -inf where a row does not see a key.
template <class T, class S>
HWY_INLINE void PieceScores(const SplitMember<T, S>& m, int64_t heads, int64_t first,
                            const BlockSchedule& schedule, const Piece& piece,
                            const SplitScratch<T>& scratch) {
  const Problem<T>& p = *m.problem;
  const int64_t padded = PaddedPairs<T>(p.score_dim), n = piece.end - piece.begin, rows = heads * m.at.rows,
                stride = scratch.stride;
  if (piece.full) ProductsOfPiece(p, m.keys, piece, first, rows, scratch);
  for (int64_t r = 0; r < rows; ++r) {
    T* scores = scratch.scores + (first + r) * stride;
    if (piece.full) {
      ScaleEarly(p, n, scores);
    } else {
      Fill(p.has_mods ? T{0} : kHidden<T>, n, scores);
      ForRuns(piece, schedule.row(r % m.at.rows), [&](int64_t run_begin, int64_t run_end) {
        m.keys.ForStretches(run_begin, run_end,
                            [&](int64_t begin, int64_t end, const StoredRows<S>& from) HWY_ATTR {
                              T* run = scores + (begin - piece.begin);
                              StoredScores<1>(scratch.queries + (first + r) * padded, padded, from,
                                              p.score_dim, end - begin, false, run, stride);
                              ScaleEarly(p, end - begin, run);
                            });
      });
    }
    if (!p.has_mods) continue;
    apply_mods<T>(p, {m.at.b, m.at.h + r / m.at.rows, m.at.row + r % m.at.rows, 1, piece.begin, n}, scores, n,
                  scratch.mods);
    if (!piece.full) HideOutside(schedule.row(r % m.at.rows), piece.begin, piece.end, scores);
  }
}

/// The exponential for keys and values that are stored as S.
template <class S>
struct ExponentialOf {
  using type = FullExponential;
};
template <class S>
using ExponentialFor = typename ExponentialOf<S>::type;

/// Turns the scores of one piece into weights, for the rows of `heads` heads from `at` on. All types that
/// keys are stored in share this code, which is compiled once for each exponential E.
template <class E, class T>
HWY_NOINLINE void PieceWeights(const Problem<T>& p, const BlockAt<T>& at, int64_t heads, int64_t first,
                               const Piece& piece, const SplitScratch<T>& scratch) {
  const int64_t count = piece.end - piece.begin, width = SplitWidth(p);
  const T scale = ScaleOf(p);
  for (int64_t r = 0; r < heads * at.rows; ++r) {
    T* scores = scratch.scores + (first + r) * scratch.stride;
    const T factor = Normalize<E>(p, scale, count, scores, scratch.states[first + r]);
    if (factor != T{1}) Scale(factor, width, scratch.gathered + (first + r) * width);
    if (p.dropout_rate > 0) {
      KeepFactors(p, SiteOf(p, at.b, at.h + r / at.rows, at.row + r % at.rows, piece.begin), count,
                  scratch.keep);
      MultiplyInto(scratch.keep, count, scores);
    }
  }
}

/// How many tiles from `begin` on, which is a multiple of a tile, all queries of a member see whole.
template <class T, class S>
HWY_INLINE int64_t WholeTiles(const SplitMember<T, S>& m, int64_t begin, int64_t end) {
  const BlockSchedule& schedule = ScheduleOf(*m.problem, m.at, begin, end);
  int64_t tiles = 0;
  for (; tiles < schedule.piece_count(); ++tiles) {
    const Piece& piece = schedule.pieces()[tiles];
    if (!piece.full || piece.begin != begin + tiles * kTileKeys ||
        piece.end != HWY_MIN(piece.begin + kTileKeys, end))
      break;
  }
  return tiles;
}

/// Whether a head has at most kAheadBytes of keys and of values. RowsToFetch fetches rows that lie
/// kAheadBytes behind the row being read. So short a head has none there.
template <class S, class T>
HWY_INLINE bool IsShort(const Problem<T>& p) {
  return p.key_len * HWY_MAX(p.score_dim, p.value_dim) * static_cast<int64_t>(sizeof(S)) <= kAheadBytes;
}

/// A member whose fetches go from the keys of a piece to its values, and on to the keys that are read next.
/// In pages they had gone on to the next piece of the same keys, or values, which heads in turn read much
/// later. With 32,768 keys of f32, pages of 64 went from 0.94 to 0.96 of the speed of a contiguous store, by
/// `fovea bench cache`, before pages lay in stretches.
template <class T, class S>
struct FetchedInOrder {
  SplitMember<T, S> member;
  RunsBehind<S> behind_keys, behind_values;
  FetchedInOrder(const SplitMember<T, S>& m, const Piece& piece, const KeysAfter<S>& after) : member(m) {
    FetchThen(member.keys.cached, piece.end, m.values.cached, piece.begin, behind_keys);
    FetchThen(member.values.cached, piece.end, after.rows.cached, after.begin, behind_values);
  }
  FetchedInOrder(const FetchedInOrder&) = delete;
  FetchedInOrder& operator=(const FetchedInOrder&) = delete;
};

/// Whether fetches run from page to page. Elsewhere a copy of the member would take a tenth of a call with 64
/// keys.
template <class T, class S>
HWY_INLINE bool FetchesPages(const SplitMember<T, S>& m) {
  return m.keys.cached.rows && m.keys.cached.rows->count > 1 && !IsShort<S>(*m.problem);
}

/// AddOwnPiece by scores, weights and values.
template <class T, class S>
HWY_NOINLINE void AddPieceInSteps(const SplitMember<T, S>& m, int64_t heads, int64_t first,
                                  const BlockSchedule& schedule, const Piece& piece,
                                  const SplitScratch<T>& scratch) {
  const Problem<T>& p = *m.problem;
  const int64_t width = SplitWidth(p);
  PieceScores(m, heads, first, schedule, piece, scratch);
  PieceWeights<ExponentialFor<S>>(p, m.at, heads, first, piece, scratch);
  AddPieceValues(S(), m.values, piece, heads * m.at.rows, scratch.scores + first * scratch.stride,
                 scratch.stride, p.value_dim, scratch.gathered + first * width, width);
}

/// Adds a piece to the rows of one member, which begin at row `first` of the scratch.
template <class T, class S>
HWY_INLINE void AddOwnPiece(const SplitMember<T, S>& m, int64_t heads, int64_t first,
                            const BlockSchedule& schedule, const Piece& piece, const KeysAfter<S>& after,
                            int64_t begin, int64_t end, const SplitScratch<T>& scratch) {
  const Problem<T>& p = *m.problem;
  const int64_t rows = heads * m.at.rows;
  if (piece.full && AddWholePiece(S(), p, m.keys, m.values, piece, after, begin, end, first, rows, scratch))
    return;
  if (FetchesPages(m)) {
    const FetchedInOrder<T, S> in(m, piece, after);
    return AddPieceInSteps(in.member, heads, first, schedule, piece, scratch);
  }
  AddPieceInSteps(m, heads, first, schedule, piece, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// The loop of `decode` for few rows over several tiles at a time, where all keys and values of them are
// there. Each row has the bits that it has tile by tile.
#if defined(FOVEA_TILES_TILES_TOGETHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_TILES_TOGETHER_INL_H_
#undef FOVEA_TILES_TILES_TOGETHER_INL_H_
#else
#define FOVEA_TILES_TILES_TOGETHER_INL_H_
#endif

#include "kernels/tiles/few_rows-inl.h"
#include "kernels/tiles/four_rows-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The tiles whose keys few rows take at a time, where all of them are there. Between the loops over keys
/// and over values one result waits for the next (docs/tried.md). For one group of rows half
/// as many were a little slower. Two groups read the tiles twice, and half as many are in a nearer cache
/// then.
constexpr int64_t kTilesTogether = kMostTiles, kKeysTogether = kTilesTogether * tile_keys,
                  kMostRowsTogether = 8;
HWY_INLINE int64_t MostWholeKeys(DotBf16, int64_t rows) {
  if (rows > kMostRowsTogether) return tile_keys;
  return rows > 4 ? kKeysTogether / 2 : kKeysTogether;
}

/// Where the keys of a piece lie, then its values, then the keys that are read next. They are read in this
/// order, and beside each row one is fetched that is read later. So the first values come beside the last
/// keys, and the next keys, of whichever head, beside the last values, unless a piece is shorter than that.
struct RowsTogether {
  const DotBf16* rows[2 * kKeysTogether + tile_keys];
  int64_t end = 0;  ///< rows that are written

  /// Writes the rows of positions [first, last) behind the others. Returns how many there are.
  HWY_INLINE int64_t Write(const HeadRows<DotBf16>& from, int64_t first, int64_t last) {
    const int64_t written = end;
    from.ForStretches(first, last,
                      [&](int64_t begin, int64_t behind, const StoredRows<DotBf16>& stretch) HWY_ATTR {
                        WriteAddresses(stretch, behind - begin, rows + end);
                        end += behind - begin;
                      });
    return end - written;
  }
  /// What is fetched beside `count` rows of `dim` elements, from row `begin` on.
  HWY_INLINE Fetching Beside(int64_t begin, int64_t count, int64_t dim) const {
    const int64_t ahead = HWY_MIN(RowsAhead<DotBf16>(dim), tile_keys);
    return {ahead, HWY_MIN(HWY_MAX(end - begin - ahead, 0), count)};
  }
};

/// Adds `count` values, all there, to kRows rows, by the weights and the factors of each tile of them.
template <int kRows, class Weights>
HWY_INLINE void AddTileValues(const Problem<float>& p, const RowsTogether& in, int64_t count, int64_t first,
                              const Weights* weights, const float (*factors)[kRows],
                              const SplitScratch<float>& scratch) {
  const int64_t width = SplitWidth(p);
  PiecePairs<Weights> tiles[kTilesTogether];
  bool plain = true;
  int64_t n = 0;
  for (int64_t begin = 0; begin < count; begin += tile_keys, ++n) {
    const int64_t keys_there = HWY_MIN(count - begin, tile_keys);
    tiles[n] = {&weights[n], factors[n], keys_there / 2};
    plain = plain && weights[n].every && keys_there % kEight == 0;
  }
  float* gathered = scratch.gathered + first * width;
  const DotBf16* const* values = in.rows + count;
  const Fetching fetching = in.Beside(count, count, p.value_dim);
  if (plain) {
    AddAllColumns<kRows>(tiles, n, values, fetching, p.value_dim, gathered, width);
    return;
  }
  for (int64_t t = 0; t < n; ++t)
    AddPieceRows<kRows>(weights[t], factors[t], values + t * tile_keys, true, fetching.From(t * tile_keys),
                        p.value_dim, HWY_MIN(count - t * tile_keys, tile_keys), gathered, width);
}

/// AddTilesToGroup for three or four rows that have seen a key. Returns false, and changes nothing, if one
/// has not.
template <int kRows>
HWY_INLINE bool AddTilesByFours(const Problem<float>& p, const RowsTogether& in, int64_t count, int64_t first,
                                const SplitScratch<float>& scratch) {
  const int64_t padded = PaddedPairs<float>(p.score_dim);
  alignas(64) float scores[4 * kKeysTogether];
  ScoresAt<kRows, ScoreOrder::fours>(scratch.queries + first * padded, padded, in.rows,
                                     in.Beside(0, count, p.score_dim), p.score_dim, count, scores, 0);
  WeightsOfFours weights[kTilesTogether];
  float factors[kTilesTogether][kRows];
  if (!AbsorbFours<kRows>(ScaleOf(p), count, scores, scratch.states + first, factors, weights)) return false;
  AddTileValues<kRows>(p, in, count, first, weights, factors, scratch);
  return true;
}

/// `count` keys and values, all there, for kRows rows from row `first` of the scratch on.
template <int kRows>
HWY_NOINLINE void AddTilesToGroup(const Problem<float>& p, const RowsTogether& in, int64_t count,
                                  int64_t first, const SplitScratch<float>& scratch) {
  if constexpr (kRows >= 3) {
    if (AddTilesByFours<kRows>(p, in, count, first, scratch)) return;
  }
  // Rows that lie 4,096 bytes apart would take each other's stores for their own.
  constexpr int64_t kStride = kKeysTogether + 32;
  const int64_t padded = PaddedPairs<float>(p.score_dim);
  alignas(64) float scores[kRows * kStride];
  ScoresAt<kRows>(scratch.queries + first * padded, padded, in.rows, in.Beside(0, count, p.score_dim),
                  p.score_dim, count, scores, kStride);
  RoundedWeights<kRows> weights[kTilesTogether];
  float factors[kTilesTogether][kRows];
  int64_t n = 0;
  for (int64_t begin = 0; begin < count; begin += tile_keys, ++n)
    AbsorbRows<kRows>(ScaleOf(p), HWY_MIN(count - begin, tile_keys), scores + begin, kStride,
                      scratch.states + first, factors[n], weights[n]);
  AddTileValues<kRows>(p, in, count, first, weights, factors, scratch);
}

/// AddPieceToFew for up to kTilesTogether tiles. Returns false, and changes nothing, if a key or a value is
/// missing.
HWY_NOINLINE bool AddTilesToFew(const Problem<float>& p, const HeadRows<DotBf16>& keys,
                                const HeadRows<DotBf16>& values, const Piece& piece,
                                const KeysAfter<DotBf16>& after, int64_t first, int64_t rows,
                                const SplitScratch<float>& scratch) {
  const int64_t count = piece.end - piece.begin;
  RowsTogether in;
  if (in.Write(keys, piece.begin, piece.end) < count || in.Write(values, piece.begin, piece.end) < count)
    return false;
  in.Write(after.rows, after.begin, after.begin + HWY_MIN(RowsAhead<DotBf16>(p.value_dim), tile_keys));
  ForRowGroups<4>(
      rows, [&]<int kRows>(int64_t r) HWY_ATTR { AddTilesToGroup<kRows>(p, in, count, first + r, scratch); });
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

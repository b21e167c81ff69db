// Where the keys, or the values, of a piece lie. `decode` writes these addresses before its loops, which then
// take one address a row from memory. Stepping from row to row through the runs of a cache took two branches
// a row, and as many for the rows to fetch.
#if defined(FOVEA_TILES_PIECE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_PIECE_ROWS_INL_H_
#undef FOVEA_TILES_PIECE_ROWS_INL_H_
#else
#define FOVEA_TILES_PIECE_ROWS_INL_H_
#endif

#include "kernels/tiles/dots-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Writes the addresses of the first `count` rows. By vectors, since a loop over the rows shows in the
/// profile of a call.
template <class S>
HWY_INLINE void WriteAddresses(const StoredRows<S>& from, int64_t count, const S** rows) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto stride = static_cast<uint64_t>(from.stride) * sizeof(S);
  auto address =
      hn::Add(hn::Set(d, reinterpret_cast<uint64_t>(from.data)), hn::Mul(hn::Iota(d, 0), hn::Set(d, stride)));
  auto* to = reinterpret_cast<uint64_t*>(rows);
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    hn::StoreU(address, d, to + k);
    address = hn::Add(address, hn::Set(d, stride * static_cast<uint64_t>(lanes)));
  }
  if (k < count) hn::BlendedStore(address, hn::FirstN(d, static_cast<size_t>(count - k)), d, to + k);
}

/// kCount addresses for the last `count` of `rows`: the last one stands for those that are missing. Sums with
/// it are thrown away.
template <int kCount, class S>
HWY_INLINE const S* const* LastRows(const S* const* rows, int64_t count, const S* (&repeated)[kCount]) {
  for (int64_t k = 0; k < kCount; ++k) repeated[k] = rows[HWY_MIN(k, count - 1)];
  return repeated;
}

/// How many rows lie between those that are multiplied and those that are fetched, where tiles are taken one
/// by one. In pages it is a piece, whose turn comes after the values and after the other heads (HeadsInTurn).
/// The first-level cache does not hold as many, where rows are fetched into that.
/// With 32 keys of 128, pages of 64 that come from memory reached 0.95 of the speed of a contiguous store,
/// and with 128 they reach 1.00. Wider rows than 256 are fewer, so that four heads leave half of a
/// second-level cache of 512 KiB to the values.
template <class S>
HWY_INLINE int64_t PieceRowsAhead(const HeadRows<S>& rows, int64_t dim) {
  const bool pages = rows.cached.rows && rows.cached.rows->count > 1;
  return HWY_MIN(tile_keys, RowsAhead<S>(dim, pages && !kFetchesIntoFirstLevel ? 65536 : kAheadBytes));
}

/// Row j + ahead is fetched beside row j, where j < count.
struct Fetching {
  int64_t ahead = 0, count = 0;
  /// From row j on.
  HWY_INLINE Fetching From(int64_t j) const { return {ahead, HWY_MAX(count - j, 0)}; }
};

/// The rows of at most a tile of keys, and of those behind them that are fetched meanwhile.
template <class S>
struct PieceRows {
  const S* rows[2 * tile_keys];  ///< null: the cache has no such row
  int64_t found = 0;             ///< of the piece
  Fetching fetching;

  /// The rows of [begin, end), and those of `ahead` rows behind them that are there, at most tile_keys. Rows
  /// behind the end are fetched, not read. Where a text ends nothing is left to fetch: fetching its last row
  /// again and again took a few hundredths of the time of 64 keys.
  HWY_INLINE void Fill(const HeadRows<S>& from, int64_t begin, int64_t end, int64_t ahead) {
    const int64_t count = end - begin;
    found = 0;
    int64_t written = 0;
    from.ForStretches(begin, end + ahead,
                      [&](int64_t first, int64_t last, const StoredRows<S>& stretch) HWY_ATTR {
                        for (; written < first - begin; ++written) rows[written] = nullptr;
                        WriteAddresses(stretch, last - first, rows + written);
                        written = last - begin;
                        found += HWY_MAX(HWY_MIN(last, end) - first, 0);
                      });
    fetching = {ahead, HWY_MAX(written - ahead, 0)};
    for (; written < count; ++written) rows[written] = nullptr;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif

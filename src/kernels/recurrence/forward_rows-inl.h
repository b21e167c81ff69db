// What forward needs of a chunk. Where all channels share a decay, products read rows where the caller has
// them. Factors of tokens (decays, scale, beta) are applied to the results: copies that carry these factors
// took as long as half of the products. Where each channel has its own decay, rows are the decayed ones of
// recurrence/pairs-inl.h.
#if defined(FOVEA_RECURRENCE_FORWARD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_FORWARD_ROWS_INL_H_
#undef FOVEA_RECURRENCE_FORWARD_ROWS_INL_H_
#else
#define FOVEA_RECURRENCE_FORWARD_ROWS_INL_H_
#endif

#include "kernels/recurrence/chunk_sum-inl.h"
#include "kernels/recurrence/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The tiles of value columns: near 128 columns each, one tile less where the last would be short.
struct ValueTiles {
  int64_t count, width;
};
template <class T>
HWY_INLINE ValueTiles TilesOf(const RecurrenceProblem<T>& p) {
  const int64_t columns = p.value_dim,
                count = HWY_MAX((columns + recurrence_tile / 2 - 1) / recurrence_tile, 1);
  return {count, (columns + count - 1) / count};
}

/// Columns [first, first + count) of the values of a head; rows in scratch buffers have `stride` elements.
/// With sums_keys each tile keeps the sums of keys beside its columns. The last one alone writes what depends
/// on them: denominators, final sums, gradients.
struct Columns {
  int64_t first, count, stride;
  bool writes_sums;
};
template <class T>
HWY_INLINE Columns ColumnsOf(const RecurrenceProblem<T>& p, int64_t tile) {
  const ValueTiles tiles = TilesOf(p);
  const int64_t first = tile * tiles.width;
  return {first, HWY_MIN(tiles.width, p.value_dim - first), Padded<T>(tiles.width),
          p.sums_keys && tile + 1 == tiles.count};
}
/// The elements of a state tile: [key_dim][stride], and the sums of keys behind.
template <class T>
HWY_INLINE int64_t TileSize(const RecurrenceProblem<T>& p) {
  return p.key_dim * Padded<T>(TilesOf(p).width);
}
template <class T>
HWY_INLINE int64_t StateSize(const RecurrenceProblem<T>& p) {
  return TileSize(p) + (p.sums_keys ? Padded<T>(p.key_dim) : 0);
}

/// The buffers of forward beside those of a chunk. Factors are [16]; rows of values are [16][stride].
template <class T>
struct ForwardBuffers {
  T* q_factors;          // scale times the decays of q_start
  T* e_factors;          // the decays of e_start, times -beta of a delta write
  T *beta, *minus_beta;  // of a delta write
  T* scales;
  T *values, *written, *outputs;
  T *k_writes, *b_writes;  // what k and b write, times the decays to the chunk's end
};
template <class T>
HWY_INLINE ForwardBuffers<T> TakeForwardBuffers(const RecurrenceProblem<T>& p, Carve& carve) {
  const int64_t values = kChunk * Padded<T>(TilesOf(p).width);
  return {carve.Take<T>(kChunk), carve.Take<T>(kChunk),
          carve.Take<T>(kChunk), carve.Take<T>(kChunk),
          carve.Take<T>(kChunk), carve.Take<T>(values),
          carve.Take<T>(values), carve.Take<T>(values),
          carve.Take<T>(values), p.write == WriteKind::low_rank ? carve.Take<T>(values) : nullptr};
}

/// The rows of one chunk by which the state is read and written. Null factors are 1.
template <class T>
struct ForwardRows {
  RowsAt<T> k, b, e, values;
  const T *e_factors, *q_factors;
};

/// Whether rows lie so far apart that those of a chunk share few sets of the first-level cache, whose lines
/// of the same set lie 4 KiB apart. Products read a row several times. Where 16 heads lie between two tokens,
/// reading rows in place took a tenth to a fifth longer than copying them.
HWY_INLINE bool LieFarApart(const StoredOperand<const std::byte>& from, int64_t dim) {
  return from.row_stride > dim && from.row_stride * static_cast<int64_t>(size_of(from.dtype)) >= 1024;
}

/// Copies of the rows of a chunk, in `buffer`.
template <class T>
HWY_NOINLINE RowsAt<T> CopiedRows(const RecurrenceProblem<T>& p, const StoredOperand<const std::byte>& from,
                                  int64_t h, const ChunkAt& at, int64_t offset, int64_t dim, int64_t stride,
                                  T* buffer) {
  GatherRows(
      from, p.sequences[at.n], h, at, offset, dim, stride, [](int64_t) { return T(1); }, buffer);
  return {buffer, stride};
}
/// Rows of `from` where they are, or copies of them in `buffer` where they have 16 bits, where tokens are
/// left out, or where `copies`.
template <class T>
HWY_INLINE RowsAt<T> RowsOf(const RecurrenceProblem<T>& p, const StoredOperand<const std::byte>& from,
                            int64_t h, const ChunkAt& at, int64_t offset, int64_t dim, int64_t stride,
                            bool copies, T* buffer) {
  const TokenSequence& sequence = p.sequences[at.n];
  if (!from.data) return {nullptr, 0};
  if (!sequence.rows && !copies && RowsAreOf<T>(from.dtype)) {
    const std::byte* first = RecurrenceRow(from, sequence.entry, h, sequence.begin + at.begin);
    return {reinterpret_cast<const T*>(first) + offset, from.row_stride};
  }
  return CopiedRows(p, from, h, at, offset, dim, stride, buffer);
}
template <class T>
HWY_INLINE RowsAt<T> KeyRowsOf(const RecurrenceProblem<T>& p, const StoredOperand<const std::byte>& from,
                               int64_t h, const ChunkAt& at, const Chunk<T>& c, T* buffer) {
  return RowsOf(p, from, h, at, 0, p.key_dim, c.dim, LieFarApart(from, p.key_dim), buffer);
}
/// The features of keys, or the rows of keys themselves.
template <class T>
HWY_INLINE RowsAt<T> FeaturedKeys(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c) {
  if (!MapsRows(p)) return KeyRowsOf(p, p.key, KeyHeadOf(p, at.h), at, c, c.k);
  GatherFeatures(p, p.key, KeyHeadOf(p, at.h), at, T(1), c.k);
  return {c.k, c.dim};
}
/// The rows of a query head by which outputs read the state.
template <class T>
HWY_INLINE RowsAt<T> QueryRowsOf(const RecurrenceProblem<T>& p, const ChunkAt& at, int64_t reader,
                                 const Chunk<T>& c) {
  if (p.decay == DecayKind::key) return {c.q_start + reader * kChunk * c.dim, c.dim};
  if (MapsRows(p)) return {c.q + reader * kChunk * c.dim, c.dim};  // made once, before: GatherQueries
  return KeyRowsOf(p, p.query, QueryHeadOf(p, at.h, reader), at, c, c.q + reader * kChunk * c.dim);
}
template <class T>
HWY_INLINE void GatherQueries(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c) {
  for (int64_t r = 0; MapsRows(p) && r < c.readers; ++r)
    GatherFeatures(p, p.query, QueryHeadOf(p, at.h, r), at, T(1), c.q + r * kChunk * c.dim);
}
/// The values, which vectors read, so that all columns must be there. A delta write reads them once.
template <class T>
HWY_INLINE RowsAt<T> ValueRowsOf(const RecurrenceProblem<T>& p, const ChunkAt& at, const Columns& columns,
                                 T* buffer) {
  const bool copies =
      columns.count != columns.stride || (p.write != WriteKind::delta && LieFarApart(p.value, columns.count));
  return RowsOf(p, p.value, at.h, at, columns.first, columns.count, columns.stride, copies, buffer);
}

/// Decays, and factors of tokens.
template <class T>
HWY_NOINLINE void ForwardFactors(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                 const Chunk<T>& c, const ForwardBuffers<T>& f) {
  const bool tables = p.decay != DecayKind::none;  // else those of FillReachTables
  if (tables) {
    GatherDecays(p, at, c);
    EdgeDecays(c);
  }
  const T scale = static_cast<T>(p.scale);
  const auto start = [&](Reach reach, int64_t i) {
    return reach != Reach::before ? c.to_token[i] : i > 0 ? c.to_token[i - 1] : T(1);
  };
  for (int64_t i = 0; i < at.count; ++i) {
    f.q_factors[i] = scale * start(QueryReach(p), i);
    if (c.e) f.e_factors[i] = (c.b ? T(1) : f.minus_beta[i]) * start(EraseReach(p), i);
  }
  if (tables || at.begin == 0) Fill(scale, kChunk, f.scales);
  if (!tables) return;
  if (queries) PairDecays(c.decay, QueryReach(p), c.q_gamma);
  if (c.e) PairDecays(c.decay, EraseReach(p), c.e_gamma);
}

/// The rows of keys, and those of what erases and of b where the write has them.
template <class T, class Rows>
HWY_INLINE void ReadKeyRows(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c, Rows& rows) {
  rows.k = FeaturedKeys(p, at, c);
  if (c.b) {
    rows.e = KeyRowsOf(p, p.a, at.h, at, c, c.e);
    rows.b = KeyRowsOf(p, p.b, at.h, at, c, c.b);
  } else if (c.e) {
    rows.e = p.erase.data ? KeyRowsOf(p, p.erase, at.h, at, c, c.e) : rows.k;
  }
}

/// Everything of a chunk that needs no state, where all channels share a decay. Without `queries`, only what
/// the state needs.
template <class T>
HWY_INLINE ForwardRows<T> SharedDecayRows(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                          const Chunk<T>& c, const ForwardBuffers<T>& f) {
  ForwardFactors(p, at, queries, c, f);
  ForwardRows<T> rows{};
  ReadKeyRows(p, at, c, rows);
  if (queries) GatherQueries(p, at, c);
  rows.e_factors = f.e_factors;
  rows.q_factors = f.q_factors;
  const auto pairs = [&](const RowsAt<T>& writers, T* by_q, T* by_e) {
    const PairWriters<T> y = TransposeWriters(writers, at.count, p.key_dim, c.transposed);
    if (c.e) PairProducts(rows.e, at.count, p.key_dim, y, c.e_gamma, c.b ? nullptr : f.minus_beta, by_e);
    for (int64_t reader = 0; queries && reader < c.readers; ++reader) {
      PairProducts(QueryRowsOf(p, at, reader, c), at.count, p.key_dim, y, c.q_gamma, f.scales,
                   by_q + reader * kChunk * kChunk);
    }
  };
  if (queries || c.e) pairs(rows.k, c.qk, c.ek);
  if (c.b) pairs(rows.b, c.qb, c.eb);
  return rows;
}

/// Likewise, where channels have decays of their own. Mild ones read rows where the caller has them, if these
/// are of whole vectors.
template <class T>
HWY_NOINLINE ForwardRows<T> ChannelDecayRows(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                             const Chunk<T>& c, const ForwardBuffers<T>& f) {
  const bool reads = queries && p.read != ReadKind::after_write,
             in_place = p.key_dim == c.dim && !MapsRows(p);
  StartedRows<T> started = GatheredRows(p, queries, c);
  const auto query_rows = [&](int64_t r) {
    return in_place ? KeyRowsOf(p, p.query, QueryHeadOf(p, at.h, r), at, c, c.q + r * kChunk * c.dim)
                    : RowsAt<T>{c.q + r * kChunk * c.dim, c.dim};
  };
  if (in_place) {
    auto& [readers, writers] = started;
    ForwardRows<T> rows{};
    ReadKeyRows(p, at, c, rows);
    if (queries) readers[0].from = query_rows(0);
    readers[0].factor = static_cast<T>(p.scale);
    readers[1].from = rows.e;
    if (c.e && !c.b) readers[1].factors = f.minus_beta;
    writers[0].from = rows.k;
    writers[1].from = rows.b;
  } else {
    GatherChunk(p, at, queries, c);
  }
  TokenDecays(p, at, c, started);
  for (int64_t r = 1; queries && r < c.readers; ++r)
    AddLargestReaders(query_rows(r), at.count, started.readers[0].factor, c);
  if (MildDecays(c, at.count)) {
    MildPairs(at, queries, c, started, query_rows);
    for (int64_t r = 0; reads && r < c.readers; ++r)
      OwnShares(p, at, query_rows(r), started.writers[0].from, started.readers[0].factor, c.own + r * kChunk);
  } else {
    if (in_place) GatherChunk(p, at, queries, c);
    GatherDecays(p, at, c);
    WalkedDecays(at, c);
    WalkedPairs(p, at, queries, c);
    for (int64_t r = 0; reads && r < c.readers; ++r)
      OwnShares<T>(p, at, {c.q + r * kChunk * c.dim, c.dim}, {c.k, c.dim}, T(1), c.own + r * kChunk);
  }
  if (queries) ClearRowsBehind(c, at.count);
  ForwardRows<T> rows{};
  rows.k = {c.k_end, c.dim};
  rows.b = {c.b_end, c.dim};
  rows.e = {c.e_start, c.dim};
  return rows;
}

template <class T>
HWY_INLINE void ReadBeta(const RecurrenceProblem<T>& p, const ChunkAt& at, const ForwardBuffers<T>& f) {
  for (int64_t i = 0; p.write == WriteKind::delta && i < at.count; ++i) {
    f.beta[i] = BetaAt(p, at, i);
    f.minus_beta[i] = -f.beta[i];
  }
}

template <class T>
HWY_NOINLINE ForwardRows<T> PrepareForward(const RecurrenceProblem<T>& p, const ChunkAt& at,
                                           const Columns& columns, bool queries, const Chunk<T>& c,
                                           const ForwardBuffers<T>& f) {
  ForwardRows<T> rows{};
  ReadBeta(p, at, f);
  if (p.decay == DecayKind::key) {
    rows = ChannelDecayRows(p, at, queries, c, f);
  } else {
    rows = SharedDecayRows(p, at, queries, c, f);
    if (queries && p.read != ReadKind::after_write) {
      for (int64_t reader = 0; reader < c.readers; ++reader)
        OwnShares(p, at, QueryRowsOf(p, at, reader, c), rows.k, static_cast<T>(p.scale),
                  c.own + reader * kChunk);
    }
  }
  rows.values = ValueRowsOf(p, at, columns, f.values);
  return rows;
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

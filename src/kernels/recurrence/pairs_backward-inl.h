// Backward of recurrence/pairs-inl.h: from the derivatives by x_start, y_end and the products of pairs to
// those by the rows of queries, erasures, keys and b.
#if defined(FOVEA_RECURRENCE_PAIRS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_PAIRS_BACKWARD_INL_H_
#undef FOVEA_RECURRENCE_PAIRS_BACKWARD_INL_H_
#else
#define FOVEA_RECURRENCE_PAIRS_BACKWARD_INL_H_
#endif

#include "kernels/recurrence/chunk_sum-inl.h"
#include "kernels/recurrence/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Derivatives by the rows of a chunk, in its shapes. In: dq, de by q_start and e_start, dk, db by k_end and
/// b_end, and qk, qb, ek, eb by the undecayed products of pairs, 0 out of reach. Out: dq, de, dk, db by q, e,
/// k and b themselves.
template <class T>
struct ChunkGradient {
  T *dq, *dk, *de, *db;
  T *qk, *qb, *ek, *eb;
  T* from_start;  // [16]: the decays of a reader row's start
  T* decays;  // by the sums of the gates up to each token, then by the gates: in the shape of Chunk::decay
};

template <class T>
HWY_INLINE ChunkGradient<T> TakeChunkGradient(const RecurrenceProblem<T>& p, const Chunk<T>& c,
                                              Carve& carve) {
  const int64_t rows = kChunk * c.dim, pairs = kChunk * kChunk;
  const auto take = [&](bool wanted, int64_t count) { return wanted ? carve.Take<T>(count) : nullptr; };
  const bool low_rank = p.write == WriteKind::low_rank, erases = p.write != WriteKind::additive;
  return {carve.Take<T>(c.readers * rows),
          carve.Take<T>(rows),
          take(erases, rows),
          take(low_rank, rows),
          carve.Take<T>(c.readers * pairs),
          take(low_rank, c.readers * pairs),
          take(erases, pairs),
          take(low_rank, pairs),
          carve.Take<T>(kChunk),
          carve.Take<T>(p.decay == DecayKind::key ? rows : kChunk)};
}

/// For queries and for what erases. `rows` adds the derivatives by the products of pairs to those by the
/// reader rows.
template <class T, class Rows>
HWY_INLINE void ForReaders(const RecurrenceProblem<T>& p, bool queries, const Chunk<T>& c,
                           const ChunkGradient<T>& g, const Rows& rows) {
  for (int64_t r = 0; queries && r < c.readers; ++r) {
    T *qk = g.qk + r * kChunk * kChunk, *qb = c.b ? g.qb + r * kChunk * kChunk : nullptr;
    rows(QueryReach(p), qk, qb, g.dq + r * kChunk * c.dim);
  }
  if (!c.e) return;
  rows(EraseReach(p), g.ek, g.eb, g.de);
}

/// The products of pairs by writer rows. Those of several query heads stand below each other.
template <class T>
HWY_INLINE Triangle WriterTriangle(const Chunk<T>& c) {
  return c.readers == 1 ? Triangle::upper : Triangle::none;
}

/// Decays that are the same for all channels. With G the derivative by the undecayed products of pairs,
/// dx = decays dx_start + G y and dy = decays dy_end + G^T x.
template <class T>
HWY_NOINLINE void ScalarPairsBackward(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                      const Chunk<T>& c, const ChunkGradient<T>& g, FetchedRows<T>& fetch) {
  const int64_t dim = c.dim, count = at.count;
  const auto add = [&](T* dx, const T* factors, const ChunkTerm<T>& first, const ChunkTerm<T>& more) {
    ChunkSum<T> sum{
        .to = dx, .to_stride = dim, .first = first, .from = dx, .from_stride = dim, .from_factors = factors};
    sum.more[0] = more;
    sum.more_count = more.k > 0;
    Sum(count, dim, sum, fetch);
  };
  const auto reader_rows = [&](Reach reach, T* by_k, T* by_b, T* dx) {
    for (int64_t i = 0; i < count; ++i)
      g.from_start[i] = reach != Reach::before ? c.to_token[i] : i > 0 ? c.to_token[i - 1] : T(1);
    const auto term = [&](const T* products, const T* y) {
      return products ? ChunkTerm<T>{products, kChunk, 1, y, dim, count, Triangle::lower} : ChunkTerm<T>{};
    };
    add(dx, g.from_start, term(by_k, c.k), term(by_b, c.b));
  };
  ForReaders(p, queries, c, g, reader_rows);
  const auto writer_rows = [&](const T* by_q, const T* by_e, T* dy) {
    const int64_t rows = queries ? c.QueryRows(count) : 0;
    add(dy, c.to_end, {by_q, 1, kChunk, c.q, dim, rows, WriterTriangle(c)},
        by_e ? ChunkTerm<T>{by_e, 1, kChunk, c.e, dim, count, Triangle::upper} : ChunkTerm<T>{});
  };
  writer_rows(g.qk, g.ek, g.dk);
  if (c.b) writer_rows(g.qb, g.eb, g.db);
}

/// Decays by channel, by reader rows: the writer rows are decayed forwards again, in k_end and b_end.
template <class T>
HWY_NOINLINE void ReaderRowsBackward(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                     const Chunk<T>& c, const ChunkGradient<T>& g) {
  const int64_t dim = c.dim;
  const Reach query_reach = QueryReach(p), erase_reach = EraseReach(p);
  // Writer rows before the block of the walk are decayed to its start, and those of the block to token i.
  const auto add = [&](int64_t row, int64_t i, Reach reach, const T* by_k, const T* by_b, T* dx) {
    const int64_t start = reach == Reach::before ? i - 1 : i, seen = reach == Reach::inclusive ? i + 1 : i,
                  first = WalkStart(i);
    const auto rows = [&](const T* by, const T* writers, int64_t begin, int64_t end, T* to) {
      Product<true, T>(
          1, dim, {by + row * kChunk + begin, kChunk, 1, writers + begin * dim, dim, to, dim, end - begin});
    };
    T* to = dx + row * dim;
    if (start >= 0) MultiplyInto(c.to_token + start * dim, dim, to);
    if (first > 0) {
      Fill(T{0}, dim, c.walked_row);
      rows(by_k, c.k_end, 0, first, c.walked_row);
      if (by_b) rows(by_b, c.b_end, 0, first, c.walked_row);
      MultiplyInto(c.walked, dim, c.walked_row);
      AddScaled(T(1), c.walked_row, dim, to);
    }
    rows(by_k, c.k_end, first, seen, to);
    if (by_b) rows(by_b, c.b_end, first, seen, to);
  };
  Copy(c.k, at.count * dim, c.k_end);
  if (c.b) Copy(c.b, at.count * dim, c.b_end);
  WalkDecays(c, at.count, c.k_end, c.b_end, [&](int64_t i, Reach now) {
    if (queries && (query_reach == Reach::before) == (now == Reach::before)) {
      for (int64_t row = i; row < c.readers * kChunk; row += kChunk)
        add(row, i, query_reach, g.qk, g.qb, g.dq);
    }
    if (c.e && (erase_reach == Reach::before) == (now == Reach::before))
      add(i, i, erase_reach, g.ek, g.eb, g.de);
  });
}

/// Decays by channel, by writer rows: the reader rows are decayed backwards, in q_start and e_start.
template <class T>
HWY_NOINLINE void WriterRowsBackward(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                     const Chunk<T>& c, const ChunkGradient<T>& g, T* to_end) {
  const int64_t dim = c.dim, count = at.count;
  const int64_t readers = queries ? c.readers : 0;
  Fill(T{1}, dim, to_end);
  for (int64_t j = count - 1; j >= 0; --j) {
    // Rows j + 1.. of the readers are decayed from their token back to token j.
    const auto add = [&](const T* products, const T* rows, T* dy) {
      Product<true, T>(1, dim,
                       {products + (j + 1) * kChunk + j, 1, kChunk, rows + (j + 1) * dim, dim, dy + j * dim,
                        dim, count - j - 1});
    };
    const auto add_all = [&](const T* by_q, const T* by_e, T* dy) {
      MultiplyInto(to_end, dim, dy + j * dim);
      for (int64_t r = 0; r < readers; ++r) {
        const int64_t first = r * kChunk;
        add(by_q + first * kChunk, c.q_start + first * dim, dy);
        if (QueryReach(p) == Reach::inclusive)
          AddScaled(by_q[(first + j) * kChunk + j], c.q + (first + j) * dim, dim, dy + j * dim);
      }
      if (by_e) add(by_e, c.e_start, dy);
    };
    add_all(g.qk, g.ek, g.dk);
    if (c.b) add_all(g.qb, g.eb, g.db);
    const T* decay = c.decay + j * dim;
    MultiplyFlushed(to_end, decay, dim, to_end);
    const auto step = [&](const T* x, Reach reach, T* rows) {
      for (int64_t i = j + 1; i < count; ++i) MultiplyFlushed(rows + i * dim, decay, dim, rows + i * dim);
      if (reach == Reach::before)
        Copy(x + j * dim, dim, rows + j * dim);
      else
        MultiplyFlushed(x + j * dim, decay, dim, rows + j * dim);
    };
    for (int64_t r = 0; r < readers; ++r)
      step(c.q + r * kChunk * dim, QueryReach(p), c.q_start + r * kChunk * dim);
    if (c.e) step(c.e, EraseReach(p), c.e_start);
  }
}

/// Whether backward may divide by decays too: derivatives by products of pairs are not so large that their
/// products with quotients may overflow. A NaN is: it comes of a product out of reach that overflowed.
template <class T>
HWY_INLINE bool MildGradients(const ChunkAt& at, bool queries, const Chunk<T>& c, const ChunkGradient<T>& g) {
  const hn::ScalableTag<T> d;
  const auto limit = hn::Set(d, T(kMostPair));
  auto within = hn::FirstN(d, hn::Lanes(d));
  const auto add = [&](const T* pairs, int64_t rows) HWY_ATTR {
    for (int64_t i = 0; pairs && i < rows * kChunk; i += static_cast<int64_t>(hn::Lanes(d)))
      within = hn::And(within, hn::Le(hn::Abs(hn::LoadU(d, pairs + i)), limit));
  };
  for (const T* pairs : {g.qk, c.b ? g.qb : nullptr}) add(pairs, queries ? c.QueryRows(at.count) : 0);
  for (const T* pairs : {c.e ? g.ek : nullptr, c.b ? g.eb : nullptr}) add(pairs, at.count);
  return hn::AllTrue(d, within);
}

/// Mild decays by channel: see MildDecays.
template <class T>
HWY_NOINLINE void MildPairsBackward(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                    const Chunk<T>& c, const ChunkGradient<T>& g, FetchedRows<T>& fetch) {
  const hn::ScalableTag<T> d;
  const int64_t dim = c.dim, count = at.count;
  const auto add = [&](T* dx, const ChunkTerm<T>& first, const ChunkTerm<T>& more) {
    ChunkSum<T> sum{.to = dx, .to_stride = dim, .first = first, .from = dx, .from_stride = dim};
    sum.more[0] = more;
    sum.more_count = more.k > 0;
    Sum(count, dim, sum, fetch);
  };
  const auto reader_rows = [&](Reach reach, const T* by_k, const T* by_b, T* dx) {
    const auto term = [&](const T* products, const T* y) {
      return products ? ChunkTerm<T>{products, kChunk, 1, y, dim, count, Triangle::lower} : ChunkTerm<T>{};
    };
    add(dx, term(by_k, c.k_start), term(by_b, c.b_start));
    const int64_t shift = reach == Reach::before;
    MultiplyInto(c.to_token, (count - shift) * dim, dx + shift * dim);
  };
  ForReaders(p, queries, c, g, reader_rows);
  const auto writer_rows = [&](const T* by_q, const T* by_e, T* dy) HWY_ATTR {
    const int64_t rows = queries ? c.QueryRows(count) : 0;
    for (int64_t j = 0; j < count; ++j) MultiplyInto(c.to_token + (count - 1) * dim, dim, dy + j * dim);
    add(dy, {by_q, 1, kChunk, c.q_start, dim, rows, WriterTriangle(c)},
        by_e ? ChunkTerm<T>{by_e, 1, kChunk, c.e_start, dim, count, Triangle::upper} : ChunkTerm<T>{});
    for (int64_t j = 0; j < count * dim; j += static_cast<int64_t>(hn::Lanes(d)))
      hn::StoreU(hn::Mul(hn::LoadU(d, dy + j), Reciprocal(d, hn::LoadU(d, c.to_token + j))), d, dy + j);
  };
  writer_rows(g.qk, g.ek, g.dk);
  if (c.b) writer_rows(g.qb, g.eb, g.db);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// Decays between the tokens of a chunk, and the products of pairs of tokens: (q_i·k_j) times the decays from
// token j to token i. Decays are by channel, or the same for all channels.
#if defined(FOVEA_RECURRENCE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_PAIRS_INL_H_
#undef FOVEA_RECURRENCE_PAIRS_INL_H_
#else
#define FOVEA_RECURRENCE_PAIRS_INL_H_
#endif

#include "kernels/recurrence/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// gamma[i][j]: the decays from token j to token i, by `reach`; 0 out of reach. Row i is row i - 1 times the
/// decay of token i.
template <class T>
HWY_INLINE void PairDecays(const T* decay, Reach reach, T* gamma) {
  const hn::ScalableTag<T> d;
  alignas(64) T row[kChunk] = {};
  for (int64_t i = 0; i < kChunk; ++i) {
    if (reach == Reach::before) Copy(row, kChunk, gamma + i * kChunk);
    const auto factor = hn::Set(d, decay[i]);
    for (int64_t j = 0; j < kChunk; j += static_cast<int64_t>(hn::Lanes(d)))
      hn::StoreU(Flush(d, hn::Mul(hn::LoadU(d, row + j), factor)), d, row + j);
    if (reach == Reach::strict) Copy(row, kChunk, gamma + i * kChunk);
    row[i] = 1;
    if (reach == Reach::inclusive) Copy(row, kChunk, gamma + i * kChunk);
  }
}

/// to[row][j] = ⟨x_row, y_j⟩ times gamma of (row % 16, j), with y transposed.
template <class T>
HWY_INLINE void PairProducts(const T* x, int64_t rows, int64_t dim, const T* y_transposed, const T* gamma,
                             T* to) {
  Product<false, T>(rows, kChunk, {x, dim, 1, y_transposed, kChunk, to, kChunk, dim});
  for (int64_t row = 0; row < rows; ++row)
    MultiplyInto(gamma + row % kChunk * kChunk, kChunk, to + row * kChunk);
}

/// Decays that are the same for all channels.
template <class T>
HWY_NOINLINE void ScalarPairs(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                              const Chunk<T>& c) {
  const bool low_rank = p.write == WriteKind::low_rank;
  T product = 1;
  for (int64_t i = 0; i < kChunk; ++i) c.to_token[i] = product = FlushOne(product * c.decay[i]);
  product = 1;
  for (int64_t i = kChunk - 1; i >= 0; --i) {
    c.to_end[i] = product;
    product = FlushOne(product * c.decay[i]);
  }
  const auto start_rows = [&](const T* x, int64_t rows, Reach reach, T* to) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row % kChunk;
      const T factor = reach != Reach::before ? c.to_token[i] : i > 0 ? c.to_token[i - 1] : T(1);
      ScaleInto(factor, x + row * c.dim, c.dim, to + row * c.dim);
    }
  };
  const int64_t query_rows = c.QueryRows(at.count);
  if (queries) {
    PairDecays(c.decay, QueryReach(p), c.q_gamma);
    start_rows(c.q, query_rows, QueryReach(p), c.q_start);
  }
  if (c.e) {
    PairDecays(c.decay, EraseReach(p), c.e_gamma);
    start_rows(c.e, at.count, EraseReach(p), c.e_start);
  }
  for (int64_t i = 0; i < at.count; ++i) ScaleInto(c.to_end[i], c.k + i * c.dim, c.dim, c.k_end + i * c.dim);
  if (queries || c.e) Transpose(c.k, c.dim, kChunk, c.dim, kChunk, c.transposed);
  if (queries) PairProducts(c.q, query_rows, c.dim, c.transposed, c.q_gamma, c.qk);
  if (c.e) PairProducts(c.e, at.count, c.dim, c.transposed, c.e_gamma, c.ek);
  if (!low_rank) return;
  for (int64_t i = 0; i < at.count; ++i) ScaleInto(c.to_end[i], c.b + i * c.dim, c.dim, c.b_end + i * c.dim);
  Transpose(c.b, c.dim, kChunk, c.dim, kChunk, c.transposed);
  if (queries) PairProducts(c.q, query_rows, c.dim, c.transposed, c.q_gamma, c.qb);
  PairProducts(c.e, at.count, c.dim, c.transposed, c.e_gamma, c.eb);
}

/// to[j] = ⟨x, rows_j⟩ for j < count, 0 for the rest of the chunk.
template <class T>
HWY_INLINE void DotRows(const T* x, const T* rows, int64_t count, int64_t dim, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const T* row = rows + j * dim;
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < dim; i += lanes) {
      const auto element = hn::LoadU(d, x + i);
      s0 = hn::MulAdd(element, hn::LoadU(d, row + i), s0);
      s1 = hn::MulAdd(element, hn::LoadU(d, row + dim + i), s1);
      s2 = hn::MulAdd(element, hn::LoadU(d, row + 2 * dim + i), s2);
      s3 = hn::MulAdd(element, hn::LoadU(d, row + 3 * dim + i), s3);
    }
    to[j] = hn::GetLane(hn::SumOfLanes(d, s0));
    to[j + 1] = hn::GetLane(hn::SumOfLanes(d, s1));
    to[j + 2] = hn::GetLane(hn::SumOfLanes(d, s2));
    to[j + 3] = hn::GetLane(hn::SumOfLanes(d, s3));
  }
  for (; j < count; ++j) to[j] = Dot(x, rows + j * dim, dim);
  for (; j < kChunk; ++j) to[j] = 0;
}

/// Walks the tokens of a chunk, with decays by channel. At token i, writer rows 0..i-1 are decayed by the
/// step of that token, between two calls: visit(i, Reach::before) and visit(i, Reach::strict). At the second,
/// row i itself is not decayed yet, so readers of Reach::inclusive may read it too. At the end, the writer
/// rows are decayed to the chunk's end.
template <class T, class Visit>
HWY_INLINE void WalkDecays(const Chunk<T>& c, int64_t count, T* rows, T* more_rows, Visit visit) {
  for (int64_t i = 0; i < count; ++i) {
    visit(i, Reach::before);
    const T* decay = c.decay + i * c.dim;
    for (int64_t j = 0; j < i; ++j) {
      MultiplyFlushed(rows + j * c.dim, decay, c.dim, rows + j * c.dim);
      if (more_rows) MultiplyFlushed(more_rows + j * c.dim, decay, c.dim, more_rows + j * c.dim);
    }
    visit(i, Reach::strict);
  }
}

/// Decays by channel.
template <class T>
HWY_NOINLINE void ChannelPairs(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                               const Chunk<T>& c) {
  const int64_t dim = c.dim;
  for (int64_t i = 0; i < at.count; ++i) {
    T* to = c.to_token + i * dim;
    if (i == 0)
      Copy(c.decay, dim, to);
    else
      MultiplyFlushed(to - dim, c.decay + i * dim, dim, to);
  }
  const auto start_row = [&](const T* x, int64_t i, Reach reach, T* to) {
    const int64_t from = reach == Reach::before ? i - 1 : i;
    if (from < 0)
      Copy(x, dim, to);
    else
      MultiplyFlushed(x, c.to_token + from * dim, dim, to);
  };
  Copy(c.k, at.count * dim, c.k_end);
  if (c.b) Copy(c.b, at.count * dim, c.b_end);
  const Reach query_reach = QueryReach(p), erase_reach = EraseReach(p);
  WalkDecays(c, at.count, c.k_end, c.b_end, [&](int64_t i, Reach now) {
    if (queries && (query_reach == Reach::before) == (now == Reach::before)) {
      const int64_t seen = query_reach == Reach::inclusive ? i + 1 : i;
      for (int64_t row = i; row < c.readers * kChunk; row += kChunk) {
        start_row(c.q + row * dim, i, query_reach, c.q_start + row * dim);
        DotRows(c.q + row * dim, c.k_end, seen, dim, c.qk + row * kChunk);
        if (c.b) DotRows(c.q + row * dim, c.b_end, seen, dim, c.qb + row * kChunk);
      }
    }
    if (c.e && (erase_reach == Reach::before) == (now == Reach::before)) {
      start_row(c.e + i * dim, i, erase_reach, c.e_start + i * dim);
      DotRows(c.e + i * dim, c.k_end, i, dim, c.ek + i * kChunk);
      if (c.b) DotRows(c.e + i * dim, c.b_end, i, dim, c.eb + i * kChunk);
    }
  });
  if (c.readers == 1 || !queries) return;
  for (int64_t row = 0; row < c.readers * kChunk; ++row) {  // rows without a token, which products read
    if (row % kChunk < at.count) continue;
    Fill(T{0}, dim, c.q_start + row * dim);
    Fill(T{0}, kChunk, c.qk + row * kChunk);
    if (c.b) Fill(T{0}, kChunk, c.qb + row * kChunk);
  }
}

/// The share of its own target that each token reads: ⟨q, u∘k⟩ of BeforeDecay, w⟨q, k⟩ of SelfWeight.
template <class T>
HWY_NOINLINE void OwnShares(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c) {
  const TokenSequence& sequence = p.sequences[at.n];
  const T* bonus = p.bonus ? p.bonus + at.h * p.key_dim : nullptr;
  Fill(T{0}, c.readers * kChunk, c.own);
  for (int64_t row = 0; row < c.readers * kChunk; ++row) {
    const int64_t i = row % kChunk;
    if (i >= at.count) continue;
    const T *q = c.q + row * c.dim, *k = c.k + i * c.dim;
    if (p.read == ReadKind::self_weight) {
      c.own[row] = Dot(q, k, p.key_dim) *
                   *RecurrenceRow(p.self_weight, sequence.entry, at.h, sequence.row(at.begin + i));
    } else {
      for (int64_t j = 0; j < p.key_dim; ++j) c.own[row] += q[j] * bonus[j] * k[j];
    }
  }
}

/// Everything of a chunk that needs no values. Without `queries`, only what the state needs.
template <class T>
HWY_INLINE void PrepareChunk(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                             const Chunk<T>& c) {
  GatherChunk(p, at, queries, c);
  GatherDecays(p, at, c);
  if (p.decay == DecayKind::key)
    ChannelPairs(p, at, queries, c);
  else
    ScalarPairs(p, at, queries, c);
  if (queries && p.read != ReadKind::after_write) OwnShares(p, at, c);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

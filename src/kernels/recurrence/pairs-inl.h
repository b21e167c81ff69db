// Decays between the tokens of a chunk, and the products of pairs of tokens: (q_i·k_j) times the decays from
// token j to token i. Decays are by channel, or the same for all channels.
#if defined(FOVEA_RECURRENCE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_PAIRS_INL_H_
#undef FOVEA_RECURRENCE_PAIRS_INL_H_
#else
#define FOVEA_RECURRENCE_PAIRS_INL_H_
#endif

#include "kernels/recurrence/mild_decays-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// gamma[i][j]: the decays from token j to token i, by `reach`; 0 out of reach. Row i is row i - 1 times the
/// decay of token i.
template <class T>
HWY_INLINE void PairDecays(const T* decay, Reach reach, T* gamma) {
  const hn::ScalableTag<T> d;
  for (int64_t j = 0; j < kChunk; j += static_cast<int64_t>(hn::Lanes(d))) {
    const auto column = hn::Iota(d, static_cast<T>(j));
    auto row = hn::Zero(d);
    for (int64_t i = 0; i < kChunk; ++i) {
      T* to = gamma + i * kChunk + j;
      if (reach == Reach::before) hn::StoreU(row, d, to);
      row = Flush(d, hn::Mul(row, hn::Set(d, decay[i])));
      if (reach == Reach::strict) hn::StoreU(row, d, to);
      row = hn::IfThenElse(hn::Eq(column, hn::Set(d, static_cast<T>(i))), hn::Set(d, T(1)), row);
      if (reach == Reach::inclusive) hn::StoreU(row, d, to);
    }
  }
}

/// The decays from the chunk's start to each token, and from each token to its end.
template <class T>
HWY_INLINE void EdgeDecays(const Chunk<T>& c) {
  T product = 1;
  for (int64_t i = 0; i < kChunk; ++i) c.to_token[i] = product = FlushOne(product * c.decay[i]);
  product = 1;
  for (int64_t i = kChunk - 1; i >= 0; --i) {
    c.to_end[i] = product;
    product = FlushOne(product * c.decay[i]);
  }
}

/// Decays that are the same for all channels.
template <class T>
HWY_NOINLINE void ScalarPairs(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                              const Chunk<T>& c) {
  const bool low_rank = p.write == WriteKind::low_rank;
  // Without decays the tables are those of FillReachTables, and rows stay as they are.
  const bool decays = p.decay != DecayKind::none;
  if (decays) EdgeDecays(c);
  PairWriters<T> writers{};
  const auto pairs = [&](const T* x, int64_t rows, const T* gamma, T* to) {
    PairProducts({x, c.dim}, rows, c.dim, writers, gamma, static_cast<const T*>(nullptr), to);
  };
  // With several readers the rows without a token too, which products over all readers read: they become 0.
  const auto query_pairs = [&](T* to) {
    for (int64_t r = 0; queries && r < c.readers; ++r)
      pairs(c.q + r * kChunk * c.dim, c.readers == 1 ? at.count : kChunk, c.q_gamma,
            to + r * kChunk * kChunk);
  };
  const auto start_rows = [&](const T* x, int64_t rows, Reach reach, T* to) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = row % kChunk;
      const T factor = reach != Reach::before ? c.to_token[i] : i > 0 ? c.to_token[i - 1] : T(1);
      ScaleInto(factor, x + row * c.dim, c.dim, to + row * c.dim);
    }
  };
  const int64_t query_rows = c.QueryRows(at.count);
  if (queries && decays) {
    PairDecays(c.decay, QueryReach(p), c.q_gamma);
    start_rows(c.q, query_rows, QueryReach(p), c.q_start);
  }
  if (c.e && decays) {
    PairDecays(c.decay, EraseReach(p), c.e_gamma);
    start_rows(c.e, at.count, EraseReach(p), c.e_start);
  }
  const auto end_rows = [&](const T* y, T* to) {
    for (int64_t i = 0; decays && i < at.count; ++i)
      ScaleInto(c.to_end[i], y + i * c.dim, c.dim, to + i * c.dim);
  };
  end_rows(c.k, c.k_end);
  if (queries || c.e) writers = TransposeWriters<T>({c.k, c.dim}, kChunk, c.dim, c.transposed);
  query_pairs(c.qk);
  if (c.e) pairs(c.e, at.count, c.e_gamma, c.ek);
  if (!low_rank) return;
  end_rows(c.b, c.b_end);
  writers = TransposeWriters<T>({c.b, c.dim}, kChunk, c.dim, c.transposed);
  query_pairs(c.qb);
  pairs(c.e, at.count, c.e_gamma, c.eb);
}

/// Four sums of products that are not folded yet: of x with rows [first, first + 4).
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void FourDots(D d, const T* x, const T* rows, int64_t first, int64_t dim, V* sums) {
  const T* row = rows + first * dim;
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t i = 0; i < dim; i += static_cast<int64_t>(hn::Lanes(d))) {
    const V element = hn::LoadU(d, x + i);
    s0 = hn::MulAdd(element, hn::LoadU(d, row + i), s0);
    s1 = hn::MulAdd(element, hn::LoadU(d, row + dim + i), s1);
    s2 = hn::MulAdd(element, hn::LoadU(d, row + 2 * dim + i), s2);
    s3 = hn::MulAdd(element, hn::LoadU(d, row + 3 * dim + i), s3);
  }
  sums[0] = s0;
  sums[1] = s1;
  sums[2] = s2;
  sums[3] = s3;
}

/// to[j] = ⟨x, rows_j⟩ for first <= j < seen and ⟨decayed_x, rows_j⟩ for j < first, 0 for the rest of the
/// chunk.
template <class T>
HWY_INLINE void DotRows(const T* decayed_x, const T* x, const T* rows, int64_t first, int64_t seen,
                        int64_t dim, T* to) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  hn::Vec<decltype(d)> sums[kChunk];
  _Pragma("GCC unroll 4") for (int64_t j = 0; j < kChunk; j += 4) {
    if (j < seen)
      FourDots(d, j < first ? decayed_x : x, rows, j, dim, sums + j);
    else
      sums[j] = sums[j + 1] = sums[j + 2] = sums[j + 3] = hn::Zero(d);
  }
  FoldSums<kChunk, kLanes>(d, sums, to);
  for (int64_t j = seen; j < kChunk; ++j) to[j] = 0;
}

/// Walks the tokens of a chunk, with decays by channel, by blocks of four. At token i, visit(i,
/// Reach::before) is called first. Then the writer rows of the block before token i are decayed by the step
/// of token i, and visit(i, Reach::strict) is called. Writer row i is not decayed yet at the second call, so
/// readers of Reach::inclusive may read it too. Writer rows before the block are decayed to the start of the
/// block. The readers of those rows multiply themselves by c.walked, the decays from that start to the
/// reader. At the end, all writer rows are decayed to the end of the chunk. Without blocks the walk took 120
/// products of rows, and takes 48.
template <class T, class Visit>
HWY_INLINE void WalkDecays(const Chunk<T>& c, int64_t count, T* rows, T* more_rows, Visit visit) {
  const auto decay_rows = [&](int64_t first, int64_t last, const T* decay) {
    for (int64_t j = first; j < last; ++j) {
      MultiplyFlushed(rows + j * c.dim, decay, c.dim, rows + j * c.dim);
      if (more_rows) MultiplyFlushed(more_rows + j * c.dim, decay, c.dim, more_rows + j * c.dim);
    }
  };
  for (int64_t first = 0; first < count; first += kWalkBlock) {
    const int64_t last = HWY_MIN(first + kWalkBlock, count);
    Fill(T{1}, c.dim, c.walked);
    for (int64_t i = first; i < last; ++i) {
      visit(i, Reach::before);
      const T* decay = c.decay + i * c.dim;
      decay_rows(first, i, decay);
      MultiplyFlushed(c.walked, decay, c.dim, c.walked);
      visit(i, Reach::strict);
    }
    decay_rows(0, first, c.walked);
  }
}
/// The first token of the block of the walk.
HWY_INLINE int64_t WalkStart(int64_t token) {
  return token / kWalkBlock * kWalkBlock;
}

/// 1 within reach, else 0.
template <class T>
HWY_INLINE void ReachTable(Reach reach, T* to) {
  const hn::ScalableTag<T> d;
  for (int64_t j = 0; j < kChunk; j += static_cast<int64_t>(hn::Lanes(d))) {
    const auto column = hn::Iota(d, static_cast<T>(j));
    for (int64_t i = 0; i < kChunk; ++i) {
      const auto seen = hn::Set(d, static_cast<T>(reach == Reach::inclusive ? i + 1 : i));
      hn::StoreU(hn::IfThenElseZero(hn::Lt(column, seen), hn::Set(d, T(1))), d, to + i * kChunk + j);
    }
  }
}

/// Once for a unit: tables of 1 within reach, where channels have decays of their own, and all tables where
/// there are no decays.
template <class T>
HWY_INLINE void FillReachTables(const RecurrenceProblem<T>& p, const Chunk<T>& c) {
  if (p.decay == DecayKind::none) {
    Fill(T{1}, kChunk, c.decay);
    EdgeDecays(c);
    PairDecays(c.decay, QueryReach(p), c.q_gamma);
    PairDecays(c.decay, EraseReach(p), c.e_gamma);
  }
  if (p.decay != DecayKind::key) return;
  ReachTable(QueryReach(p), c.q_gamma);
  ReachTable(EraseReach(p), c.e_gamma);
}

/// x_start of token i, where channels have decays of their own.
template <class T>
HWY_INLINE void StartRow(const Chunk<T>& c, const T* x, int64_t i, Reach reach, T* to) {
  const int64_t from = reach == Reach::before ? i - 1 : i;
  if (from < 0)
    Copy(x, c.dim, to);
  else
    MultiplyFlushed(x, c.to_token + from * c.dim, c.dim, to);
}

/// The decays from the chunk's start to each token, by channel and of any strength. Those of TokenDecays may
/// be NaN where they are not mild.
template <class T>
HWY_INLINE void WalkedDecays(const ChunkAt& at, const Chunk<T>& c) {
  Copy(c.decay, c.dim, c.to_token);
  for (int64_t row = c.dim; row < at.count * c.dim; row += c.dim)
    MultiplyFlushed(c.to_token + row - c.dim, c.decay + row, c.dim, c.to_token + row);
}

/// Decays by channel of any strength.
template <class T>
HWY_NOINLINE void WalkedPairs(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                              const Chunk<T>& c) {
  const int64_t dim = c.dim;
  Copy(c.k, at.count * dim, c.k_end);
  if (c.b) Copy(c.b, at.count * dim, c.b_end);
  const Reach query_reach = QueryReach(p), erase_reach = EraseReach(p);
  const auto pairs = [&](const T* x, int64_t i, int64_t seen, T* by_k, T* by_b) {
    const int64_t first = WalkStart(i);
    if (first > 0) MultiplyFlushed(x, c.walked, dim, c.walked_row);
    DotRows(c.walked_row, x, c.k_end, first, seen, dim, by_k);
    if (c.b) DotRows(c.walked_row, x, c.b_end, first, seen, dim, by_b);
  };
  WalkDecays(c, at.count, c.k_end, c.b_end, [&](int64_t i, Reach now) {
    if (queries && (query_reach == Reach::before) == (now == Reach::before)) {
      const int64_t seen = query_reach == Reach::inclusive ? i + 1 : i;
      for (int64_t row = i; row < c.readers * kChunk; row += kChunk) {
        StartRow(c, c.q + row * dim, i, query_reach, c.q_start + row * dim);
        pairs(c.q + row * dim, i, seen, c.qk + row * kChunk, c.qb + row * kChunk);
      }
    }
    if (c.e && (erase_reach == Reach::before) == (now == Reach::before)) {
      StartRow(c, c.e + i * dim, i, erase_reach, c.e_start + i * dim);
      pairs(c.e + i * dim, i, i, c.ek + i * kChunk, c.eb + i * kChunk);
    }
  });
}

/// Rows without a token, which products over all readers read, become 0.
template <class T>
HWY_INLINE void ClearRowsBehind(const Chunk<T>& c, int64_t count) {
  if (c.readers == 1) return;
  for (int64_t row = 0; row < c.readers * kChunk; ++row) {
    if (row % kChunk < count) continue;
    Fill(T{0}, c.dim, c.q_start + row * c.dim);
    Fill(T{0}, kChunk, c.qk + row * kChunk);
    if (c.b) Fill(T{0}, kChunk, c.qb + row * kChunk);
  }
}

/// Decays by channel, from the rows of GatherChunk.
template <class T>
HWY_INLINE void ChannelPairs(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                             const Chunk<T>& c) {
  const StartedRows<T> rows = GatheredRows(p, queries, c);
  TokenDecays(p, at, c, rows);
  const auto query_rows = [&](int64_t r) { return RowsAt<T>{c.q + r * kChunk * c.dim, c.dim}; };
  for (int64_t r = 1; queries && r < c.readers; ++r) AddLargestReaders(query_rows(r), at.count, T(1), c);
  if (MildDecays(c, at.count)) {
    MildPairs(at, queries, c, rows, query_rows);
  } else {
    GatherDecays(p, at, c);
    WalkedDecays(at, c);
    WalkedPairs(p, at, queries, c);
  }
  if (queries) ClearRowsBehind(c, at.count);
}

/// own[i]: the share of its own target that token i reads, ⟨q, u∘k⟩ of BeforeDecay and w⟨q, k⟩ of SelfWeight,
/// for one query head.
template <class T>
HWY_NOINLINE void OwnShares(const RecurrenceProblem<T>& p, const ChunkAt& at, const RowsAt<T>& queries,
                            const RowsAt<T>& keys, T scale, T* own) {
  const TokenSequence& sequence = p.sequences[at.n];
  const T* bonus = p.bonus ? p.bonus + at.h * p.key_dim : nullptr;
  Fill(T{0}, kChunk, own);
  for (int64_t i = 0; i < at.count; ++i) {
    const T *q = queries.data + i * queries.stride, *k = keys.data + i * keys.stride;
    if (p.read == ReadKind::self_weight) {
      own[i] = Dot(q, k, p.key_dim) *
               *RecurrenceRow(p.self_weight, sequence.entry, at.h, sequence.row(at.begin + i));
    } else {
      for (int64_t j = 0; j < p.key_dim; ++j) own[i] += q[j] * bonus[j] * k[j];
    }
    own[i] *= scale;
  }
}

/// Everything of a chunk that needs no values. Without `queries`, only what the state needs.
template <class T>
HWY_INLINE void PrepareChunk(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                             const Chunk<T>& c) {
  GatherChunk(p, at, queries, c);
  if (p.decay == DecayKind::key) {
    ChannelPairs(p, at, queries, c);
  } else {
    if (p.decay != DecayKind::none) GatherDecays(p, at, c);
    ScalarPairs(p, at, queries, c);
  }
  for (int64_t r = 0; queries && p.read != ReadKind::after_write && r < c.readers; ++r)
    OwnShares<T>(p, at, {c.q + r * kChunk * c.dim, c.dim}, {c.k, c.dim}, T(1), c.own + r * kChunk);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// Mild decays by channel. Those between two tokens of a chunk are quotients of the decays from the chunk's
// start, so products of pairs of tokens are products of matrices.
#if defined(FOVEA_RECURRENCE_MILD_DECAYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_MILD_DECAYS_INL_H_
#undef FOVEA_RECURRENCE_MILD_DECAYS_INL_H_
#else
#define FOVEA_RECURRENCE_MILD_DECAYS_INL_H_
#endif

#include "kernels/recurrence/pair_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 4")
/// The largest elements of decayed reader rows and of divided writer rows that MildDecays takes, and of
/// derivatives by products of pairs. Sums of their products stay finite, out of reach too, where 0 · ∞ would
/// be NaN.
inline constexpr double kMostReader = 0x1p40, kMostWriter = 0x1p64, kMostPair = 0x1p40;

/// Whether no channel decays by more than 2^-20 in the chunk. Then products of pairs are products of
/// matrices: reader rows are decayed from the chunk's start, and writer rows divided by the decays from there
/// to their token. Each term of a sum keeps its relative error, since no factor leaves its range.
/// Sixteen gates of -0.87 in one channel are too strong, and so is a NaN. Such chunks walk, and those with
/// rows so large that a quotient or a product may overflow.
template <class T>
HWY_INLINE bool MildDecays(const Chunk<T>& c, int64_t count) {
  const hn::ScalableTag<T> d;
  const auto readers = hn::Le(hn::LoadU(d, c.largest), hn::Set(d, T(kMostReader))),
             writers = hn::Le(hn::LoadU(d, c.largest + hn::Lanes(d)), hn::Set(d, T(kMostWriter)));
  if (!hn::AllTrue(d, hn::And(readers, writers))) return false;
  const T* last = c.to_token + (count - 1) * c.dim;
  for (int64_t i = 0; i < c.dim; i += static_cast<int64_t>(hn::Lanes(d))) {
    if (!hn::AllTrue(d, hn::Ge(hn::LoadU(d, last + i), hn::Set(d, T(0x1p-20))))) return false;
  }
  return true;
}

/// 1 / x with an error of an ulp. A division of a vector of AVX-512 takes 10 cycles, and this 4.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Reciprocal(D d, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64 && sizeof(hn::TFromD<D>) == 4) {
    const V near{_mm512_rcp14_ps(x.raw)};
    return hn::MulAdd(hn::NegMulAdd(x, near, hn::Set(d, 1.0f)), near, near);
  }
#endif
  return hn::Div(hn::Set(d, hn::TFromD<D>(1)), x);
}

/// Reader rows that are decayed from the chunk's start by `reach`, times a factor of their token; `to` has
/// rows of c.dim. Null: there are none.
template <class T>
struct StartedReaders {
  RowsAt<T> from;
  T* to;
  Reach reach;
  T factor;
  const T* factors;  // in the place of `factor`, where not null

  HWY_INLINE T FactorOf(int64_t i) const { return factors ? factors[i] : factor; }
};
/// Writer rows that are divided by the decays from the chunk's start.
template <class T>
struct StartedWriters {
  RowsAt<T> from;
  T* to;
};
/// Rows of a chunk, of whole vectors: the first query head and what erases; keys and b.
template <class T>
struct StartedRows {
  StartedReaders<T> readers[2];
  StartedWriters<T> writers[2];
};

/// The rows of GatherChunk.
template <class T>
HWY_INLINE StartedRows<T> GatheredRows(const RecurrenceProblem<T>& p, bool queries, const Chunk<T>& c) {
  return {{{{c.q, c.dim}, queries ? c.q_start : nullptr, QueryReach(p), T(1), nullptr},
           {{c.e, c.dim}, c.e_start, EraseReach(p), T(1), nullptr}},
          {{{c.k, c.dim}, c.k_start}, {{c.b, c.dim}, c.b_start}}};
}

/// The gates of a chunk's tokens, in rows of whole vectors.
template <class T>
HWY_INLINE void GateRows(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c,
                         const T** rows) {
  const TokenSequence& sequence = p.sequences[at.n];
  for (int64_t i = 0; i < at.count; ++i) {
    rows[i] = RecurrenceRow(p.log_decay, sequence.entry, at.h, sequence.row(at.begin + i));
    if (c.dim == p.key_dim) continue;
    T* row = c.to_token + i * c.dim;
    Copy(rows[i], p.key_dim, row);
    Fill(T{0}, c.dim - p.key_dim, row + p.key_dim);
    rows[i] = row;
  }
}

/// `kVectors` vectors of products, to a row; `most` becomes the larger of itself and their absolute values.
template <int kVectors, class D, class T, class V = hn::Vec<D>, class Product>
HWY_INLINE void StoreProducts(D d, Product product, T* to, V& most) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V largest = hn::Zero(d);
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    const V x = product(v);
    largest = hn::Max(hn::Abs(x), largest);
    hn::StoreU(x, d, to + v * lanes);
  }
  most = hn::Max(largest, most);
}

/// Channels [j, j + kVectors vectors) of TokenDecays. Exponentials of all tokens come first, since none waits
/// for another one. In one loop with the rows they took a tenth more time.
template <int kVectors, class T>
HWY_INLINE void DecayColumns(const T* const* gates, int64_t count, const Chunk<T>& c, int64_t j,
                             const StartedRows<T>& started) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), dim = c.dim;
  T* decays = c.to_token + j;
  for (int64_t i = 0; i < count; ++i) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v)
        hn::StoreU(RowExp(d, hn::LoadU(d, gates[i] + j + v * lanes)), d, decays + i * dim + v * lanes);
  }
  // Copies, so that what they say is not read again behind each store.
  const StartedReaders<T> queries = started.readers[0], erasures = started.readers[1];
  const StartedWriters<T> keys = started.writers[0], more_keys = started.writers[1];
  T* largest = c.largest;
  V product[kVectors], before[kVectors], inverse[kVectors], most_read = hn::LoadU(d, largest),
                                                            most_written = hn::LoadU(d, largest + lanes);
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) product[v] = hn::Set(d, T(1));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i * dim;
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
      T* decay = decays + row + v * lanes;
      before[v] = product[v];
      product[v] = Flush(d, hn::Mul(product[v], hn::LoadU(d, decay)));
      inverse[v] = Reciprocal(d, product[v]);
      hn::StoreU(product[v], d, decay);
    }
    const auto read = [&](const StartedReaders<T>& x) HWY_ATTR {
      if (!x.to) return;
      const T* from = x.from.data + i * x.from.stride + j;
      const V factor = hn::Set(d, x.FactorOf(i));
      const auto decayed_by = [&](const V* decay) HWY_ATTR {
        StoreProducts<kVectors>(
            d,
            [&](int v) HWY_ATTR {
              return Flush(d, hn::Mul(hn::Mul(hn::LoadU(d, from + v * lanes), factor), decay[v]));
            },
            x.to + row + j, most_read);
      };
      if (x.reach == Reach::before)
        decayed_by(before);
      else
        decayed_by(product);
    };
    const auto write = [&](const StartedWriters<T>& y) HWY_ATTR {
      if (!y.to) return;
      const T* from = y.from.data + i * y.from.stride + j;
      StoreProducts<kVectors>(
          d, [&](int v) HWY_ATTR { return hn::Mul(hn::LoadU(d, from + v * lanes), inverse[v]); },
          y.to + row + j, most_written);
    };
    read(queries);
    read(erasures);
    write(keys);
    write(more_keys);
  }
  hn::StoreU(most_read, d, largest);
  hn::StoreU(most_written, d, largest + lanes);
}

/// The decays from the chunk's start to each token, by channel, and the rows that they decay. Their results
/// count only if MildDecays. The exponentials of all tokens come first, and then the rows that they decay, as
/// DecayColumns says.
template <class T>
HWY_NOINLINE void TokenDecays(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c,
                              const StartedRows<T>& started) {
  const T* gates[kChunk];
  GateRows(p, at, c, gates);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  Fill(T{0}, 2 * lanes, c.largest);
  int64_t j = 0;
  if constexpr (kTileVectors == 4) {
    for (; j + 4 * lanes <= c.dim; j += 4 * lanes) DecayColumns<4>(gates, at.count, c, j, started);
  }
  // Two vectors of eight are a line, which is read once even if all rows lie in the same set of a cache.
  for (; j + 2 * lanes <= c.dim; j += 2 * lanes) DecayColumns<2>(gates, at.count, c, j, started);
  if (j < c.dim) DecayColumns<1>(gates, at.count, c, j, started);
}

/// Rows of further query heads, which MildPairs decays, for MildDecays to know of.
template <class T>
HWY_INLINE void AddLargestReaders(const RowsAt<T>& x, int64_t count, T factor, const Chunk<T>& c) {
  const hn::ScalableTag<T> d;
  const auto by = hn::Set(d, factor);
  auto most = hn::LoadU(d, c.largest);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < c.dim; j += static_cast<int64_t>(hn::Lanes(d)))
      most = hn::Max(hn::Abs(hn::Mul(by, hn::LoadU(d, x.data + i * x.stride + j))), most);
  }
  hn::StoreU(most, d, c.largest);
}

/// to = f · x times the decays to token i of the chunk by `reach`.
template <class T>
HWY_INLINE void MildStartRow(const Chunk<T>& c, const T* x, T f, int64_t i, Reach reach, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t from = reach == Reach::before ? i - 1 : i;
  if (from < 0) return ScaleInto(f, x, c.dim, to);
  const T* decay = c.to_token + from * c.dim;
  const auto factor = hn::Set(d, f);
  for (int64_t j = 0; j < c.dim; j += static_cast<int64_t>(hn::Lanes(d))) {
    const auto product = hn::Mul(hn::Mul(hn::LoadU(d, x + j), factor), hn::LoadU(d, decay + j));
    hn::StoreU(Flush(d, product), d, to + j);
  }
}

/// Mild decays by channel, behind TokenDecays. query_rows(reader) gives the rows of the other query heads.
template <class T, class QueryRows>
HWY_NOINLINE void MildPairs(const ChunkAt& at, bool queries, const Chunk<T>& c, const StartedRows<T>& started,
                            QueryRows query_rows) {
  const int64_t dim = c.dim, count = at.count;
  const StartedReaders<T>& first = started.readers[0];
  for (int64_t r = 1; queries && r < c.readers; ++r) {
    const RowsAt<T> q = query_rows(r);
    for (int64_t i = 0; i < count; ++i)
      MildStartRow(c, q.data + i * q.stride, first.factor, i, first.reach,
                   c.q_start + (r * kChunk + i) * dim);
  }
  const auto pairs = [&](T* start, T* by_q, T* by_e) {
    Fill(T{0}, (kChunk - count) * dim, start + count * dim);
    const PairWriters<T> writers = TransposeWriters<T>({start, dim}, kChunk, dim, c.transposed);
    for (int64_t r = 0; queries && r < c.readers; ++r) {
      PairProducts<T>({c.q_start + r * kChunk * dim, dim}, count, dim, writers, c.q_gamma, nullptr,
                      by_q + r * kChunk * kChunk);
    }
    if (c.e) PairProducts<T>({c.e_start, dim}, count, dim, writers, c.e_gamma, nullptr, by_e);
  };
  pairs(c.k_start, c.qk, c.ek);
  if (c.b) pairs(c.b_start, c.qb, c.eb);
}
/// k_end and b_end of mild decays. A state could also add what k_start and b_start write, and be decayed
/// then. But those sums are up to 2^20 times as large as the state, and would overflow first.
template <class T>
HWY_INLINE void MildEnds(const ChunkAt& at, const Chunk<T>& c) {
  const T* whole = c.to_token + (at.count - 1) * c.dim;
  for (int64_t i = 0; i < at.count; ++i) {
    MultiplyFlushed(c.k_start + i * c.dim, whole, c.dim, c.k_end + i * c.dim);
    if (c.b) MultiplyFlushed(c.b_start + i * c.dim, whole, c.dim, c.b_end + i * c.dim);
  }
}

#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

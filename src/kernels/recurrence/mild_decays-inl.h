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
/// Writer rows that are divided by the decays from the chunk's start, and those that are decayed to its end.
/// Null: there are none.
template <class T>
struct StartedWriters {
  RowsAt<T> from;
  T *to, *end;
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
          {{{c.k, c.dim}, c.k_start, c.k_end}, {{c.b, c.dim}, c.b_start, c.b_end}}};
}

/// The gates of a chunk's tokens, in rows of whole vectors: where the caller has them, or copies in
/// c.to_token.
template <class T>
HWY_INLINE RowsAt<T> GateRows(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c) {
  const TokenSequence& sequence = p.sequences[at.n];
  if (!sequence.rows && c.dim == p.key_dim)
    return {RecurrenceRow(p.log_decay, sequence.entry, at.h, sequence.begin + at.begin),
            p.log_decay.row_stride};
  for (int64_t i = 0; i < at.count; ++i) {
    T* row = c.to_token + i * c.dim;
    Copy(RecurrenceRow(p.log_decay, sequence.entry, at.h, sequence.row(at.begin + i)), p.key_dim, row);
    Fill(T{0}, c.dim - p.key_dim, row + p.key_dim);
  }
  return {c.to_token, c.dim};
}

/// The larger of two absolute values. NaN may be lost.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LargerOf([[maybe_unused]] D d, V x, V largest) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64 && sizeof(hn::TFromD<D>) == 4)
    return V{_mm512_range_ps(x.raw, largest.raw, 0x0B)};
#endif
  return hn::Max(hn::Abs(x), largest);
}

/// `kVectors` vectors of products, to a row; `most` becomes the larger of itself and their absolute values.
template <int kVectors, class D, class T, class V = hn::Vec<D>, class Product>
HWY_INLINE void StoreProducts(D d, Product product, T* to, V& most) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V largest = hn::Zero(d);
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    const V x = product(v);
    largest = LargerOf(d, x, largest);
    hn::StoreU(x, d, to + v * lanes);
  }
  most = LargerOf(d, largest, most);
}

/// Channels [j, j + kVectors vectors) of the readers of TokenDecays.
template <int kVectors, class T>
HWY_INLINE void DecayReaders(const StartedReaders<T>& x, int64_t count, const Chunk<T>& c, int64_t j) {
  if (!x.to) return;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), dim = c.dim, stride = x.from.stride,
                first = x.reach == Reach::before ? 1 : 0;
  const T *from = x.from.data + j, *decays = c.to_token + j, *factors = x.factors;
  T *to = x.to + j, *largest = c.largest;
  const T factor = x.factor;
  V most = hn::LoadU(d, largest);
  const auto row = [&](int64_t i, auto decay) HWY_ATTR {
    const V by = hn::Set(d, factors ? factors[i] : factor);
    StoreProducts<kVectors>(
        d,
        [&](int v) HWY_ATTR {
          return Flush(d, hn::Mul(hn::Mul(hn::LoadU(d, from + i * stride + v * lanes), by), decay(v)));
        },
        to + i * dim, most);
  };
  if (first > 0 && count > 0) row(0, [&](int) HWY_ATTR { return hn::Set(d, T(1)); });
  for (int64_t i = first; i < count; ++i)
    row(i, [&](int v) HWY_ATTR { return hn::LoadU(d, decays + (i - first) * dim + v * lanes); });
  hn::StoreU(most, d, largest);
}

/// Channels [j, j + kVectors vectors) of the writers of TokenDecays.
template <int kVectors, class T>
HWY_INLINE void DivideWriters(const StartedWriters<T>& y, int64_t count, const Chunk<T>& c, int64_t j) {
  if (!y.to || count == 0) return;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), dim = c.dim, stride = y.from.stride;
  const T *from = y.from.data + j, *decays = c.to_token + j, *last = decays + (count - 1) * dim;
  T *to = y.to + j, *end = y.end + j, *largest = c.largest + lanes;
  V whole[kVectors], most = hn::LoadU(d, largest);
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) whole[v] = hn::LoadU(d, last + v * lanes);
  for (int64_t i = 0; i < count; ++i, from += stride, decays += dim, to += dim, end += dim) {
    StoreProducts<kVectors>(
        d,
        [&](int v) HWY_ATTR {
          const V inverse = Reciprocal(d, hn::LoadU(d, decays + v * lanes)),
                  quotient = hn::Mul(hn::LoadU(d, from + v * lanes), inverse);
          hn::StoreU(Flush(d, hn::Mul(quotient, whole[v])), d, end + v * lanes);
          return quotient;
        },
        to, most);
  }
  hn::StoreU(most, d, largest);
}

/// Channels [j, j + kVectors vectors) of TokenDecays, a loop for each set of rows. With one loop for all,
/// which asks what rows there are, forward of GLA took a twentieth more time on a Zen 5. Exponentials of sums
/// of gates do not wait for each other, as products of decays do.
template <int kVectors, class T>
HWY_INLINE void DecayColumns(const RowsAt<T>& gates, int64_t count, const Chunk<T>& c, int64_t j,
                             const StartedRows<T>& started) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), dim = c.dim, stride = gates.stride;
  const T* gate = gates.data + j;
  T* decays = c.to_token + j;
  hn::Vec<decltype(d)> sums[kVectors];
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t i = 0; i < count; ++i, gate += stride, decays += dim) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
      sums[v] = AddGate(d, hn::LoadU(d, gate + v * lanes), sums[v]);
      hn::StoreU(Flush(d, ExpOfGates(d, sums[v])), d, decays + v * lanes);
    }
  }
  for (const StartedReaders<T>& x : started.readers) DecayReaders<kVectors>(x, count, c, j);
  for (const StartedWriters<T>& y : started.writers) DivideWriters<kVectors>(y, count, c, j);
}

/// The decays from the chunk's start to each token, by channel, and the rows that they decay. Their results
/// count only if MildDecays.
template <class T>
HWY_NOINLINE void TokenDecays(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c,
                              const StartedRows<T>& started) {
  const RowsAt<T> gates = GateRows(p, at, c);
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

#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

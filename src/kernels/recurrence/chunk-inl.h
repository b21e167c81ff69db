// One chunk of tokens of one state head, without its values: the rows of queries, keys and erasures, the
// decays between the tokens, and the products of pairs of tokens.
//
// Words of this directory:
//
//   chunk        16 tokens, or the rest of a sequence
//   reader rows  rows by which a token reads the state: q, one for each query head that reads this state, and
//                e, which is -r of a delta write and a of a low-rank one
//   writer rows  rows under which a token writes: k, and b of a low-rank write
//   start, end   x_start is a reader row times the decays from the chunk's start to its token, x_end a writer
//                row times the decays from its token to the chunk's end
//
// A decay between two tokens is a running product of e^g, each factor at most 1. A quotient of two products
// would be infinite for gates near -20. Numbers below the smallest normal one become 0, because arithmetic
// with subnormal numbers is slow on many CPUs.
#if defined(FOVEA_RECURRENCE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_CHUNK_INL_H_
#undef FOVEA_RECURRENCE_CHUNK_INL_H_
#else
#define FOVEA_RECURRENCE_CHUNK_INL_H_
#endif

#include <cfloat>

#include "kernels/recurrence/chunked.h"
#include "kernels/recurrence/gates-inl.h"
#include "kernels/recurrence/stored-inl.h"
#include "kernels/simd/subnormals.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t kChunk = recurrence_chunk;
constexpr int64_t kWalkBlock = 4;  // tokens: see WalkDecays

/// The tokens that a reader row of token i reads. `inclusive`: 0..i, decayed by the steps up to that of token
/// i. `strict`: 0..i-1, decayed likewise. `before`: 0..i-1, without the step of token i.
enum class Reach { inclusive, strict, before };

template <class T>
HWY_INLINE int64_t ReadersOf(const RecurrenceProblem<T>& p) {
  return p.query_heads > p.heads ? p.query_heads / p.heads : 1;
}
// Heads that are not shared need no division.
template <class T>
HWY_INLINE int64_t QueryHeadOf(const RecurrenceProblem<T>& p, int64_t head, int64_t reader) {
  if (p.query_heads == p.heads) return head;
  return p.query_heads > p.heads ? head * ReadersOf(p) + reader : head / (p.heads / p.query_heads);
}
template <class T>
HWY_INLINE int64_t KeyHeadOf(const RecurrenceProblem<T>& p, int64_t head) {
  return p.key_heads == p.heads ? head : head / (p.heads / p.key_heads);
}
template <class T>
HWY_INLINE Reach QueryReach(const RecurrenceProblem<T>& p) {
  return p.read == ReadKind::after_write    ? Reach::inclusive
         : p.read == ReadKind::before_decay ? Reach::before
                                            : Reach::strict;
}
template <class T>
HWY_INLINE Reach EraseReach(const RecurrenceProblem<T>& p) {
  return p.write == WriteKind::low_rank ? Reach::before : Reach::strict;
}

/// Tokens [begin, begin + count) of sequence n, for state head h.
struct ChunkAt {
  int64_t n, h, begin, count;
};

/// The rows of a chunk, [16][dim] with dim padded to whole vectors; of queries [readers · 16][dim]. Rows
/// behind `count` are 0. Null where the rule has none.
template <class T>
struct Chunk {
  T *q, *q_start, *k, *k_end, *e, *e_start, *b, *b_end;  // without decays each pair is one buffer
  T* transposed;                                         // [dim][16]: keys, then b
  T* decay;                                              // e^g: [16][dim] by channel, else [16]
  T* to_token;             // decays from the start to each token, in the shape of `decay`
  T* to_end;               // from each token to the end: [16], where not by channel
  T *q_gamma, *e_gamma;    // [16][16]: decays of pairs by the reach of q and e; by channel 1 within reach
  T *qk, *qb;              // [readers · 16][16]: products of pairs with their decays, 0 out of reach
  T *ek, *eb;              // [16][16]
  T *walked, *walked_row;  // [dim], where by channel: see WalkDecays
  T *k_start, *b_start;    // [16][dim]: k and b over to_token, where by channel and mild: see MildDecays
  T* largest;              // two vectors, where by channel: see MildDecays
  T* own;                  // [readers · 16]: the share of its own target that a token reads
  int64_t dim, readers;

  HWY_INLINE int64_t QueryRows(int64_t count) const { return readers == 1 ? count : readers * kChunk; }
};

template <class T>
HWY_INLINE Chunk<T> TakeChunk(const RecurrenceProblem<T>& p, Carve& carve) {
  const int64_t dim = Padded<T>(p.key_dim), readers = ReadersOf(p), rows = kChunk * dim,
                pairs = kChunk * kChunk;
  const bool by_channel = p.decay == DecayKind::key, low_rank = p.write == WriteKind::low_rank;
  const auto take = [&](bool wanted, int64_t count) { return wanted ? carve.Take<T>(count) : nullptr; };
  const bool erases = p.write != WriteKind::additive;
  Chunk<T> c{carve.Take<T>(readers * rows),
             carve.Take<T>(readers * rows),
             carve.Take<T>(rows),
             carve.Take<T>(rows),
             take(erases, rows),
             take(erases, rows),
             take(low_rank, rows),
             take(low_rank, rows),
             carve.Take<T>(rows),
             carve.Take<T>(by_channel ? rows : kChunk),
             carve.Take<T>(by_channel ? rows : kChunk),
             take(!by_channel, kChunk),
             carve.Take<T>(pairs),
             carve.Take<T>(pairs),
             carve.Take<T>(readers * pairs),
             take(low_rank, readers * pairs),
             take(erases, pairs),
             take(low_rank, pairs),
             take(by_channel, dim),
             take(by_channel, dim),
             take(by_channel, rows),
             take(by_channel && low_rank, rows),
             take(by_channel, 2 * Padded<T>(1)),
             carve.Take<T>(readers * kChunk),
             dim,
             readers};
  if (p.decay == DecayKind::none) {
    c.q_start = c.q;
    c.e_start = c.e;
    c.k_end = c.k;
    c.b_end = c.b;
  }
  return c;
}

/// Rows of a chunk, one a token, where the caller has them or gathered.
template <class T>
struct RowsAt {
  const T* data;
  int64_t stride;
};

/// Subnormal numbers become 0 where FlushSubnormals does not do that. The comparisons took a fiftieth of a
/// forward call with decays by channel.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Flush([[maybe_unused]] D d, V x) {
  if constexpr (FlushSubnormals::exists()) return x;
  using T = hn::TFromD<D>;
  const V smallest = hn::Set(d, sizeof(T) == 8 ? T(DBL_MIN) : T(FLT_MIN));
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(x), smallest), x);
}
template <class T>
HWY_INLINE T FlushOne(T x) {
  if constexpr (FlushSubnormals::exists()) return x;
  return x < (sizeof(T) == 8 ? T(DBL_MIN) : T(FLT_MIN)) ? T(0) : x;
}
/// to = x ∘ f, flushed; whole vectors.
template <class T>
HWY_INLINE void MultiplyFlushed(const T* x, const T* f, int64_t dim, T* to) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < dim; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(Flush(d, hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, f + i))), d, to + i);
}

/// factor(i) times row i of head h, for `count` rows of `dim` elements; zeros behind and below.
template <class T, class Factor>
HWY_INLINE void GatherRows(const StoredOperand<const std::byte>& from, const TokenSequence& sequence,
                           int64_t h, const ChunkAt& at, int64_t offset, int64_t dim, int64_t stride,
                           Factor factor, T* to) {
  if (dim == stride && !sequence.rows && RowsAreOf<T>(from.dtype)) {
    const std::byte* first = RecurrenceRow(from, sequence.entry, h, sequence.begin + at.begin);
    const T* rows = reinterpret_cast<const T*>(first) + offset;
    for (int64_t i = 0; i < at.count; ++i)
      ScaleInto(factor(i), rows + i * from.row_stride, dim, to + i * stride);
    Fill(T{0}, (kChunk - at.count) * stride, to + at.count * stride);
    return;
  }
  for (int64_t i = 0; i < kChunk; ++i) {
    T* row = to + i * stride;
    if (i >= at.count) {
      Fill(T{0}, stride, row);
      continue;
    }
    const int64_t token = sequence.row(at.begin + i);
    const T f = factor(i);
    if (f != T(1) && dim == stride && RowsAreOf<T>(from.dtype)) {
      const auto* source = reinterpret_cast<const T*>(RecurrenceRow(from, sequence.entry, h, token));
      ScaleInto(f, source + offset, dim, row);
      continue;
    }
    ReadStored(from, sequence.entry, h, token, offset, dim, row);
    Fill(T{0}, stride - dim, row + dim);
    if (f != T(1)) ScaleInto(f, row, stride, row);
  }
}

template <class T>
HWY_INLINE int64_t StateColumns(const RecurrenceProblem<T>& p) {
  return p.value_dim + (p.sums_keys ? 1 : 0);
}
/// Whether products read copies of query and key rows that the kernel itself makes.
template <class T>
HWY_INLINE bool MapsRows(const RecurrenceProblem<T>& p) {
  return p.features != RowFeatures::identity || p.sums_keys;
}
/// elu(x) + 1 of a row of whole vectors.
template <class T>
HWY_INLINE void EluRow(const T* x, int64_t dim, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + 4 * lanes <= dim; j += 4 * lanes) {
    _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v)
        hn::StoreU(EluAndOne(d, hn::LoadU(d, x + j + v * lanes)), d, to + j + v * lanes);
  }
  for (; j < dim; j += lanes) hn::StoreU(EluAndOne(d, hn::LoadU(d, x + j)), d, to + j);
}

/// The features of rows of queries or keys, times a factor; zeros behind and below.
template <class T>
HWY_NOINLINE void GatherFeatures(const RecurrenceProblem<T>& p, const StoredOperand<const std::byte>& from,
                                 int64_t h, const ChunkAt& at, T factor, T* to) {
  const int64_t dim = Padded<T>(p.key_dim);
  const TokenSequence& sequence = p.sequences[at.n];
  const bool maps = p.features == RowFeatures::elu_plus_one,
             in_place = maps && dim == p.key_dim && RowsAreOf<T>(from.dtype);
  int64_t i = 0;
  if (in_place && !sequence.rows) {  // without calls, so that the constants of exponentials stay in registers
    const std::byte* first = RecurrenceRow(from, sequence.entry, h, sequence.begin + at.begin);
    const T* rows = reinterpret_cast<const T*>(first);
    for (; i < at.count; ++i) EluRow(rows + i * from.row_stride, dim, to + i * dim);
  }
  for (; i < at.count; ++i) {
    const int64_t token = sequence.row(at.begin + i);
    T* row = to + i * dim;
    if (in_place) {
      EluRow(reinterpret_cast<const T*>(RecurrenceRow(from, sequence.entry, h, token)), dim, row);
      continue;
    }
    ReadStored(from, sequence.entry, h, token, 0, p.key_dim, row);
    if (maps) EluRow(row, dim, row);
    Fill(T{0}, dim - p.key_dim, row + p.key_dim);  // where elu(0) + 1 is 1
  }
  if (factor != T(1)) ScaleInto(factor, to, at.count * dim, to);
  Fill(T{0}, (kChunk - at.count) * dim, to + at.count * dim);
}

/// dx *= f · the derivative of elu, which is the smaller of elu(x) + 1 and 1, from rows of f · (elu(x) + 1).
template <class T>
HWY_INLINE void TimesFeatureSlope(const T* rows, T f, int64_t dim, T* dx) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, f);
  for (int64_t j = 0; j < dim; j += static_cast<int64_t>(hn::Lanes(d))) {
    const auto slope = AtMost(hn::Abs(factor), hn::Abs(hn::LoadU(d, rows + j)));
    hn::StoreU(hn::Mul(hn::LoadU(d, dx + j), hn::CopySign(slope, factor)), d, dx + j);
  }
}

/// Beta of token i of the chunk; 1 where there is none.
template <class T>
HWY_INLINE T BetaAt(const RecurrenceProblem<T>& p, const ChunkAt& at, int64_t i) {
  if (!p.beta.data) return T(1);
  const TokenSequence& sequence = p.sequences[at.n];
  return *RecurrenceRow(p.beta, sequence.entry, at.h, sequence.row(at.begin + i));
}

/// The rows of keys and erasures, and of queries where outputs are wanted.
template <class T>
HWY_NOINLINE void GatherChunk(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                              const Chunk<T>& c) {
  const TokenSequence& sequence = p.sequences[at.n];
  const auto one = [](int64_t) { return T(1); };
  const auto gather = [&](const StoredOperand<const std::byte>& from, int64_t head, auto factor, T* to) {
    GatherRows(from, sequence, head, at, 0, p.key_dim, c.dim, factor, to);
  };
  const T scale = static_cast<T>(p.scale);
  if (MapsRows(p)) {
    GatherFeatures(p, p.key, KeyHeadOf(p, at.h), at, T(1), c.k);
    for (int64_t reader = 0; queries && reader < c.readers; ++reader)
      GatherFeatures(p, p.query, QueryHeadOf(p, at.h, reader), at, scale, c.q + reader * kChunk * c.dim);
    return;
  }
  gather(p.key, KeyHeadOf(p, at.h), one, c.k);
  if (p.write == WriteKind::low_rank) {
    gather(p.a, at.h, one, c.e);
    gather(p.b, at.h, one, c.b);
  } else if (p.write == WriteKind::delta) {
    const auto minus_beta = [&](int64_t i) { return -BetaAt(p, at, i); };
    if (p.erase.data)
      gather(p.erase, at.h, minus_beta, c.e);
    else
      gather(p.key, KeyHeadOf(p, at.h), minus_beta, c.e);
  }
  for (int64_t reader = 0; queries && reader < c.readers; ++reader) {
    gather(
        p.query, QueryHeadOf(p, at.h, reader), [&](int64_t) { return scale; }, c.q + reader * kChunk * c.dim);
  }
}

/// Whether the gates of tokens, one each, follow each other.
template <class T>
HWY_INLINE bool GatesLieSideBySide(const RecurrenceProblem<T>& p, const TokenSequence& sequence) {
  return !sequence.rows && p.log_decay.row_stride == 1;
}

/// decay = e^g of every token; 1 behind the tokens.
template <class T>
HWY_NOINLINE void GatherDecays(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const TokenSequence& sequence = p.sequences[at.n];
  const auto gates = [&](int64_t i) {
    return RecurrenceRow(p.log_decay, sequence.entry, at.h, sequence.row(at.begin + i));
  };
  if (p.decay == DecayKind::key) {
    for (int64_t i = 0; i < at.count; ++i) {
      T* row = c.decay + i * c.dim;
      const T* from = gates(i);
      if (c.dim > p.key_dim) {
        Copy(from, p.key_dim, row);
        Fill(T{0}, c.dim - p.key_dim, row + p.key_dim);
        from = row;
      }
      for (int64_t j = 0; j < c.dim; j += lanes) hn::StoreU(RowExp(d, hn::LoadU(d, from + j)), d, row + j);
    }
    return;
  }
  const T* from = c.decay;
  if (p.decay == DecayKind::scalar && at.count == kChunk && GatesLieSideBySide(p, sequence)) {
    from = gates(0);
  } else {
    for (int64_t i = 0; i < kChunk; ++i)
      c.decay[i] = p.decay == DecayKind::none || i >= at.count ? 0 : *gates(i);
  }
  for (int64_t j = 0; j < kChunk; j += lanes) hn::StoreU(Exp(d, hn::LoadU(d, from + j)), d, c.decay + j);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

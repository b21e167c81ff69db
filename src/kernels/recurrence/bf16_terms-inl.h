// The products of forward by chunks, by pairs of bf16 numbers. Rows of 16 bits are multiplied
// as they are. States, W and the products of pairs of tokens are kept in f32, and rounded where a product
// reads them. The sums, the solves and the decays are those of recurrence/chunked_forward-inl.h.
#if defined(FOVEA_RECURRENCE_BF16_TERMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_BF16_TERMS_INL_H_
#undef FOVEA_RECURRENCE_BF16_TERMS_INL_H_
#else
#define FOVEA_RECURRENCE_BF16_TERMS_INL_H_
#endif

#include "kernels/recurrence/bf16_matrix-inl.h"
#include "kernels/recurrence/forward_terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Pairs of rows: row i of `to` has rows 2i and 2i + 1 of x, times their factors. Null factors are 1.
/// `stride` is of whole vectors.
HWY_INLINE void PairRows(const RowsAt<float>& x, int64_t count, int64_t stride, const float* factors,
                         Bf16Pair* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += 2, to += stride) {
    const bool two = i + 1 < count;
    const float *low = x.data + i * x.stride, *high = two ? low + x.stride : low;
    const auto by_low = hn::Set(d, factors ? factors[i] : 1.0f),
               by_high = hn::Set(d, !two      ? 0.0f
                                    : factors ? factors[i + 1]
                                              : 1.0f);
    for (int64_t j = 0; j < stride; j += lanes) {
      // Behind an odd count it is 0 without a product, since the row may have an infinity.
      const auto second = two ? hn::Mul(by_high, hn::LoadU(d, high + j)) : hn::Zero(d);
      StorePairs(d, hn::Mul(by_low, hn::LoadU(d, low + j)), second, to + j);
    }
  }
}

/// Products of pairs of bf16 numbers.
class PairTerms : public ForwardChunk<float> {
 public:
  using Element = Bf16Pair;
  using Matrix = PairMatrix;
  static constexpr int64_t kPairs = kChunk / 2;

  PairTerms(const RecurrenceProblem<float>& problem, const Columns& unit_columns, const Chunk<float>& chunk,
            const ForwardBuffers<float>& buffers, Carve& carve, int64_t value_pairs = kPairs)
      : ForwardChunk<float>{problem, unit_columns, chunk, buffers, {}, {}},
        stride_((p.key_dim + 31) / 32 * 16) {
    const bool delta = p.write == WriteKind::delta, low_rank = p.write == WriteKind::low_rank;
    const int64_t rows = kChunk * stride_, pairs = kChunk * kPairs,
                  values = value_pairs * Padded<float>(TilesOf(p).width),
                  tokens = kPairs * Padded<float>(p.key_dim);
    const auto take = [&](bool wanted, int64_t count) {
      return wanted ? carve.Take<Bf16Pair>(count) : nullptr;
    };
    q_ = take(true, c.readers * rows);
    k_ = take(true, rows);
    e_ = take(delta || low_rank, rows);  // without p.erase too, which is null when a plan asks for the size
    b_ = take(low_rank, rows);
    transposed_ = take(true, rows);
    k_tokens_ = take(true, tokens);
    b_tokens_ = take(low_rank, tokens);
    qk_ = take(true, c.readers * pairs);
    qb_ = take(low_rank, c.readers * pairs);
    ek_ = take(low_rank, pairs);
    values_ = take(!delta, values);
    written_ = take(delta || low_rank, values);
    k_writes_ = take(DecaysWrites(), values);
    b_writes_ = take(DecaysWrites() && low_rank, values);
    state_ = take(true, stride_ * Padded<float>(TilesOf(p).width));
    row_ = carve.Take<float>(Padded<float>(p.key_dim));
  }

  struct Hold {};
  HWY_INLINE Hold HoldEngine() const { return {}; }
  HWY_INLINE void Start(const float* state) {
    PairRows({state, columns.stride}, p.key_dim, columns.stride, nullptr, state_);
  }

  HWY_INLINE void Prepare(const ChunkAt& next, bool queries) {
    at = next;
    rows = {};
    ReadBeta(p, at, f);
    if (p.decay == DecayKind::key) {
      rows = ChannelDecayRows(p, at, queries, c, f);
      RoundDecayed(queries);
    } else {
      SharedDecays(queries);
    }
    rows.values = ValueRowsOf(p, at, columns, f.values);
    for (int64_t r = 0; queries && r < c.readers; ++r) RoundPairs(c.qk, r, qk_);
    if (c.b) {
      for (int64_t r = 0; queries && r < c.readers; ++r) RoundPairs(c.qb, r, qb_);
      RoundPairs(c.ek, 0, ek_);
    }
    if (values_) PairValues(rows.values, nullptr, values_);
    PairTokens(k_, k_tokens_);
    if (c.b) PairTokens(b_, b_tokens_);
  }
  HWY_INLINE void TakeWritten(const float* written) {
    PairValues({written, columns.stride}, nullptr, written_);
  }
  HWY_INLINE Bf16Pair* StatePairs() const { return state_; }
  HWY_INLINE void Multiply(int64_t, ChunkSum<float, Bf16Pair>&) const {}

  HWY_INLINE ChunkTerm<Bf16Pair> Erase(const float*) const { return ByState(Erasers()); }
  HWY_INLINE ChunkTerm<Bf16Pair> Query(int64_t reader, const float*) const {
    return ByState(q_ + reader * kChunk * stride_);
  }
  HWY_INLINE ChunkTerm<Bf16Pair> EraseValues() const { return ByPairs(ek_, values_); }
  HWY_INLINE ChunkTerm<Bf16Pair> KeyPairs(int64_t reader, const float*) const {
    return ByPairs(qk_ + reader * kChunk * kPairs, values_ ? values_ : written_);
  }
  HWY_INLINE ChunkTerm<Bf16Pair> BPairs(int64_t reader, const float*) const {
    return ByPairs(qb_ + reader * kChunk * kPairs, written_);
  }
  HWY_INLINE ChunkTerm<Bf16Pair> KeyWrites(const float* written) const {
    return Writes(k_tokens_, ByKey(written), values_ ? values_ : written_, k_writes_);
  }
  HWY_INLINE ChunkTerm<Bf16Pair> BWrites(const float* written) const {
    return Writes(b_tokens_, {written, columns.stride}, written_, b_writes_);
  }

 protected:
  /// Where all channels share a decay, a delta write erases by the keys as they are, or by rows of its own.
  HWY_INLINE bool ErasesByKeys() const {
    return p.write == WriteKind::delta && p.decay != DecayKind::key && !p.erase.data;
  }
  HWY_INLINE const Bf16Pair* Erasers() const { return ErasesByKeys() ? k_ : e_; }

  HWY_INLINE ChunkTerm<Bf16Pair> ByState(const Bf16Pair* x) const {
    return {x, stride_, 1, state_, columns.stride, (p.key_dim + 1) / 2};
  }
  HWY_INLINE ChunkTerm<Bf16Pair> ByPairs(const Bf16Pair* pairs, const Bf16Pair* x) const {
    return {pairs, kPairs, 1, x, columns.stride, (at.count + 1) / 2, Triangle::lower};
  }
  HWY_INLINE ChunkTerm<Bf16Pair> Writes(const Bf16Pair* tokens, const RowsAt<float>& x, const Bf16Pair* pairs,
                                        Bf16Pair* decayed) const {
    if (DecaysWrites()) PairValues(x, c.to_end, decayed);
    return {tokens,
            1,
            Padded<float>(p.key_dim),
            DecaysWrites() ? decayed : pairs,
            columns.stride,
            (at.count + 1) / 2};
  }

  /// Pairs of rows of values, with zeros below: those of the chunk before may have an infinity.
  HWY_INLINE void PairValues(const RowsAt<float>& x, const float* factors, Bf16Pair* to) const {
    PairRows(x, at.count, columns.stride, factors, to);
    const int64_t pairs = (at.count + 1) / 2;
    Fill(0u, (kPairs - pairs) * columns.stride, &to[pairs * columns.stride].bits);
  }

  /// A row of the chunk, as bf16 numbers.
  HWY_INLINE uint16_t* RowOf(Bf16Pair* x, int64_t i) const {
    return reinterpret_cast<uint16_t*>(x + i * stride_);
  }
  /// The caller's rows, with zeros behind and below.
  HWY_INLINE void Gather(const StoredOperand<const std::byte>& from, int64_t head, Bf16Pair* to) const {
    const TokenSequence& sequence = p.sequences[at.n];
    for (int64_t i = 0; i < at.count; ++i) {
      const int64_t token = sequence.row(at.begin + i);
      uint16_t* row = RowOf(to, i);
      if (from.dtype == DType::bf16) {
        Copy(reinterpret_cast<const uint16_t*>(RecurrenceRow(from, sequence.entry, head, token)), p.key_dim,
             row);
      } else {  // rows that a feature map made
        ReadStored(from, sequence.entry, head, token, 0, p.key_dim, row_);
        Narrow(row_, p.key_dim, reinterpret_cast<bfloat16*>(row));
      }
      Fill(uint16_t{0}, 2 * stride_ - p.key_dim, row + p.key_dim);
    }
    Fill(0u, (kChunk - at.count) * stride_, &to[at.count * stride_].bits);
  }
  /// The decayed rows of a chunk.
  HWY_INLINE void RoundDecayed(bool queries) const {
    const auto round = [&](const float* from, Bf16Pair* to)
                           HWY_ATTR { RoundRows(from, c.dim, at.count, p.key_dim, 2 * stride_, to); };
    round(rows.k.data, k_);
    if (c.e) round(c.e_start, e_);
    if (c.b) round(rows.b.data, b_);
    for (int64_t r = 0; queries && r < c.readers; ++r)
      round(c.q_start + r * kChunk * c.dim, q_ + r * kChunk * stride_);
  }
  HWY_INLINE void RoundPairs(const float* pairs, int64_t reader, Bf16Pair* to) const {
    const hn::ScalableTag<float> d;
    const float* from = pairs + reader * kChunk * kChunk;
    auto* row = reinterpret_cast<uint16_t*>(to + reader * kChunk * kPairs);
    for (int64_t i = 0; i < at.count * kChunk; i += static_cast<int64_t>(hn::Lanes(d)))
      StoreRounded(hn::LoadU(d, from + i), row + i);
  }
  /// Pairs of tokens by channel: [8][key_dim].
  HWY_INLINE void PairTokens(Bf16Pair* from, Bf16Pair* to) const {
    const int64_t dim = Padded<float>(p.key_dim);
    ZipRows(RowOf(from, 0), kChunk, dim, 2 * stride_, &to->bits, dim);
  }

  HWY_INLINE void SharedDecays(bool queries) {
    ForwardFactors(p, at, queries, c, f);
    rows.e_factors = f.e_factors;
    rows.q_factors = f.q_factors;
    Gather(p.key, KeyHeadOf(p, at.h), k_);
    if (c.b) {
      Gather(p.a, at.h, e_);
      Gather(p.b, at.h, b_);
    } else if (c.e && !ErasesByKeys()) {
      Gather(p.erase, at.h, e_);
    }
    for (int64_t r = 0; queries && r < c.readers; ++r)
      Gather(p.query, QueryHeadOf(p, at.h, r), q_ + r * kChunk * stride_);
    const int64_t depth = (p.key_dim + 1) / 2;
    const auto pairs = [&](Bf16Pair* writers, float* by_q, float* by_e) {
      TransposeBlocks(&writers->bits, kChunk, stride_, stride_, &transposed_->bits, kChunk);
      const PairWriters<Bf16Pair> y{{writers, stride_}, kChunk, transposed_};
      if (c.e)
        PairProducts<float, Bf16Pair>({Erasers(), stride_}, at.count, depth, y, c.e_gamma,
                                      c.b ? nullptr : f.minus_beta, by_e);
      for (int64_t r = 0; queries && r < c.readers; ++r) {
        PairProducts<float, Bf16Pair>({q_ + r * kChunk * stride_, stride_}, at.count, depth, y, c.q_gamma,
                                      f.scales, by_q + r * kChunk * kChunk);
      }
    };
    if (queries || c.e) pairs(k_, c.qk, c.ek);
    if (c.b) pairs(b_, c.qb, c.eb);
    if (!queries || p.read == ReadKind::after_write) return;
    const RowsAt<float> keys = KeyRowsOf(p, p.key, KeyHeadOf(p, at.h), at, c, c.k);
    for (int64_t r = 0; r < c.readers; ++r)
      OwnShares(p, at, QueryRowsOf(p, at, r, c), keys, static_cast<float>(p.scale), c.own + r * kChunk);
  }

  int64_t stride_;                  // the pairs of a row of key_dim numbers, in whole vectors
  Bf16Pair *q_, *k_, *e_, *b_;      // [16][stride], of queries [readers · 16][stride]; see Chunk
  Bf16Pair* transposed_;            // [stride][16]: keys, then b
  Bf16Pair *k_tokens_, *b_tokens_;  // [8][key_dim]: pairs of tokens
  Bf16Pair *qk_, *qb_, *ek_;        // [readers · 16][8], [16][8]
  Bf16Pair *values_, *written_;     // [8][columns.stride]: pairs of Y, where a product reads it, and of W
  Bf16Pair *k_writes_, *b_writes_;  // likewise, times the decays to the chunk's end
  Bf16Pair* state_;                 // [key_dim / 2][columns.stride], in memory for [stride]
  float* row_;
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

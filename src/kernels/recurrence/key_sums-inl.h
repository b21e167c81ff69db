// The sums of keys by which a normaliser divides outputs, of additive writes. As one more column of a state
// they would take a vector of products, a fourth more for 64 columns. So they are a vector beside the state.
#if defined(FOVEA_RECURRENCE_KEY_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_KEY_SUMS_INL_H_
#undef FOVEA_RECURRENCE_KEY_SUMS_INL_H_
#else
#define FOVEA_RECURRENCE_KEY_SUMS_INL_H_
#endif

#include "kernels/recurrence/forward_terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 4")
/// The sums of a unit, from or to the last column of the caller's states. Null: zeros.
template <class T>
HWY_INLINE void CopySums(const RecurrenceProblem<T>& p, const T* states, int64_t unit, T* sums) {
  for (int64_t i = 0; i < p.key_dim; ++i)
    sums[i] = states ? states[(unit * p.key_dim + i) * StateColumns(p) + p.value_dim] : T{0};
}
/// The same, with zeros behind them up to a whole vector.
template <class T>
HWY_INLINE void LoadSums(const RecurrenceProblem<T>& p, const T* states, int64_t unit, T* sums) {
  if (!p.sums_keys) return;
  Fill(T{0}, Padded<T>(p.key_dim), sums);
  CopySums(p, states, unit, sums);
}
template <class T>
HWY_INLINE void StoreSums(const RecurrenceProblem<T>& p, const T* sums, int64_t unit, T* states) {
  for (int64_t i = 0; i < p.key_dim; ++i)
    states[(unit * p.key_dim + i) * StateColumns(p) + p.value_dim] = sums[i];
}

/// `kVectors` vectors of UpdateSums at once, since one alone waits for its own multiply-adds.
template <int kVectors, class T>
HWY_INLINE void AddKeys(const RowsAt<T>& keys, const T* to_end, int64_t count, const T* decays,
                        bool by_channel, const T* from, T* to) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kVectors];
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    const V decay = by_channel ? hn::LoadU(d, decays + v * lanes) : hn::Set(d, *decays);
    sum[v] = hn::Mul(hn::LoadU(d, from + v * lanes), decay);
  }
  const T* key = keys.data;
  for (int64_t i = 0; i < count; ++i, key += keys.stride) {
    const V factor = hn::Set(d, to_end ? to_end[i] : T(1));
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[v] =
        hn::MulAdd(factor, hn::LoadU(d, key + v * lanes), sum[v]);
  }
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, to + v * lanes);
}
#undef FOVEA_UNROLL
/// From those at the chunk's start to those at its end, perhaps in the same place.
template <class Terms, class T>
HWY_NOINLINE void UpdateSums(const Terms& x, const T* from, T* to) {
  if (!x.p.sums_keys) return;
  const Chunk<T>& c = x.c;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), count = x.at.count;
  const bool by_channel = x.p.decay == DecayKind::key;
  const T *keys = by_channel ? c.k_end : c.k, *to_end = by_channel ? nullptr : c.to_end,
          *decays = c.to_token + (count - 1) * (by_channel ? c.dim : 1);
  int64_t j = 0;
  const auto add = [&]<int kVectors>() HWY_ATTR {
    for (; j + kVectors * lanes <= c.dim; j += kVectors * lanes)
      AddKeys<kVectors, T>({keys + j, c.dim}, to_end, count, by_channel ? decays + j : decays, by_channel,
                           from + j, to + j);
  };
  add.template operator()<4>();
  add.template operator()<1>();
}

/// What divides the outputs of a chunk.
template <class T>
class Divisors {
 public:
  Divisors(const RecurrenceProblem<T>& p, Carve& carve)
      : denominators_(carve.Take<T>(p.sums_keys ? kChunk : 0)),
        inverses_(carve.Take<T>(p.sums_keys ? kChunk : 0)),
        ones_(carve.Take<T>(p.sums_keys ? kChunk : 0)) {
    if (ones_ && p.sums_keys) Fill(T{1}, kChunk, ones_);
  }

  /// 1 / (what each token reads of the sums at the chunk's start and of the keys of the chunk + epsilon), for
  /// one query head. The last tile writes the denominators.
  template <class Terms>
  HWY_NOINLINE const T* Divide(const Terms& x, const T* sums, int64_t reader,
                               const Operand<T*>& denominators) {
    const hn::ScalableTag<T> d;
    const RecurrenceProblem<T>& p = x.p;
    const ChunkAt& at = x.at;
    const T *pairs = x.c.qk + reader * kChunk * kChunk, *own = x.c.own + reader * kChunk;
    alignas(64) T written[kChunk];
    DotRows(sums, sums, QueryRowsOf(p, at, reader, x.c).data, 0, at.count, x.c.dim, inverses_);
    // Columns behind the tokens may be anything.
    if (at.count == kChunk) {
      DotRows(ones_, ones_, pairs, 0, kChunk, kChunk, written);
    } else {
      for (int64_t i = 0; i < kChunk; ++i) {
        written[i] = 0;
        for (int64_t j = 0; i < at.count && j < at.count; ++j) written[i] += pairs[i * kChunk + j];
      }
    }
    const T* factors = x.rows.q_factors ? x.rows.q_factors : ones_;
    const auto one = hn::Set(d, T(1)), epsilon = hn::Set(d, static_cast<T>(p.epsilon));
    for (int64_t i = 0; i < kChunk; i += static_cast<int64_t>(hn::Lanes(d))) {
      auto read =
          hn::MulAdd(hn::LoadU(d, inverses_ + i), hn::LoadU(d, factors + i), hn::LoadU(d, written + i));
      if (p.read != ReadKind::after_write) read = hn::Add(read, hn::LoadU(d, own + i));
      read = hn::Add(read, epsilon);
      hn::StoreU(read, d, denominators_ + i);
      hn::StoreU(hn::Div(one, read), d, inverses_ + i);
    }
    const TokenSequence& sequence = p.sequences[at.n];
    for (int64_t i = 0; x.columns.writes_sums && denominators.data && i < at.count; ++i) {
      *RecurrenceRow(denominators, sequence.entry, at.h * x.c.readers + reader, sequence.row(at.begin + i)) =
          denominators_[i];
    }
    return inverses_;
  }

 private:
  T *denominators_, *inverses_, *ones_;  // [16]
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

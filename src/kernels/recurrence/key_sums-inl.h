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

/// The sums at a chunk's start. Every tile of value columns has them. The last one also has their column.
template <class T>
class KeySums {
 public:
  KeySums(const RecurrenceProblem<T>& p, Carve& carve)
      : sums_(carve.Take<T>(p.sums_keys ? Padded<T>(p.key_dim) : 0)),
        inverses_(carve.Take<T>(p.sums_keys ? kChunk : 0)),
        ones_(carve.Take<T>(p.sums_keys ? kChunk : 0)) {}

  /// Those of the initial state of a unit.
  HWY_INLINE void Load(const RecurrenceProblem<T>& p, int64_t unit) {
    if (!p.sums_keys) return;
    Fill(T{1}, kChunk, ones_);
    Fill(T{0}, Padded<T>(p.key_dim), sums_);
    if (p.initial_sums) return Copy(p.initial_sums + unit * p.key_dim, p.key_dim, sums_);
    for (int64_t i = 0; p.initial_state && i < p.key_dim; ++i)
      sums_[i] = p.initial_state[(unit * p.key_dim + i) * StateColumns(p) + p.value_dim];
  }

  /// 1 / (what each token reads of them + epsilon), for one query head. The first tile writes the
  /// denominators.
  template <class Terms>
  HWY_NOINLINE const T* Divide(const Terms& x, int64_t tile, int64_t reader,
                               const Operand<T*>& denominators) {
    const RecurrenceProblem<T>& p = x.p;
    const ChunkAt& at = x.at;
    const T *pairs = x.c.qk + reader * kChunk * kChunk, *own = x.c.own + reader * kChunk;
    alignas(64) T written[kChunk];
    const T* queries = QueryRowsOf(p, at, reader, x.c).data;
    DotRows(sums_, sums_, queries, 0, at.count, x.c.dim, inverses_);
    // Columns behind the tokens may be anything.
    if (at.count == kChunk) {
      DotRows(ones_, ones_, pairs, 0, kChunk, kChunk, written);
    } else {
      for (int64_t i = 0; i < kChunk; ++i) {
        written[i] = 0;
        for (int64_t j = 0; i < at.count && j < at.count; ++j) written[i] += pairs[i * kChunk + j];
      }
    }
    const TokenSequence& sequence = p.sequences[at.n];
    for (int64_t i = 0; i < at.count; ++i) {
      T read = inverses_[i] * (x.rows.q_factors ? x.rows.q_factors[i] : T(1)) + written[i];
      if (p.read != ReadKind::after_write) read += own[i];
      const T denominator = read + static_cast<T>(p.epsilon);
      inverses_[i] = T(1) / denominator;
      if (tile > 0 || !denominators.data) continue;
      *RecurrenceRow(denominators, sequence.entry, at.h * x.c.readers + reader, sequence.row(at.begin + i)) =
          denominator;
    }
    return inverses_;
  }

  /// From the chunk's start to its end.
  template <class Terms>
  HWY_NOINLINE void Update(const Terms& x) {
    const hn::ScalableTag<T> d;
    const Chunk<T>& c = x.c;
    const bool by_channel = x.p.decay == DecayKind::key;
    const T *keys = by_channel ? c.k_end : c.k,
            *decays = c.to_token + (x.at.count - 1) * (by_channel ? c.dim : 1);
    for (int64_t j = 0; j < c.dim; j += static_cast<int64_t>(hn::Lanes(d))) {
      auto sum =
          hn::Mul(hn::LoadU(d, sums_ + j), by_channel ? hn::LoadU(d, decays + j) : hn::Set(d, *decays));
      for (int64_t i = 0; i < x.at.count; ++i)
        sum =
            hn::MulAdd(hn::Set(d, by_channel ? T(1) : c.to_end[i]), hn::LoadU(d, keys + i * c.dim + j), sum);
      hn::StoreU(sum, d, sums_ + j);
    }
  }

  /// The column of a tile.
  HWY_INLINE void PutInto(const Columns& columns, int64_t rows, T* tile) const {
    for (int64_t i = 0; i < rows; ++i) tile[i * columns.stride + columns.count] = sums_[i];
  }
  /// Likewise of a saved tile, whose columns up to `width` have been written past the caches; zeros behind.
  HWY_INLINE void Save(const Columns& columns, int64_t rows, T* tile) const {
    const hn::ScalableTag<T> d;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = columns.width; j < columns.stride; j += static_cast<int64_t>(hn::Lanes(d))) {
        const auto first = hn::FirstN(d, columns.sums > 0 && j == columns.count ? 1 : 0);
        hn::Stream(hn::IfThenElseZero(first, hn::Set(d, sums_[i])), d, tile + i * columns.stride + j);
      }
    }
    if (columns.sums > 0 && columns.count < columns.width) PutInto(columns, rows, tile);
  }

 private:
  T *sums_, *inverses_, *ones_;  // [key_dim], [16], [16]
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

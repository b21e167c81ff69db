// The products of forward by chunks: which rows and tables they multiply. `NumberTerms` multiplies the
// numbers as they are. bf16_terms-inl.h has pairs of bf16 numbers in their place.
#if defined(FOVEA_RECURRENCE_FORWARD_TERMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_FORWARD_TERMS_INL_H_
#undef FOVEA_RECURRENCE_FORWARD_TERMS_INL_H_
#else
#define FOVEA_RECURRENCE_FORWARD_TERMS_INL_H_
#endif

#include "kernels/recurrence/forward_rows-inl.h"
#include "kernels/recurrence/matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// A chunk as forward sees it.
template <class T>
struct ForwardChunk {
  const RecurrenceProblem<T>& p;
  Columns columns;
  const Chunk<T>& c;
  const ForwardBuffers<T>& f;
  ChunkAt at;
  ForwardRows<T> rows;

  /// What k writes: W, or Y of an additive and of a low-rank write.
  HWY_INLINE RowsAt<T> ByKey(const T* written) const {
    return p.write == WriteKind::delta ? RowsAt<T>{written, columns.stride} : rows.values;
  }
  /// Whether what rows write carries the decays to the chunk's end, and not the rows themselves.
  HWY_INLINE bool DecaysWrites() const {
    return p.decay == DecayKind::constant || p.decay == DecayKind::scalar;
  }
};

/// Products of numbers of T.
template <class T>
struct NumberTerms : ForwardChunk<T> {
  using Element = T;
  using Matrix = NumberMatrix<T>;  // of backward

  NumberTerms(const RecurrenceProblem<T>& problem, const Columns& unit_columns, const Chunk<T>& chunk,
              const ForwardBuffers<T>& buffers, Carve&)
      : ForwardChunk<T>{problem, unit_columns, chunk, buffers, {}, {}} {}

  /// What is held while a chunk is computed.
  struct Hold {};
  HWY_INLINE Hold HoldEngine() const { return {}; }
  /// From this state on.
  HWY_INLINE void Start(const T*) {}
  /// The next chunk, up to its products with the state.
  HWY_INLINE void Prepare(const ChunkAt& next, bool queries) {
    this->at = next;
    this->rows = PrepareForward(this->p, next, this->columns, queries, this->c, this->f);
  }
  /// W of the chunk is there.
  HWY_INLINE void TakeWritten(const T*) {}
  HWY_INLINE T* StatePairs() const { return nullptr; }
  /// Makes the first product of `rows` rows at once, where an engine does that better than a sum.
  HWY_INLINE void Multiply(int64_t, ChunkSum<T>&) const {}

  /// E_start S, but for the factors of its rows; likewise Q_start S.
  HWY_INLINE ChunkTerm<T> Erase(const T* state) const { return ByState(this->rows.e, state); }
  HWY_INLINE ChunkTerm<T> Query(int64_t reader, const T* state) const {
    return ByState(QueryRowsOf(this->p, this->at, reader, this->c), state);
  }
  /// EK Y
  HWY_INLINE ChunkTerm<T> EraseValues() const { return ByPairs(this->c.ek, this->rows.values); }
  /// QK W, or QK Y
  HWY_INLINE ChunkTerm<T> KeyPairs(int64_t reader, const T* written) const {
    return ByPairs(this->c.qk + reader * kChunk * kChunk, this->ByKey(written));
  }
  /// QB W
  HWY_INLINE ChunkTerm<T> BPairs(int64_t reader, const T* written) const {
    return ByPairs(this->c.qb + reader * kChunk * kChunk, {written, this->columns.stride});
  }
  /// K_end^T W, or K_end^T Y; B_end^T W
  HWY_INLINE ChunkTerm<T> KeyWrites(const T* written) const {
    return Writes(this->rows.k, this->ByKey(written), this->f.k_writes);
  }
  HWY_INLINE ChunkTerm<T> BWrites(const T* written) const {
    return Writes(this->rows.b, {written, this->columns.stride}, this->f.b_writes);
  }

 private:
  HWY_INLINE ChunkTerm<T> ByState(const RowsAt<T>& x, const T* state) const {
    return {x.data, x.stride, 1, state, this->columns.stride, this->p.key_dim};
  }
  HWY_INLINE ChunkTerm<T> ByPairs(const T* pairs, const RowsAt<T>& x) const {
    return {pairs, kChunk, 1, x.data, x.stride, this->at.count, Triangle::lower};
  }
  HWY_INLINE ChunkTerm<T> Writes(const RowsAt<T>& writers, const RowsAt<T>& x, T* decayed) const {
    if (!this->DecaysWrites()) return {writers.data, 1, writers.stride, x.data, x.stride, this->at.count};
    const int64_t stride = this->columns.stride;
    for (int64_t i = 0; i < this->at.count; ++i)
      ScaleInto(this->c.to_end[i], x.data + i * x.stride, stride, decayed + i * stride);
    return {writers.data, 1, writers.stride, decayed, stride, this->at.count};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

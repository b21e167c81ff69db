// Backward of recurrence/key_sums-inl.h. An output is num / den, and den is what a column of ones behind the
// values would read. So the derivatives are those of such a column, whose states are the sums of keys.
#if defined(FOVEA_RECURRENCE_KEY_SUMS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_KEY_SUMS_BACKWARD_INL_H_
#undef FOVEA_RECURRENCE_KEY_SUMS_BACKWARD_INL_H_
#else
#define FOVEA_RECURRENCE_KEY_SUMS_BACKWARD_INL_H_
#endif

#include "kernels/recurrence/pairs_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The derivatives through the dens of one unit. Of several tiles the last one makes them. All need the
/// inverses.
template <class T>
struct SumGradients {
  const RecurrenceProblem<T>& p;
  const RecurrenceGradientProblem<T>& g;
  const Chunk<T>& c;
  T* reads;  // [readers · 16]: the derivative by the den of a row
  T* z;      // [dim]: by the sums at the chunk's end

  /// 1 / den of each token, which takes a derivative by the output to that by num; 1 without a divisor.
  HWY_INLINE void InverseDenominators(const ChunkAt& at, int64_t reader, T* factors) const {
    const TokenSequence& sequence = p.sequences[at.n];
    Fill(T{1}, kChunk, factors);
    for (int64_t i = 0; p.sums_keys && i < at.count; ++i) {
      factors[i] = T(1) / *RecurrenceRow(g.denominator, sequence.entry, at.h * c.readers + reader,
                                         sequence.row(at.begin + i));
    }
  }

  /// -⟨derivative by the output, output⟩ / den, with the inverses in `factors`.
  HWY_NOINLINE void SetReads(const ChunkAt& at, int64_t reader, const T* factors) const {
    const TokenSequence& sequence = p.sequences[at.n];
    const int64_t head = at.h * c.readers + reader;
    T* to = reads + reader * kChunk;
    Fill(T{0}, kChunk, to);
    for (int64_t i = 0; i < at.count; ++i)
      to[i] = -factors[i] * DotStored(sequence.entry, head, sequence.row(at.begin + i));
  }

  /// Adds to the derivatives by q_start, k_end and the undecayed products of queries with keys.
  HWY_NOINLINE void AddTo(const ChunkAt& at, bool queries, const T* sums, const ChunkGradient<T>& to) const {
    for (int64_t row = 0; queries && row < c.QueryRows(at.count); ++row) {
      AddScaled(reads[row], sums, c.dim, to.dq + row * c.dim);
      AddScaled(reads[row], c.q_gamma + row % kChunk * kChunk, kChunk, to.qk + row * kChunk);
    }
    for (int64_t i = 0; i < at.count; ++i) AddScaled(T(1), z, c.dim, to.dk + i * c.dim);
  }

  /// To the derivative by the sums at the chunk's start.
  HWY_NOINLINE void UpdateZ(const ChunkAt& at, bool queries) const {
    const int64_t last = at.count - 1;
    if (p.decay == DecayKind::key)
      MultiplyInto(c.to_token + last * c.dim, c.dim, z);
    else if (p.decay != DecayKind::none)
      ScaleInto(c.to_token[last], z, c.dim, z);
    for (int64_t row = 0; queries && row < c.QueryRows(at.count); ++row)
      AddScaled(reads[row], c.q_start + row * c.dim, c.dim, z);
  }

 private:
  HWY_INLINE T DotStored(int64_t entry, int64_t head, int64_t row) const {
    // As many at a time for every dtype, so that sums have one order.
    constexpr int64_t kPiece = 64;
    T widened_output[kPiece], widened_d_output[kPiece], sum = 0;
    const auto piece = [&](const StoredOperand<const std::byte>& from, int64_t first, int64_t count,
                           T* widened) -> const T* {
      if (RowsAreOf<T>(from.dtype))
        return reinterpret_cast<const T*>(RecurrenceRow(from, entry, head, row)) + first;
      ReadStored(from, entry, head, row, first, count, widened);
      return widened;
    };
    for (int64_t first = 0; first < p.value_dim; first += kPiece) {
      const int64_t count = HWY_MIN(kPiece, p.value_dim - first);
      sum += Dot(piece(g.output, first, count, widened_output),
                 piece(g.d_output, first, count, widened_d_output), count);
    }
    return sum;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

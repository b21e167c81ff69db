// Where the gradients of a unit go. A row to which one unit alone contributes is the caller's. Others are
// partial sums, one slot for each unit that contributes, which are added up in the order of the slots.
#if defined(FOVEA_RECURRENCE_TARGETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_TARGETS_INL_H_
#undef FOVEA_RECURRENCE_TARGETS_INL_H_
#else
#define FOVEA_RECURRENCE_TARGETS_INL_H_
#endif

#include "kernels/recurrence/chunked_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// WriteScaled of the rows of a chunk. Row by row this took 1,100 of 18,000 cycles of a backward chunk of
/// width 64 on a Zen 5, where its loads and stores take 200.
template <class T>
HWY_NOINLINE void WriteScaledRows(const RecurrenceProblem<T>& p, const ChunkAt& at, T f, const T* x,
                                  int64_t stride, int64_t first, int64_t count, T* scratch,
                                  const StoredOperand<std::byte>& to, int64_t head) {
  const TokenSequence& sequence = p.sequences[at.n];
  if (sequence.rows || !RowsAreOf<T>(to.dtype) || count != Padded<T>(count)) {
    for (int64_t i = 0; i < at.count; ++i)
      WriteScaled(f, x + i * stride, first, count, scratch, to, sequence.entry, head,
                  sequence.row(at.begin + i));
    return;
  }
  T* row = reinterpret_cast<T*>(RecurrenceRow(to, sequence.entry, head, sequence.begin + at.begin)) + first;
  for (int64_t i = 0; i < at.count; ++i) ScaleInto(f, x + i * stride, count, row + i * to.row_stride);
}

template <class T>
struct GradientTarget {
  StoredOperand<std::byte> direct;
  T* partial = nullptr;  // [slots][heads][rows][dim]
  int64_t slots = 1, heads = 0, dim = 0;

  HWY_INLINE T* Partial(const RecurrenceProblem<T>& p, int64_t slot, int64_t entry, int64_t head,
                        int64_t row) const {
    return partial + ((slot * heads + head) * p.rows + entry * p.len + row) * dim;
  }
  /// Writes f · x to the row of this slot; x and the scratch buffer have whole vectors.
  HWY_INLINE void Write(const RecurrenceProblem<T>& p, int64_t slot, int64_t entry, int64_t head, int64_t row,
                        T f, const T* x, T* scratch) const {
    if (!direct.data) return;
    if (!partial) return WriteScaled(f, x, 0, dim, scratch, direct, entry, head, row);
    T* to = Partial(p, slot, entry, head, row);
    const int64_t whole = Padded<T>(dim);
    if (whole == dim) return ScaleInto(f, x, dim, to);
    ScaleInto(f, x, whole, scratch);
    Copy(scratch, dim, to);
  }
  /// Write of the rows of a chunk, which lie side by side.
  HWY_INLINE void WriteRows(const RecurrenceProblem<T>& p, int64_t slot, const ChunkAt& at, int64_t head, T f,
                            const T* x, T* scratch) const {
    if (!direct.data) return;
    const int64_t stride = Padded<T>(dim);
    if (!partial) return WriteScaledRows(p, at, f, x, stride, 0, dim, scratch, direct, head);
    const TokenSequence& sequence = p.sequences[at.n];
    for (int64_t i = 0; i < at.count; ++i)
      Write(p, slot, sequence.entry, head, sequence.row(at.begin + i), f, x + i * stride, scratch);
  }
  HWY_INLINE void WriteOne(const RecurrenceProblem<T>& p, int64_t slot, int64_t entry, int64_t head,
                           int64_t row, T x) const {
    if (!direct.data) return;
    if (partial)
      *Partial(p, slot, entry, head, row) = x;
    else
      *reinterpret_cast<T*>(RecurrenceRow(direct, entry, head, row)) = x;
  }
};

/// The targets of a call, and slots of a unit each for gradients that whole sequences share.
template <class T>
struct GradientTargets {
  GradientTarget<T> query, key, erase, a, b, beta, self_weight, log_decay;
  T* constant_log_decay;  // [sequences · tiles][heads]
  T* bonus;               // [sequences · tiles][heads][key_dim]
};

template <class T>
HWY_INLINE GradientTargets<T> TakeTargets(const RecurrenceProblem<T>& p,
                                          const RecurrenceGradientProblem<T>& g, Carve& carve) {
  const int64_t tiles = TilesOf(p).count;
  const auto take = [&](bool exists, const StoredOperand<std::byte>& direct, int64_t sharing, int64_t heads,
                        int64_t dim) {
    GradientTarget<T> target{direct, nullptr, tiles * sharing, heads, dim};
    if (exists && target.slots > 1) target.partial = carve.Take<T>(target.slots * heads * p.rows * dim);
    return target;
  };
  const bool delta = p.write == WriteKind::delta, low_rank = p.write == WriteKind::low_rank;
  const int64_t dim = p.key_dim, by_query = p.query_heads < p.heads ? p.heads / p.query_heads : 1;
  const bool constant = p.decay == DecayKind::constant;
  return {
      take(true, g.query, by_query, p.query_heads, dim),
      take(true, g.key, p.heads / p.key_heads, p.key_heads, dim),
      take(delta, g.erase, 1, p.heads, dim),
      take(low_rank, g.a, 1, p.heads, dim),
      take(low_rank, g.b, 1, p.heads, dim),
      take(delta, StoredAs(g.beta), 1, p.heads, 1),
      take(p.read == ReadKind::self_weight, StoredAs(g.self_weight), 1, p.heads, 1),
      take(p.decay != DecayKind::none && !constant, StoredAs(g.log_decay), 1, p.heads,
           p.decay == DecayKind::key ? dim : 1),
      constant ? carve.Take<T>(p.sequence_count * tiles * p.heads) : nullptr,
      p.read == ReadKind::before_decay ? carve.Take<T>(p.sequence_count * tiles * p.heads * dim) : nullptr};
}

/// The caller's rows from the partial sums.
template <class T>
void ReducePartials(const RecurrenceProblem<T>& p, const GradientTarget<T>& target, Executor& executor) {
  if (!target.partial || !target.direct.data) return;
  executor.parallel_for(p.sequence_count * target.heads, [&](int64_t unit, int) {
    const TokenSequence& sequence = p.sequences[unit / target.heads];
    const int64_t head = unit % target.heads;
    for (int64_t i = 0; i < sequence.count; ++i) {
      const int64_t row = sequence.row(i);
      T* sum = target.Partial(p, 0, sequence.entry, head, row);
      for (int64_t slot = 1; slot < target.slots; ++slot)
        AddScaled(T(1), target.Partial(p, slot, sequence.entry, head, row), target.dim, sum);
      WriteStored(sum, 0, target.dim, target.direct, sequence.entry, head, row);
    }
  });
}
/// to[i] = the sum of slots[s][i] in the order of s.
template <class T>
HWY_INLINE void ReduceSlots(const T* slots, int64_t slot_count, int64_t count, T* to) {
  if (!slots || !to) return;
  Fill(T{0}, count, to);
  for (int64_t slot = 0; slot < slot_count; ++slot) AddScaled(T(1), slots + slot * count, count, to);
}

template <class T>
void ReduceTargets(const RecurrenceProblem<T>& p, const RecurrenceGradientProblem<T>& g,
                   const GradientTargets<T>& targets, Executor& executor) {
  for (const GradientTarget<T>* target :
       {&targets.query, &targets.key, &targets.erase, &targets.a, &targets.b, &targets.beta,
        &targets.self_weight, &targets.log_decay})
    ReducePartials(p, *target, executor);
  const int64_t slots = p.sequence_count * TilesOf(p).count;
  ReduceSlots(targets.constant_log_decay, slots, p.heads, g.constant_log_decay);
  ReduceSlots(targets.bonus, slots, p.heads * p.key_dim, g.bonus);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

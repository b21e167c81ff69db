// Forward token by token, for calls of one token or a few (decoding). There the time is that of reading and
// writing the state: 8 bytes for each element and token, with 4 to 8 operations. Chunks would fill 16 rows
// for one token.
//
// With S₋ the state before the token, whose rows are read once, and α its decays:
//
//   sums       q_start S₋ and e_start S₋        q_start is α∘q (q if reads come before the decay), e_start
//   α∘e
//                                              of a delta write and a of a low-rank one
//   written    w = Y, or Y + e_start S₋ of a delta write, or e_start S₋ of a low-rank one
//   output     q_start S₋ + ⟨q, k⟩ w            (low rank: ⟨q, k⟩ Y + ⟨q, b⟩ w; other reads: own ∘ Y)
//   state      diag(α) S₋ + k w^T               (low rank: + k Y^T + b w^T)
//
// An additive write knows w beforehand, so one pass reads and writes the rows. The others take two. A head's
// state is then in the second-level cache (64 KiB for 128 x 128 in f32), so memory sees each row once.
//
// Every operation belongs to one token, one head and one column. So the bits depend neither on how a sequence
// is cut into calls, nor on the batch, nor on the threads.
#if defined(FOVEA_RECURRENCE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_STEP_INL_H_
#undef FOVEA_RECURRENCE_STEP_INL_H_
#else
#define FOVEA_RECURRENCE_STEP_INL_H_
#endif

#include "kernels/recurrence/chunked_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Vectors of columns that one pass holds in registers, with a sum for the query and one for the erasure.
constexpr int kStepVectors = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 8 : 4;
// Rows between two loads of the sums, so that a pass walks through memory in order: 16 rows of 128 f32 are
// two pages.
constexpr int64_t kStepRows = 16;
// Bytes from a row to the one that is fetched into the caches beside it. The processor itself does not fetch
// beyond a page, and a row is read once. With 4 KiB, a state in memory took a sixth less time on a Zen 4.
// On a Zen 5, 2 to 16 KiB were within noise.
constexpr int64_t kStepAhead = 8192;
// The pass that only writes finds its rows in the second-level cache, so memory is idle. It fetches as much
// of the next head as this share of what it writes. All of it, from 64 KiB ahead, made both passes slower.
constexpr int kStepNextShare[2] = {3, 8};
// Units of consecutive heads a thread. With one head a unit, two threads took turns, so that each fetched the
// state that the other was writing. The 64 layers of the gated delta rule took 6.4 ms, and take 4.8 with
// these.
constexpr int64_t kStepParts = 2;

/// What one token brings to one state head, [dim] padded to whole vectors; queries [readers][dim].
template <class T>
struct StepToken {
  T *q, *q_start, *k, *e, *b, *decay;
  T *of_target, *of_written;   // [readers]: the shares of y and w in the output
  T *target, *written, *sums;  // [stride]: y, w and an output
  T* state;                    // [key_dim][stride]
  int64_t dim, stride, readers;
};

template <class T>
HWY_INLINE StepToken<T> TakeStep(const RecurrenceProblem<T>& p, Carve& carve) {
  const int64_t dim = Padded<T>(p.key_dim), stride = Padded<T>(StateColumns(p)), readers = ReadersOf(p);
  return {carve.Take<T>(readers * dim),
          carve.Take<T>(readers * dim),
          carve.Take<T>(dim),
          carve.Take<T>(dim),
          carve.Take<T>(dim),
          carve.Take<T>(dim),
          carve.Take<T>(readers),
          carve.Take<T>(readers),
          carve.Take<T>(stride),
          carve.Take<T>(stride),
          carve.Take<T>(stride),
          carve.Take<T>(p.key_dim * stride),
          dim,
          stride,
          readers};
}

/// f times a row of `count` elements; zeros behind, up to `dim`.
template <class T>
HWY_INLINE void GatherRow(const StoredOperand<const std::byte>& from, int64_t entry, int64_t h, int64_t row,
                          T f, int64_t count, int64_t dim, T* to) {
  ReadStored(from, entry, h, row, 0, count, to);
  Fill(T{0}, dim - count, to + count);
  if (f != T(1)) ScaleInto(f, to, dim, to);
}

/// The same of a row of queries or keys, behind its features.
template <class T>
HWY_INLINE void GatherMapped(const RecurrenceProblem<T>& p, const StoredOperand<const std::byte>& from,
                             int64_t entry, int64_t h, int64_t row, T f, int64_t dim, T* to) {
  const bool maps = p.features == RowFeatures::elu_plus_one;
  GatherRow(from, entry, h, row, maps ? T(1) : f, p.key_dim, dim, to);
  if (!maps) return;
  EluRow(to, dim, to);
  Fill(T{0}, dim - p.key_dim, to + p.key_dim);  // where elu(0) + 1 is 1
  if (f != T(1)) ScaleInto(f, to, dim, to);
}

/// α of every row of the state.
template <class T>
HWY_INLINE void StepDecays(const RecurrenceProblem<T>& p, const TokenSequence& sequence, int64_t h,
                           int64_t row, const StepToken<T>& s) {
  const hn::ScalableTag<T> d;
  if (p.decay == DecayKind::none) return Fill(T{1}, s.dim, s.decay);
  const T* gates = RecurrenceRow(p.log_decay, sequence.entry, h, row);
  if (p.decay != DecayKind::key) return Fill(hn::GetLane(Exp(d, hn::Set(d, *gates))), s.dim, s.decay);
  GatherRow(StoredAs(p.log_decay), sequence.entry, h, row, T(1), p.key_dim, s.dim, s.decay);
  for (int64_t i = 0; i < s.dim; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(Exp(d, hn::LoadU(d, s.decay + i)), d, s.decay + i);
}

/// How much of y and of w each output takes.
template <class T>
HWY_INLINE void StepShares(const RecurrenceProblem<T>& p, const TokenSequence& sequence, int64_t h,
                           int64_t row, const StepToken<T>& s) {
  for (int64_t reader = 0; reader < s.readers; ++reader) {
    const T* q = s.q + reader * s.dim;
    T &of_target = s.of_target[reader], &of_written = s.of_written[reader];
    of_target = of_written = T(0);
    if (p.read == ReadKind::before_decay) {
      const T* bonus = p.bonus + h * p.key_dim;
      for (int64_t i = 0; i < p.key_dim; ++i) of_target += q[i] * bonus[i] * s.k[i];
      continue;
    }
    const T product = Dot(q, s.k, s.dim);
    if (p.read == ReadKind::self_weight)
      of_target = product * *RecurrenceRow(p.self_weight, sequence.entry, h, row);
    else if (p.write == WriteKind::delta)
      of_written = product;
    else
      of_target = product;
    if (p.read == ReadKind::after_write && p.write == WriteKind::low_rank) of_written = Dot(q, s.b, s.dim);
  }
}

template <class T>
HWY_NOINLINE void PrepareStep(const RecurrenceProblem<T>& p, const TokenSequence& sequence, int64_t h,
                              int64_t row, bool queries, const StepToken<T>& s) {
  const int64_t entry = sequence.entry, count = p.key_dim;
  const T beta = p.beta.data ? *RecurrenceRow(p.beta, entry, h, row) : T(1);
  StepDecays(p, sequence, h, row, s);
  GatherMapped(p, p.key, entry, KeyHeadOf(p, h), row, T(1), s.dim, s.k);
  GatherRow(p.value, entry, h, row, beta, p.value_dim, s.stride, s.target);
  if (p.sums_keys) s.target[p.value_dim] = T(1);
  if (p.write == WriteKind::low_rank) {
    GatherRow(p.a, entry, h, row, T(1), count, s.dim, s.e);
    GatherRow(p.b, entry, h, row, T(1), count, s.dim, s.b);
  } else if (p.write == WriteKind::delta) {
    if (p.erase.data)
      GatherRow(p.erase, entry, h, row, -beta, count, s.dim, s.e);
    else
      GatherRow(p.key, entry, KeyHeadOf(p, h), row, -beta, count, s.dim, s.e);
    MultiplyFlushed(s.e, s.decay, s.dim, s.e);
  }
  if (!queries) return;
  for (int64_t reader = 0; reader < s.readers; ++reader) {
    T* q = s.q + reader * s.dim;
    GatherMapped(p, p.query, entry, QueryHeadOf(p, h, reader), row, static_cast<T>(p.scale), s.dim, q);
    if (p.read == ReadKind::before_decay)
      Copy(q, s.dim, s.q_start + reader * s.dim);
    else
      MultiplyFlushed(q, s.decay, s.dim, s.q_start + reader * s.dim);
  }
  StepShares(p, sequence, h, row, s);
}

/// The columns of a state. `to` may be the memory of `from`; null: the state behind the token is not wanted.
template <class T>
struct StepPanel {
  const T* from;
  T* to;
  int64_t from_stride, to_stride, count;
  const T* next;  // the state of the next head; null: not to be fetched
};

/// One pass over the rows of a state: sums[column] += Σ q[i] from[i][column], and to = diag(decay) from +
/// k x^T + b y^T. Each where it is wanted.
template <class T>
struct StepPass {
  int64_t rows;
  const T *q, *e, *decay, *k, *x, *b, *y;
  T *q_sums, *e_sums;
};

#define FOVEA_UNROLL _Pragma("GCC unroll 8")
/// Rows [first, last) of `kVectors` vectors of columns from `column` on. kWrites counts the outer products.
template <int kVectors, bool kQuery, bool kErase, int kWrites, class D, class T = hn::TFromD<D>>
HWY_INLINE void StepPiece(D d, const StepPass<T>& pass, const StepPanel<T>& panel, int64_t first,
                          int64_t last, int64_t column) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Copies, since GCC would read the members of both structs again behind each store of a vector, and the
  // factors of a row with them: eleven loads a vector. A state of 128 by 128 took 1.5 us in the second-level
  // cache, where memory may take 2, and takes 0.6.
  const StepPass<T> s = pass;
  V q_sums[kVectors], e_sums[kVectors], x[kVectors], y[kVectors];
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    if constexpr (kQuery) q_sums[v] = hn::LoadU(d, s.q_sums + column + v * lanes);
    if constexpr (kErase) e_sums[v] = hn::LoadU(d, s.e_sums + column + v * lanes);
    if constexpr (kWrites > 0) x[v] = hn::LoadU(d, s.x + column + v * lanes);
    if constexpr (kWrites > 1) y[v] = hn::LoadU(d, s.y + column + v * lanes);
  }
  const int64_t from_stride = panel.from_stride, to_stride = panel.to_stride;
  const T* from = panel.from + first * from_stride + column;
  T* to = kWrites > 0 ? panel.to + first * to_stride + column : nullptr;
  // The bytes that are written of a row, and the lines of the next head that are fetched with them.
  constexpr int64_t kWritten = kVectors * static_cast<int64_t>(hn::MaxLanes(D()) * sizeof(T));
  constexpr int kLines = static_cast<int>(kWritten * kStepNextShare[0] / kStepNextShare[1] / 64);
  constexpr bool kFetchesNext = kLines > 0 && !kQuery && !kErase;
  for (int64_t i = first; i < last; ++i) {
    if (kFetchesNext && panel.next) {
      const int64_t before = (i * from_stride + column) * static_cast<int64_t>(sizeof(T));
      FetchLines<kLines>(reinterpret_cast<const std::byte*>(panel.next) + before / kWritten * kLines * 64);
    }
    const V zero = hn::Zero(d), q = kQuery ? hn::Set(d, s.q[i]) : zero,
            e = kErase ? hn::Set(d, s.e[i]) : zero, k = kWrites > 0 ? hn::Set(d, s.k[i]) : zero,
            b = kWrites > 1 ? hn::Set(d, s.b[i]) : zero, decay = kWrites > 0 ? hn::Set(d, s.decay[i]) : zero;
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
      const V element = hn::LoadU(d, from + v * lanes);
      if constexpr (kQuery || kErase) hwy::Prefetch(from + v * lanes + kStepAhead / sizeof(T));
      if constexpr (kQuery) q_sums[v] = hn::MulAdd(q, element, q_sums[v]);
      if constexpr (kErase) e_sums[v] = hn::MulAdd(e, element, e_sums[v]);
      if constexpr (kWrites > 0) {
        V next = hn::MulAdd(k, x[v], hn::Mul(decay, element));
        if constexpr (kWrites > 1) next = hn::MulAdd(b, y[v], next);
        hn::StoreU(next, d, to + v * lanes);
      }
    }
    from += from_stride;
    if constexpr (kWrites > 0) to += to_stride;
  }
  FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
    if constexpr (kQuery) hn::StoreU(q_sums[v], d, s.q_sums + column + v * lanes);
    if constexpr (kErase) hn::StoreU(e_sums[v], d, s.e_sums + column + v * lanes);
  }
}
#undef FOVEA_UNROLL

/// The columns behind the last whole vector, by a vector of half of the lanes, of a quarter, and so on. They
/// are read and written where they lie, as the others are. Copied, the one column of a sum of keys behind 128
/// others read each row from memory once more, in a loop of its own. A masked vector would reach into
/// the next row, and its loads would wait for the stores of the row before.
template <int kLanes, bool kQuery, bool kErase, int kWrites, class T>
HWY_INLINE void LastColumns(const StepPass<T>& s, const StepPanel<T>& panel, int64_t first, int64_t last,
                            int64_t column) {
  if constexpr (kLanes > 0) {
    if (panel.count - column >= kLanes) {
      StepPiece<1, kQuery, kErase, kWrites>(hn::CappedTag<T, kLanes>(), s, panel, first, last, column);
      column += kLanes;
    }
    LastColumns<kLanes / 2, kQuery, kErase, kWrites>(s, panel, first, last, column);
  }
}

template <bool kQuery, bool kErase, int kWrites, class T>
HWY_NOINLINE void RunPass(const StepPass<T>& s, const StepPanel<T>& panel) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < s.rows; first += kStepRows) {
    const int64_t last = HWY_MIN(first + kStepRows, s.rows);
    int64_t column = 0;
    for (; column + kStepVectors * lanes <= panel.count; column += kStepVectors * lanes)
      StepPiece<kStepVectors, kQuery, kErase, kWrites>(d, s, panel, first, last, column);
    for (; column + 2 * lanes <= panel.count; column += 2 * lanes)
      StepPiece<2, kQuery, kErase, kWrites>(d, s, panel, first, last, column);
    for (; column + lanes <= panel.count; column += lanes)
      StepPiece<1, kQuery, kErase, kWrites>(d, s, panel, first, last, column);
    LastColumns<static_cast<int>(hn::MaxLanes(d)) / 2, kQuery, kErase, kWrites>(s, panel, first, last,
                                                                                column);
  }
}

template <class T>
HWY_INLINE void StepOutput(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results,
                           const TokenSequence& sequence, int64_t h, int64_t row, int64_t reader,
                           const StepToken<T>& s) {
  if (s.of_target[reader] != T(0)) AddScaled(s.of_target[reader], s.target, s.stride, s.sums);
  if (s.of_written[reader] != T(0)) AddScaled(s.of_written[reader], s.written, s.stride, s.sums);
  if (p.sums_keys) {
    const T denominator = s.sums[p.value_dim] + static_cast<T>(p.epsilon);
    if (results.denominator.data)
      *RecurrenceRow(results.denominator, sequence.entry, h * s.readers + reader, row) = denominator;
    ScaleInto(T(1) / denominator, s.sums, s.stride, s.sums);
  }
  WriteStored(s.sums, 0, p.value_dim, results.output, sequence.entry, h * s.readers + reader, row);
}

template <class T>
HWY_INLINE void StepOnce(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results,
                         const TokenSequence& sequence, int64_t h, int64_t row, const StepToken<T>& s,
                         const StepPanel<T>& panel) {
  const bool queries = results.output.data != nullptr, additive = p.write == WriteKind::additive;
  const bool writes = panel.to != nullptr;
  PrepareStep(p, sequence, h, row, queries, s);
  const bool delta = p.write == WriteKind::delta;
  StepPass<T> pass{p.key_dim, s.q_start, s.e,    s.decay,  s.k, delta ? s.written : s.target,
                   s.b,       s.written, s.sums, s.written};
  if (delta)
    Copy(s.target, s.stride, s.written);
  else
    Fill(T{0}, s.stride, s.written);
  if (queries) Fill(T{0}, s.stride, s.sums);
  if (!additive && queries)
    RunPass<true, true, 0>(pass, panel);
  else if (!additive)
    RunPass<false, true, 0>(pass, panel);
  // The pass of the last reader of an additive write is the one that writes.
  const bool together = additive && queries && writes;
  for (int64_t reader = 0; queries && reader < s.readers; ++reader) {
    pass.q = s.q_start + reader * s.dim;
    if (reader > 0) Fill(T{0}, s.stride, s.sums);
    if (together && reader + 1 == s.readers)
      RunPass<true, false, 1>(pass, panel);
    else if (additive || reader > 0)
      RunPass<true, false, 0>(pass, panel);
    StepOutput(p, results, sequence, h, row, reader, s);
  }
  if (!writes || together) return;
  if (p.write == WriteKind::low_rank)
    RunPass<false, false, 2>(pass, panel);
  else
    RunPass<false, false, 1>(pass, panel);
}

template <class T>
HWY_NOINLINE void StepUnit(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, int64_t unit,
                           bool fetches_next, std::byte* memory) {
  const int64_t n = unit / p.heads, h = unit % p.heads;
  const FlushSubnormals flush;
  Carve carve(memory);
  const StepToken<T> s = TakeStep(p, carve);
  const TokenSequence& sequence = p.sequences[n];
  const int64_t columns = StateColumns(p), size = p.key_dim * columns;
  const T* const initials = p.initial_states(n);
  T* const finals = results.final_state.of(n, p.states_size());
  const T* initial = initials ? initials + h * size : nullptr;
  T* final = finals ? finals + h * size : nullptr;
  // Without a final state, it is kept in the workspace from token to token.
  T* state = final ? final : s.state;
  const int64_t stride = final ? columns : s.stride;
  StepPanel<T> panel{initial, state, columns, stride, columns, nullptr};
  const bool next_follows = fetches_next && initial && (h + 1 < p.heads || p.initial_state.data);
  if (!initial || (sequence.count == 0 && final && initial != final)) {
    for (int64_t i = 0; i < p.key_dim; ++i) {
      Fill(T{0}, columns, state + i * stride);
      if (initial) Copy(initial + i * columns, columns, state + i * stride);
    }
  }
  for (int64_t i = 0; i < sequence.count; ++i) {
    throw_if_cancelled();
    if (i > 0 || !initial) {
      panel.from = state;
      panel.from_stride = stride;
    }
    if (i + 1 == sequence.count) {
      if (next_follows) panel.next = initial + size;
      if (!final) panel.to = nullptr;
    }
    StepOnce(p, results, sequence, h, sequence.row(i), s, panel);
  }
}

template <class T>
size_t StepUnitBytes(const RecurrenceProblem<T>& p) {
  Carve carve(nullptr);
  TakeStep(p, carve);
  return carve.Used();
}
template <class T>
size_t StepForwardBytes(const RecurrenceProblem<T>& p, int threads) {
  return FromThreadToThread(StepUnitBytes(p)) * static_cast<size_t>(threads);
}
template <class T>
void StepForward(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, Executor& executor,
                 std::byte* memory) {
  const size_t bytes = FromThreadToThread(StepUnitBytes(p));
  const int64_t units = p.sequence_count * p.heads,
                parts = HWY_MIN(units, kStepParts * static_cast<int64_t>(executor.thread_count()));
  executor.parallel_for(parts, [&](int64_t part, int worker) {
    const int64_t last = (part + 1) * units / parts;
    for (int64_t unit = part * units / parts; unit < last; ++unit)
      StepUnit(p, results, unit, unit + 1 < last, memory + bytes * static_cast<size_t>(worker));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

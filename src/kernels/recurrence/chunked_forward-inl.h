// Forward by chunks. With S the state tile at a chunk's start, Y the targets of its tokens, and the pairs of
// recurrence/pairs-inl.h:
//
//   additive   W = Y
//   delta      W = Y + E_start S + EK W           solved row by row
//   low rank   W = E_start S + EK Y + EB W        likewise; W are the products p
//   output     Q_start S + QK W (low rank: QK Y + QB W) + own ∘ Y
//   state      decays of the chunk ∘ S + K_end^T W (low rank: K_end^T Y + B_end^T W)
#if defined(FOVEA_RECURRENCE_CHUNKED_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_CHUNKED_FORWARD_INL_H_
#undef FOVEA_RECURRENCE_CHUNKED_FORWARD_INL_H_
#else
#define FOVEA_RECURRENCE_CHUNKED_FORWARD_INL_H_
#endif

#include "kernels/recurrence/forward_terms-inl.h"
#include "kernels/recurrence/key_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The tile of a state, to or from [key_dim][stride] with zeros behind the columns.
template <class T>
HWY_INLINE void LoadState(const RecurrenceProblem<T>& p, const T* states, int64_t unit,
                          const Columns& columns, T* tile) {
  for (int64_t i = 0; i < p.key_dim; ++i) {
    T* row = tile + i * columns.stride;
    Fill(T{0}, columns.stride, row);
    if (states) Copy(states + (unit * p.key_dim + i) * StateColumns(p) + columns.first, columns.count, row);
  }
}
template <class T>
HWY_INLINE void StoreState(const RecurrenceProblem<T>& p, const T* tile, int64_t unit, const Columns& columns,
                           T* states) {
  for (int64_t i = 0; i < p.key_dim; ++i)
    Copy(tile + i * columns.stride, columns.count,
         states + (unit * p.key_dim + i) * StateColumns(p) + columns.first);
}

/// Solves (I - N) W = W for the rows of W in place, N strictly lower; or with the transpose of N, from the
/// last row on.
template <bool kTransposed, int kVectors, class T>
HWY_INLINE void SolveColumns(const T* n, int64_t count, int64_t stride, T* w) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t step = 0; step < count; ++step) {
    const int64_t i = kTransposed ? count - 1 - step : step;
    V sum[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::LoadU(d, w + i * stride + v * lanes);
    for (int64_t j = kTransposed ? i + 1 : 0; j < (kTransposed ? count : i); ++j) {
      const V factor = hn::Set(d, kTransposed ? n[j * kChunk + i] : n[i * kChunk + j]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v)
        sum[v] = hn::MulAdd(factor, hn::LoadU(d, w + j * stride + v * lanes), sum[v]);
    }
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, w + i * stride + v * lanes);
  }
}
template <bool kTransposed, class T>
HWY_NOINLINE void Solve(const T* n, int64_t count, int64_t stride, T* w) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t at = 0;
  // Eight sums, since four wait for each other's multiply-adds; more would not stay in 16 registers.
  if constexpr (kTileVectors == 2) {
    for (; at + 8 * lanes <= stride; at += 8 * lanes) SolveColumns<kTransposed, 8>(n, count, stride, w + at);
  }
  for (; at + 4 * lanes <= stride; at += 4 * lanes) SolveColumns<kTransposed, 4>(n, count, stride, w + at);
  for (; at < stride; at += lanes) SolveColumns<kTransposed, 1>(n, count, stride, w + at);
}

/// W of the chunk, where it is not Y: to [16][columns.stride].
template <class Terms, class T>
HWY_INLINE void WriteRows(Terms& x, const T* state, T* written, FetchedRows<T>& fetch) {
  const Chunk<T>& c = x.c;
  if (!c.e) return;
  const int64_t stride = x.columns.stride;
  ChunkSum<T, typename Terms::Element> sum{
      .to = written, .to_stride = stride, .first = x.Erase(state), .factors = x.rows.e_factors};
  if (c.b) {
    sum.more[0] = x.EraseValues();
    sum.more_count = 1;
  } else {
    sum.from = x.rows.values.data;
    sum.from_stride = x.rows.values.stride;
    sum.from_factors = x.f.beta;
  }
  x.Multiply(x.at.count, sum);
  Sum(x.at.count, stride, sum, fetch);
  Solve<false>(c.b ? c.eb : c.ek, x.at.count, stride, written);
  x.TakeWritten(written);
}

/// The state tile that `sum` starts from is decayed by the chunk.
template <class T, class X>
HWY_INLINE void DecayFrom(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c,
                          ChunkSum<T, X>& sum) {
  if (p.decay == DecayKind::none) return;
  const bool by_channel = p.decay == DecayKind::key;
  sum.from_factors = c.to_token + (at.count - 1) * (by_channel ? c.dim : 1);
  sum.from_factors_step = by_channel ? 1 : 0;
}

/// What forward saves for backward. For each chunk these are the state before it, and W unless writes are
/// additive. Sequences start at rows that ascend, so that row / 16 plus their number finds the first chunk
/// of each.
template <class T>
HWY_INLINE int64_t SavedSize(const RecurrenceProblem<T>& p) {
  return StateSize(p) + (p.write == WriteKind::additive ? 0 : kChunk * Padded<T>(TilesOf(p).width));
}
template <class T>
HWY_INLINE int64_t SavedSlots(const RecurrenceProblem<T>& p) {
  return p.rows / kChunk + p.sequence_count;
}
template <class T>
int64_t SavedCount(const RecurrenceProblem<T>& p) {
  return p.heads * TilesOf(p).count * SavedSlots(p) * SavedSize(p);
}
/// The place of the first chunk of a unit; those of the others follow it.
template <class P, class T>
HWY_INLINE P* SavedChunks(const RecurrenceProblem<T>& p, int64_t n, int64_t h, int64_t tile, P* saved) {
  const TokenSequence& sequence = p.sequences[n];
  const int64_t first = (sequence.entry * p.len + sequence.begin) / kChunk + n;
  return saved + ((h * TilesOf(p).count + tile) * SavedSlots(p) + first) * SavedSize(p);
}
/// A copy past the caches: `to` lies at a multiple of 64 bytes, and `count` is of whole vectors.
template <class T>
HWY_INLINE void StreamCopy(const T* from, int64_t count, T* to) {
  const hn::ScalableTag<T> d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
}

/// The state behind the chunk, from that before it; both may be the same memory. `saved`: a second copy, or
/// null.
template <class Terms, class T>
HWY_INLINE void UpdateState(Terms& x, const T* written, const T* from, T* to, T* saved,
                            FetchedRows<T>& fetch) {
  const int64_t stride = x.columns.stride;
  ChunkSum<T, typename Terms::Element> sum{
      .to = to, .to_stride = stride, .first = x.KeyWrites(written), .from = from, .from_stride = stride};
  sum.saved = saved;
  sum.pairs = x.StatePairs();
  DecayFrom(x.p, x.at, x.c, sum);
  if (x.c.b) {
    sum.more[0] = x.BWrites(written);
    sum.more_count = 1;
  }
  x.Multiply(x.p.key_dim, sum);
  Sum(x.p.key_dim, stride, sum, fetch);
}

/// The outputs of one query head. Null `inverses` are 1: see Divisors.
template <class Terms, class T>
HWY_INLINE void ReadOutputs(const Terms& x, const RecurrenceResults<T>& results, int64_t reader,
                            const T* written, const T* state, const T* inverses, FetchedRows<T>& fetch) {
  const RecurrenceProblem<T>& p = x.p;
  const ChunkAt& at = x.at;
  const Columns& columns = x.columns;
  const TokenSequence& sequence = p.sequences[at.n];
  const int64_t head = at.h * x.c.readers + reader, stride = columns.stride;
  const bool in_place = !sequence.rows && columns.count == stride && RowsAreOf<T>(results.output.dtype);
  T* outputs = x.f.outputs;
  if (in_place) {
    std::byte* first = RecurrenceRow(results.output, sequence.entry, head, sequence.row(at.begin));
    outputs = reinterpret_cast<T*>(first) + columns.first;
  }
  const int64_t outputs_stride = in_place ? results.output.row_stride : stride;
  ChunkSum<T, typename Terms::Element> sum{.to = outputs,
                                           .to_stride = outputs_stride,
                                           .first = x.Query(reader, state),
                                           .factors = x.rows.q_factors,
                                           .end_factors = inverses};
  sum.more[0] = x.KeyPairs(reader, written);
  if (x.c.b) sum.more[1] = x.BPairs(reader, written);
  sum.more_count = x.c.b ? 2 : 1;
  x.Multiply(at.count, sum);
  Sum(at.count, stride, sum, fetch);
  for (int64_t i = 0; i < at.count; ++i) {
    T* row = outputs + i * outputs_stride;
    if (p.read != ReadKind::after_write) {
      T share = x.c.own[reader * kChunk + i] * (p.write == WriteKind::delta ? x.f.beta[i] : T(1));
      if (inverses) share *= inverses[i];
      AddScaled(share, x.rows.values.data + i * x.rows.values.stride, columns.count, row);
    }
    if (in_place) continue;
    WriteStored(row, columns.first, columns.count, results.output, sequence.entry, head,
                sequence.row(at.begin + i));
  }
}

/// What forward reads and writes in a chunk.
template <class T>
HWY_NOINLINE void AddFetched(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results,
                             const ChunkAt& at, const Columns& columns, FetchedRows<T>& fetch) {
  fetch.Restart();
  fetch.Add(p, p.key, KeyHeadOf(p, at.h), at, 0, p.key_dim);
  for (const StoredOperand<const std::byte>* from : {&p.erase, &p.a, &p.b})
    fetch.Add(p, *from, at.h, at, 0, p.key_dim);
  if (p.decay == DecayKind::key) fetch.Add(p, StoredAs(p.log_decay), at.h, at, 0, p.key_dim);
  // A line in a chunk is too seldom for the processor to foresee it.
  const TokenSequence& sequence = p.sequences[at.n];
  if (p.decay == DecayKind::scalar && at.count > 0 && GatesLieSideBySide(p, sequence))
    fetch.Add(RecurrenceRow(p.log_decay, sequence.entry, at.h, sequence.begin + at.begin), 1, at.count);
  fetch.Add(p, p.value, at.h, at, columns.first, columns.count);
  for (int64_t reader = 0; results.output.data && reader < ReadersOf(p); ++reader) {
    fetch.Add(p, p.query, QueryHeadOf(p, at.h, reader), at, 0, p.key_dim);
    fetch.Add(p, results.output, at.h * ReadersOf(p) + reader, at, columns.first, columns.count);
  }
}

/// The workspace of a unit, which multiplies by `Terms` (recurrence/forward_terms-inl.h).
template <class T, class Terms>
struct ForwardMemory {
  Chunk<T> chunk;
  ForwardBuffers<T> buffers;
  Terms terms;
  FetchedRows<T> fetch;
  Divisors<T> divisors;
  T* state;  // see StateSize

  ForwardMemory(const RecurrenceProblem<T>& p, const Columns& columns, Carve& carve)
      : chunk(TakeChunk(p, carve)),
        buffers(TakeForwardBuffers(p, carve)),
        terms(p, columns, chunk, buffers, carve),
        fetch(p, carve),
        divisors(p, carve),
        state(carve.Take<T>(StateSize(p))) {}
};

template <class T, class Terms>
HWY_NOINLINE void ForwardUnit(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, int64_t n,
                              int64_t h, int64_t tile, std::byte* memory) {
  const FlushSubnormals flush;  // a state that only decays reaches subnormal numbers
  Carve carve(memory);
  const Columns columns = ColumnsOf(p, tile);
  ForwardMemory<T, Terms> m(p, columns, carve);
  const bool queries = results.output.data != nullptr;
  T* sums = m.state + TileSize(p);
  LoadState(p, p.initial_states(n), h, columns, m.state);
  // Where there is a copy, another tile may be writing final sums in the place of the initial ones.
  LoadSums(p, p.initial_sums ? nullptr : p.initial_states(n), h, sums);
  if (p.initial_sums) Copy(p.initial_sums + (n * p.heads + h) * p.key_dim, p.key_dim, sums);
  m.terms.Start(m.state);
  FillReachTables(p, m.chunk);
  const int64_t count = p.sequences[n].count;
  const auto chunk_at = [&](int64_t begin) {
    return ChunkAt{n, h, begin, HWY_MAX(HWY_MIN(kChunk, count - begin), 0)};
  };
  const int64_t state_size = StateSize(p), values_size = kChunk * columns.stride;
  T *saved = results.saved ? SavedChunks(p, n, h, tile, results.saved) : nullptr,
    *written = m.buffers.written;
  if (saved && count > 0) StreamCopy(m.state, state_size, saved);
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    throw_if_cancelled();
    const ChunkAt at = chunk_at(begin);
    AddFetched(p, results, chunk_at(begin + kChunk), columns, m.fetch);
    [[maybe_unused]] const auto held = m.terms.HoldEngine();
    m.terms.Prepare(at, queries);
    WriteRows(m.terms, m.state, written, m.fetch);
    if (saved && m.chunk.e) {
      Fill(T{0}, values_size - at.count * columns.stride, written + at.count * columns.stride);
      StreamCopy(written, values_size, saved + state_size);
    }
    if (saved) saved += SavedSize(p);
    for (int64_t reader = 0; queries && reader < m.chunk.readers; ++reader) {
      const T* inverses =
          p.sums_keys ? m.divisors.Divide(m.terms, sums, reader, results.denominator) : nullptr;
      ReadOutputs(m.terms, results, reader, written, m.state, inverses, m.fetch);
    }
    T* saved_next = begin + kChunk < count ? saved : nullptr;
    UpdateState(m.terms, written, m.state, m.state, saved_next, m.fetch);
    UpdateSums(m.terms, sums, sums);
    if (saved_next) StreamCopy(sums, state_size - TileSize(p), saved_next + TileSize(p));
    m.fetch.Rest();
  }
  if (saved) hwy::FlushStream();
  T* final = results.final_state.of(n, p.states_size());
  if (!final) return;
  StoreState(p, m.state, h, columns, final);
  if (columns.writes_sums) StoreSums(p, sums, h, final);
}

template <class T, class Terms>
size_t ForwardUnitBytes(const RecurrenceProblem<T>& p) {
  Carve carve(nullptr);
  ForwardMemory<T, Terms>(p, ColumnsOf(p, 0), carve);
  return carve.Used();
}
/// Each tile of a unit reads the initial sums of keys, and one writes the final ones. That may be the same
/// memory, so several tiles read a copy.
template <class T>
HWY_INLINE T* TakeInitialSums(const RecurrenceProblem<T>& p, Carve& carve) {
  return carve.Take<T>(p.sums_keys && TilesOf(p).count > 1 ? p.sequence_count * p.heads * p.key_dim : 0);
}
template <class T, class Terms = NumberTerms<T>>
size_t ChunkedForwardBytes(const RecurrenceProblem<T>& p, int threads) {
  Carve carve(nullptr);
  TakeInitialSums(p, carve);
  return carve.Used() + FromThreadToThread(ForwardUnitBytes<T, Terms>(p)) * static_cast<size_t>(threads);
}
template <class T, class Terms = NumberTerms<T>>
void ChunkedForward(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, Executor& executor,
                    std::byte* memory) {
  const size_t bytes = FromThreadToThread(ForwardUnitBytes<T, Terms>(p));
  const int64_t tiles = TilesOf(p).count, of_sequence = p.heads * tiles;
  Carve carve(memory);
  T* sums = TakeInitialSums(p, carve);
  RecurrenceProblem<T> copied = p;
  if (p.sums_keys && tiles > 1 && p.initial_state) {
    for (int64_t unit = 0; unit < p.sequence_count * p.heads; ++unit)
      CopySums(p, p.initial_states(unit / p.heads), unit % p.heads, sums + unit * p.key_dim);
    copied.initial_sums = sums;
  }
  std::byte* of_threads = memory + carve.Used();
  executor.parallel_for(p.sequence_count * of_sequence, [&](int64_t unit, int worker) {
    ForwardUnit<T, Terms>(copied, results, unit / of_sequence, unit % of_sequence / tiles, unit % tiles,
                          of_threads + bytes * static_cast<size_t>(worker));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

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

#include "kernels/recurrence/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The tiles of value columns: near 128 columns each, one tile less where the last would be short.
struct ValueTiles {
  int64_t count, width;
};
template <class T>
HWY_INLINE ValueTiles TilesOf(const RecurrenceProblem<T>& p) {
  const int64_t count = HWY_MAX((p.value_dim + recurrence_tile / 2 - 1) / recurrence_tile, 1);
  return {count, (p.value_dim + count - 1) / count};
}

/// Columns [first, first + count) of the values of a head; rows in scratch buffers have `stride` elements.
struct Columns {
  int64_t first, count, stride;
};
template <class T>
HWY_INLINE Columns ColumnsOf(const RecurrenceProblem<T>& p, int64_t tile) {
  const ValueTiles tiles = TilesOf(p);
  const int64_t first = tile * tiles.width, count = HWY_MIN(tiles.width, p.value_dim - first);
  return {first, count, Padded<T>(tiles.width)};
}

/// The values of a chunk: [16][stride], of outputs [readers · 16][stride].
template <class T>
struct ChunkValues {
  T *targets, *written, *outputs;
};
template <class T>
HWY_INLINE ChunkValues<T> TakeValues(const RecurrenceProblem<T>& p, Carve& carve) {
  const int64_t stride = Padded<T>(TilesOf(p).width);
  return {carve.Take<T>(kChunk * stride),
          p.write == WriteKind::additive ? nullptr : carve.Take<T>(kChunk * stride),
          carve.Take<T>(ReadersOf(p) * kChunk * stride)};
}
template <class T>
HWY_INLINE T* WrittenOf(const ChunkValues<T>& v) {
  return v.written ? v.written : v.targets;
}

/// The tile of a state, to or from [key_dim][stride] with zeros behind the columns.
template <class T>
HWY_INLINE void LoadState(const RecurrenceProblem<T>& p, const T* states, int64_t unit,
                          const Columns& columns, T* tile) {
  for (int64_t i = 0; i < p.key_dim; ++i) {
    T* row = tile + i * columns.stride;
    Fill(T{0}, columns.stride, row);
    if (states) Copy(states + (unit * p.key_dim + i) * p.value_dim + columns.first, columns.count, row);
  }
}
template <class T>
HWY_INLINE void StoreState(const RecurrenceProblem<T>& p, const T* tile, int64_t unit, const Columns& columns,
                           T* states) {
  for (int64_t i = 0; i < p.key_dim; ++i)
    Copy(tile + i * columns.stride, columns.count,
         states + (unit * p.key_dim + i) * p.value_dim + columns.first);
}

template <class T>
HWY_INLINE void GatherTargets(const RecurrenceProblem<T>& p, const ChunkAt& at, const Columns& columns,
                              T* targets) {
  GatherRows(
      p.value, p.sequences[at.n], at.h, at, columns.first, columns.count, columns.stride,
      [&](int64_t i) { return p.write == WriteKind::delta ? BetaAt(p, at, i) : T(1); }, targets);
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
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::LoadU(d, w + i * stride + v * lanes);
    for (int64_t j = kTransposed ? i + 1 : 0; j < (kTransposed ? count : i); ++j) {
      const V factor = hn::Set(d, kTransposed ? n[j * kChunk + i] : n[i * kChunk + j]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v)
        sum[v] = hn::MulAdd(factor, hn::LoadU(d, w + j * stride + v * lanes), sum[v]);
    }
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, w + i * stride + v * lanes);
  }
}
template <bool kTransposed, class T>
HWY_NOINLINE void Solve(const T* n, int64_t count, int64_t stride, T* w) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t at = 0;
  for (; at + 4 * lanes <= stride; at += 4 * lanes) SolveColumns<kTransposed, 4>(n, count, stride, w + at);
  for (; at < stride; at += lanes) SolveColumns<kTransposed, 1>(n, count, stride, w + at);
}

/// W of the chunk, where it is not Y.
template <class T>
HWY_INLINE void WriteRows(const RecurrenceProblem<T>& p, const ChunkAt& at, const Columns& columns,
                          const Chunk<T>& c, const T* state, const ChunkValues<T>& v) {
  if (!v.written) return;
  const int64_t stride = columns.stride;
  if (p.write == WriteKind::delta) {
    Copy(v.targets, at.count * stride, v.written);
    Product<true, T>(at.count, stride, {c.e_start, c.dim, 1, state, stride, v.written, stride, p.key_dim});
    Solve<false>(c.ek, at.count, stride, v.written);
  } else {
    Product<false, T>(at.count, stride, {c.e_start, c.dim, 1, state, stride, v.written, stride, p.key_dim});
    Product<true, T>(at.count, stride, {c.ek, kChunk, 1, v.targets, stride, v.written, stride, at.count});
    Solve<false>(c.eb, at.count, stride, v.written);
  }
}

/// tile ← decays of the chunk ∘ tile.
template <class T>
HWY_INLINE void DecayRows(const RecurrenceProblem<T>& p, const ChunkAt& at, int64_t stride, const Chunk<T>& c,
                          T* tile) {
  if (p.decay == DecayKind::none) return;
  for (int64_t i = 0; i < p.key_dim; ++i) {
    const T decay =
        p.decay == DecayKind::key ? c.to_token[(at.count - 1) * c.dim + i] : c.to_token[at.count - 1];
    ScaleInto(decay, tile + i * stride, stride, tile + i * stride);
  }
}

template <class T>
HWY_INLINE void UpdateState(const RecurrenceProblem<T>& p, const ChunkAt& at, const Columns& columns,
                            const Chunk<T>& c, const T* targets, const T* written, T* state) {
  const int64_t stride = columns.stride;
  DecayRows(p, at, stride, c, state);
  const bool low_rank = p.write == WriteKind::low_rank;
  Product<true, T>(p.key_dim, stride,
                   {c.k_end, 1, c.dim, low_rank ? targets : written, stride, state, stride, at.count});
  if (low_rank)
    Product<true, T>(p.key_dim, stride, {c.b_end, 1, c.dim, written, stride, state, stride, at.count});
}

template <class T>
HWY_INLINE void ReadOutputs(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results,
                            const ChunkAt& at, const Columns& columns, const Chunk<T>& c, const T* state,
                            const ChunkValues<T>& v) {
  const int64_t stride = columns.stride, rows = c.QueryRows(at.count);
  const bool low_rank = p.write == WriteKind::low_rank;
  T* outputs = v.outputs;
  Product<false, T>(rows, stride, {c.q_start, c.dim, 1, state, stride, outputs, stride, p.key_dim});
  Product<true, T>(rows, stride,
                   {c.qk, kChunk, 1, low_rank ? v.targets : WrittenOf(v), stride, outputs, stride, at.count});
  if (low_rank)
    Product<true, T>(rows, stride, {c.qb, kChunk, 1, v.written, stride, outputs, stride, at.count});
  const TokenSequence& sequence = p.sequences[at.n];
  for (int64_t reader = 0; reader < c.readers; ++reader) {
    for (int64_t i = 0; i < at.count; ++i) {
      const int64_t row = reader * kChunk + i;
      if (p.read != ReadKind::after_write)
        AddScaled(c.own[row], v.targets + i * stride, stride, outputs + row * stride);
      Copy(outputs + row * stride, columns.count,
           RecurrenceRow(results.output, sequence.entry, at.h * c.readers + reader,
                         sequence.row(at.begin + i)) +
               columns.first);
    }
  }
}

/// Fetches columns [first, first + count) of the rows of a chunk.
template <class T, class P>
HWY_INLINE void FetchRows(const RecurrenceProblem<T>& p, const Operand<P>& from, int64_t h, const ChunkAt& at,
                          int64_t first, int64_t count) {
  constexpr int64_t line = 64 / static_cast<int64_t>(sizeof(T));
  if (!from.data) return;
  const TokenSequence& sequence = p.sequences[at.n];
  for (int64_t i = 0; i < at.count; ++i) {
    const auto* row = RecurrenceRow(from, sequence.entry, h, sequence.row(at.begin + i)) + first;
    for (int64_t j = 0; j < count; j += line) FetchLine(row + j);
  }
}

template <class T>
HWY_NOINLINE void ForwardUnit(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, int64_t n,
                              int64_t h, int64_t tile, std::byte* memory) {
  const FlushSubnormals flush;  // a state that only decays reaches subnormal numbers
  Carve carve(memory);
  const Columns columns = ColumnsOf(p, tile);
  const Chunk<T> c = TakeChunk(p, carve);
  const ChunkValues<T> v = TakeValues(p, carve);
  T* state = carve.Take<T>(p.key_dim * columns.stride);
  const bool queries = results.output.data != nullptr;
  LoadState(p, p.initial_state, n * p.heads + h, columns, state);
  const int64_t count = p.sequences[n].count;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    throw_if_cancelled();
    const ChunkAt at{n, h, begin, HWY_MIN(kChunk, count - begin)};
    PrepareChunk(p, at, queries, c);
    GatherTargets(p, at, columns, v.targets);
    const ChunkAt next{n, h, begin + kChunk, HWY_MAX(HWY_MIN(kChunk, count - begin - kChunk), 0)};
    FetchRows(p, p.key, KeyHeadOf(p, h), next, 0, p.key_dim);
    FetchRows(p, p.value, h, next, columns.first, columns.count);
    if (p.decay == DecayKind::key) FetchRows(p, p.log_decay, h, next, 0, p.key_dim);
    FetchRows(p, p.erase, h, next, 0, p.key_dim);
    FetchRows(p, p.a, h, next, 0, p.key_dim);
    FetchRows(p, p.b, h, next, 0, p.key_dim);
    WriteRows(p, at, columns, c, state, v);
    for (int64_t reader = 0; queries && reader < c.readers; ++reader) {
      FetchRows(p, p.query, QueryHeadOf(p, h, reader), next, 0, p.key_dim);
      FetchRows(p, results.output, h * c.readers + reader, next, columns.first, columns.count);
    }
    if (queries) ReadOutputs(p, results, at, columns, c, state, v);
    UpdateState(p, at, columns, c, v.targets, WrittenOf(v), state);
  }
  if (results.final_state) StoreState(p, state, n * p.heads + h, columns, results.final_state);
}

template <class T>
size_t ForwardUnitBytes(const RecurrenceProblem<T>& p) {
  Carve carve(nullptr);
  TakeChunk(p, carve);
  TakeValues(p, carve);
  carve.Take<T>(p.key_dim * Padded<T>(TilesOf(p).width));
  return carve.Used();
}
template <class T>
size_t ChunkedForwardBytes(const RecurrenceProblem<T>& p, int threads) {
  return ForwardUnitBytes(p) * static_cast<size_t>(threads);
}
template <class T>
void ChunkedForward(const RecurrenceProblem<T>& p, const RecurrenceResults<T>& results, Executor& executor,
                    std::byte* memory) {
  const size_t bytes = ForwardUnitBytes(p);
  const int64_t tiles = TilesOf(p).count, of_sequence = p.heads * tiles;
  executor.parallel_for(p.sequence_count * of_sequence, [&](int64_t unit, int worker) {
    ForwardUnit(p, results, unit / of_sequence, unit % of_sequence / tiles, unit % tiles,
                memory + bytes * static_cast<size_t>(worker));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// The split of the keys into chunks, where a call has fewer blocks of queries than would occupy the threads.
// The shape alone decides how many chunks there are, so any number of threads gives the same bits. Each chunk
// leaves, for each row, a softmax state and values that are not yet divided by the sum. These partial results
// merge in the order of the chunks.
#if defined(FOVEA_FLASH_CHUNKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_CHUNKS_INL_H_
#undef FOVEA_FLASH_CHUNKS_INL_H_
#else
#define FOVEA_FLASH_CHUNKS_INL_H_
#endif

#include "kernels/flash/flash.h"
#include "kernels/flash/online_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The number of chunks that gives about 32 units of work, each of at least 256 keys. A chunk costs a state
/// and a row of values to merge, which is a hundredth of reading 256 keys for one query.
constexpr int64_t kSplitUnits = 32, kChunkKeys = 256;
struct Chunks {
  int64_t count, keys;
};
template <class T>
HWY_INLINE int64_t FixedChunkKeys(const Problem<T>& p) {
  return fixed_chunk_keys(p.kv_heads);
}
/// The chunks for a call whose `units` units of work each run over all keys; a chunk is whole tiles.
template <class T>
HWY_INLINE Chunks ChunksOf(const Problem<T>& p, int64_t units, int64_t tile = tile_keys) {
  if (p.by_position)
    return {HWY_MAX((p.key_len + FixedChunkKeys(p) - 1) / FixedChunkKeys(p), 1), FixedChunkKeys(p)};
  const int64_t most = HWY_MAX(units, 1);
  const int64_t wanted = HWY_MIN((kSplitUnits + most - 1) / most, (p.key_len + kChunkKeys - 1) / kChunkKeys);
  const int64_t keys = (HWY_MAX(p.key_len, 1) + wanted - 1) / HWY_MAX(wanted, 1);
  const int64_t rounded = (keys + tile - 1) / tile * tile;
  return {(p.key_len + rounded - 1) / rounded, rounded};
}

/// The elements of one partial result: maximum, sum and values of one row and one chunk.
template <class T>
HWY_INLINE int64_t PartialWidth(const Problem<T>& p) {
  return 2 + p.value_dim;
}
/// An upper bound of the elements of all partial results, for this call and every smaller one, whose units
/// have at most `rows` query rows. Fewer units have more chunks, but all units together have fewer than units
/// + 32 chunks.
template <class T>
HWY_INLINE int64_t PartialElements(const Problem<T>& p, int64_t units, int64_t rows) {
  if (p.by_position)
    return p.key_len <= FixedChunkKeys(p) ? 0 : units * ChunksOf(p, units).count * rows * PartialWidth(p);
  if (p.key_len <= kChunkKeys) return 0;
  return (kSplitUnits + HWY_MIN(units, kSplitUnits)) * rows * PartialWidth(p);
}

/// The partial results of a call. Those of one query row lie side by side.
template <class T>
struct Partials {
  T* data = nullptr;  ///< null: the keys are one chunk, and rows are finished at once
  int64_t chunks = 1, width = 0;
  HWY_INLINE T* At(int64_t row, int64_t chunk) const { return data + (row * chunks + chunk) * width; }
};

/// Writes the partial result of one row and one chunk.
template <class T>
HWY_INLINE void LeavePartial(const Problem<T>& p, const RowState<T>& state, const T* gathered, T* partial) {
  partial[0] = state.maximum;
  partial[1] = state.sum;
  Copy(gathered, p.value_dim, partial + 2);
}

/// Writes output and log-sum-exp of query row `row` of head (b, h).
template <class T>
HWY_NOINLINE void LeaveRow(const Problem<T>& p, const ForwardOutputs<T>& out, int64_t b, int64_t h,
                           int64_t row, const RowState<T>& state, const T* gathered) {
  const bool wanted = out.output.data != nullptr;  // without an output, only the weights are
  T* output = wanted ? RowAt(out.output, b, h, row) : nullptr;
  Finish(state, sink_of(p, h), wanted ? p.value_dim : 0, gathered, output);
  if (out.log_sum_exp) out.log_sum_exp[(b * p.query_heads + h) * p.query_len + row] = LogSumExp(state);
}

/// Merges the chunks of one row in order, by the formula of the algebra (docs/algebra.md): each partial
/// result is scaled by e^(its maximum - the largest maximum). The merged values replace those of the first
/// chunk. For the sigmoid the values are only added, and the state just says whether the row saw a key.
template <class T>
HWY_NOINLINE RowState<T> MergeChunks(const Problem<T>& p, const Partials<T>& partials, int64_t row) {
  RowState<T> whole;
  for (int64_t c = 0; c < partials.chunks; ++c) {
    const T maximum = *partials.At(row, c);
    whole.maximum = maximum > whole.maximum ? maximum : whole.maximum;
  }
  T* gathered = partials.At(row, 0) + 2;
  for (int64_t c = 0; c < partials.chunks; ++c) {
    const T* partial = partials.At(row, c);
    const T factor =
        partial[0] == whole.maximum ? T{1} : static_cast<T>(std::exp(partial[0] - whole.maximum));
    if (p.normalizer == NormalizerKind::sigmoid) {
      whole.sum = partial[1] > whole.sum ? partial[1] : whole.sum;
    } else {
      whole.sum += factor * partial[1];
    }
    // A row that saw nothing must not be added: its values may be 0 · NaN from other rows of its block.
    if (factor == T{0}) {
      if (c == 0) Fill(T{0}, p.value_dim, gathered);
    } else if (c == 0) {
      if (factor != T{1}) Scale(factor, p.value_dim, gathered);
    } else {
      AddScaled(factor, partial + 2, p.value_dim, gathered);
    }
  }
  return whole;
}

/// Calls leave(b, h, row, state, values) for one query row, once its chunks are merged.
template <class T, class Leave>
HWY_INLINE void LeaveMergedRow(const Problem<T>& p, const Partials<T>& partials, int64_t index,
                               Leave&& leave) {
  const RowState<T> state = MergeChunks(p, partials, index);
  leave(index / p.query_len / p.query_heads, index / p.query_len % p.query_heads, index % p.query_len, state,
        partials.At(index, 0) + 2);
}
/// The same for every query row. Does nothing if the keys are one chunk.
template <class T, class Leave>
HWY_INLINE void LeaveMergedRows(const Problem<T>& p, const Partials<T>& partials, Executor& executor,
                                Leave&& leave) {
  if (!partials.data) return;
  executor.parallel_for(p.batch * p.query_heads * p.query_len,
                        [&](int64_t index, int) { LeaveMergedRow(p, partials, index, leave); });
}
/// LeaveRow as what LeaveMergedRow calls.
template <class T>
HWY_INLINE auto RowsInto(const Problem<T>& p, const ForwardOutputs<T>& out) {
  return [&p, &out](int64_t b, int64_t h, int64_t row, const RowState<T>& state, const T* values) {
    LeaveRow(p, out, b, h, row, state, values);
  };
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

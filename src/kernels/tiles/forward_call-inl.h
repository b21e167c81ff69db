// A forward call of the tile kernels: its memory, its units of work, and the second pass that writes weights.
#if defined(FOVEA_TILES_FORWARD_CALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_FORWARD_CALL_INL_H_
#undef FOVEA_TILES_FORWARD_CALL_INL_H_
#else
#define FOVEA_TILES_FORWARD_CALL_INL_H_
#endif

#include "kernels/tiles/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The packed keys and values. With a null executor it only counts the bytes.
HWY_NOINLINE TileOperands PackTileOperands(const Problem<float>& p, int threads, Carve& carve,
                                           Executor* executor) {
  TileOperands in;
  in.split = SplitOf(p);
  WithStored(p, p.key, p.stored_key, [&](const auto& keys) {
    in.keys = PackKeyRows(p, in.split, keys, p.score_dim, carve, executor);
  });
  WithStored(p, p.value, p.stored_value, [&](const auto& values) {
    in.values = PackKeyColumns(p, in.split, values, p.value_dim, kValueKeys, threads, carve, executor);
  });
  return in;
}

HWY_INLINE int64_t TileUnits(const Problem<float>& p) {
  return p.batch * p.query_heads * ((p.query_len + kBlockQueries - 1) / kBlockQueries);
}
/// By position the keys stay whole: from 33 queries on, the blocks of the heads are work for several threads.
HWY_INLINE Chunks TileChunks(const Problem<float>& p, int64_t units) {
  return p.by_position ? Chunks{1, HWY_MAX(p.key_len, 1)} : ChunksOf(p, units, kValueKeys);
}
HWY_INLINE int64_t TilePartials(const Problem<float>& p) {
  return p.by_position ? 0 : PartialElements(p, TileUnits(p), HWY_MIN(p.query_len, kBlockQueries));
}

/// The memory of a call beside that of its threads. With a null executor it only counts the bytes.
struct TileMemory {
  TileOperands in;
  float* partials;
  RowState<float>* states;  ///< [batch, query_heads, query_len], for calls that return weights
};
HWY_INLINE TileMemory TakeTileMemory(const Problem<float>& p, int threads, Carve& carve, Executor* executor) {
  return {PackTileOperands(p, threads, carve, executor), carve.Take<float>(TilePartials(p)),
          carve.Take<RowState<float>>(p.batch * p.query_heads * p.query_len)};
}

HWY_NOINLINE size_t TilesForwardBytes(const Problem<float>& p, int threads) {
  Carve carve(nullptr);
  const TileMemory all = TakeTileMemory(p, threads, carve, nullptr);
  for (int t = 0; t < threads; ++t) TakeTileScratch(p, all.in.split, carve);
  return carve.Used();
}

HWY_NOINLINE void TilesForward(const Problem<float>& p, const ForwardOutputs<float>& out,
                               const TileEngine& engine, Executor& executor, std::byte* memory) {
  Carve carve(memory), one(nullptr);
  TileMemory all = TakeTileMemory(p, executor.thread_count(), carve, &executor);
  all.in.engine = &engine;
  if (!out.weights.data) all.states = nullptr;
  const int64_t units = TileUnits(p);
  const Chunks chunks = TileChunks(p, units);
  const Partials<float> partials{chunks.count > 1 ? all.partials : nullptr, chunks.count, PartialWidth(p)};
  std::byte* scratch = memory + carve.Used();
  TakeTileScratch(p, all.in.split, one);
  const auto states_of = [&](int64_t b, int64_t h, int64_t row) {
    return all.states ? all.states + (b * p.query_heads + h) * p.query_len + row : nullptr;
  };
  // body(block, schedule, pieces, place) for the block of a unit and keys [begin, end).
  const auto with_block = [&](int64_t unit, int64_t begin, int64_t end, int worker, auto&& body) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    const TileScratch buffers = TakeTileScratch(p, all.in.split, mine);
    const BlockAt<float> at = BlockOf(p, unit, kBlockQueries);
    TileForward block(p, all.in, at, buffers);
    const BlockSchedule& schedule = ScheduleOf(p, at, begin, HWY_MIN(p.key_len, end), kValueKeys);
    block.FetchNext(schedule);
    body(block, schedule, schedule.pieces(), at);
  };
  executor.parallel_for(units * chunks.count, [&](int64_t unit, int worker) {
    const int64_t chunk = unit % chunks.count, begin = chunk * chunks.keys;
    with_block(unit / chunks.count, begin, begin + chunks.keys, worker,
               [&](TileForward& block, const BlockSchedule& schedule, const Piece* pieces,
                   const BlockAt<float>& at) {
                 block.Run(schedule, pieces);
                 block.Leave(out, partials, chunk, partials.data ? nullptr : states_of(at.b, at.h, at.row));
               });
  });
  LeaveMergedRows(p, partials, executor,
                  [&](int64_t b, int64_t h, int64_t row, const RowState<float>& state, float* values) {
                    LeaveTileRow(p, out, b, h, row, state, values);
                    if (all.states) *states_of(b, h, row) = state;
                  });
  if (!out.weights.data) return;
  executor.parallel_for(units, [&](int64_t unit, int worker) {
    if (weight_slot(out.weight_heads, BlockOf(p, unit, kBlockQueries).h, 0) < 0) return;
    with_block(unit, 0, p.key_len, worker,
               [&](TileForward& block, const BlockSchedule& schedule, const Piece* pieces,
                   const BlockAt<float>& at) {
                 block.WriteWeights(out, schedule, pieces, states_of(at.b, at.h, at.row));
               });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

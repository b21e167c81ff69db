// The algorithm `split`: few queries over many keys, as in decoding. The bandwidth of reading keys and values
// limits it. So each key and value is read once for all query heads that share it, and nothing is packed.
// They are read in the type that they are stored in: 16 bits are widened in the register.
//
// The keys are cut into chunks by the shape alone. So one query of one head has work for several threads, and
// any number of them gives the same bits; the chunks' states merge in order. The inner loops are
// StoredScores, where the sums of queries and keys stay in registers, and AddStoredRows, where those of
// values do (split_loops-inl.h).
#if defined(FOVEA_FLASH_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SPLIT_INL_H_
#undef FOVEA_FLASH_SPLIT_INL_H_
#else
#define FOVEA_FLASH_SPLIT_INL_H_
#endif

#include <atomic>

#include "kernels/flash/split_short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Fetches all keys and values of a short member.
template <class T, class S>
HWY_NOINLINE void FetchMember(const SplitMember<T, S>& m) {
  const auto fetch = [&](const HeadRows<S>& rows, int64_t dim) HWY_ATTR {
    rows.ForStretches(0, m.problem->key_len,
                      [&](int64_t begin, int64_t end, const StoredRows<S>& from) HWY_ATTR {
                        for (int64_t j = 0; j < end - begin; ++j) FetchRow(from.at(j), dim);
                      });
  };
  fetch(m.keys, m.problem->score_dim);
  fetch(m.values, m.problem->value_dim);
}

/// Computes the rows of `count` members over keys [key_begin, key_end). The keys before `shared_end` are the
/// same memory for all of them, and each tile of these is read once for all rows that see it whole. `ends[m]`
/// is the end of the keys of member m. Members that are heads of one entry follow each other, and take turns
/// at each piece. Each row has the bits that it has alone: the same pieces in the same order.
template <class T, class S>
HWY_NOINLINE void SplitBlock(const SplitMember<T, S>* members, int64_t count, int64_t heads,
                             int64_t key_begin, int64_t shared_end, const int64_t* ends,
                             const SplitScratch<T>& scratch) {
  const Problem<T>& p = *members[0].problem;
  const int64_t padded = PaddedPairs<T>(p.score_dim), width = SplitWidth(p);
  int64_t all = 0;
  for (int64_t m = 0; m < count; ++m) {
    const BlockAt<T>& at = members[m].at;
    for (int64_t r = 0; r < heads * at.rows; ++r, ++all) {
      LoadQuery(S(), RowAt(members[m].problem->query, at.b, at.h + r / at.rows, at.row + r % at.rows),
                p.score_dim, padded, scratch.queries + all * padded);
      Fill(T{0}, width, scratch.gathered + all * width);
      scratch.states[all] = RowState<T>();
    }
  }
  LoadedQueries(S(), all, padded, scratch.queries);
  int64_t tiles = count > 1 && shared_end > key_begin ? INT64_MAX : 0;
  for (int64_t m = 0; m < count && tiles > 0; ++m)
    tiles = HWY_MIN(tiles, WholeTiles(members[m], key_begin, shared_end));
  for (int64_t t = 0; t < tiles; ++t) {
    Piece piece;
    piece.begin = key_begin + t * kTileKeys;
    piece.end = HWY_MIN(piece.begin + kTileKeys, shared_end);
    if (AddWholePiece(S(), p, members[0].keys, members[0].values, piece, {members[0].keys, piece.end},
                      key_begin, shared_end, 0, all, scratch))
      continue;
    ProductsOfPiece(p, members[0].keys, piece, 0, all, scratch);
    int64_t first = 0;
    for (int64_t m = 0; m < count; ++m) {
      const BlockAt<T>& at = members[m].at;
      for (int64_t r = 0; r < heads * at.rows; ++r) {
        const int64_t n = piece.end - piece.begin;
        T* scores = scratch.scores + (first + r) * scratch.stride;
        ScaleEarly(p, n, scores);
        if (p.has_mods)
          apply_mods<T>(*members[m].problem,
                        {at.b, at.h + r / at.rows, at.row + r % at.rows, 1, piece.begin, n}, scores, n,
                        scratch.mods);
      }
      PieceWeights<ExponentialFor<S>>(*members[m].problem, at, heads, first, piece, scratch);
      first += heads * at.rows;
    }
    AddPieceValues(S(), members[0].values, piece, all, scratch.scores, scratch.stride, p.value_dim,
                   scratch.gathered, width);
  }
  const int64_t own_begin = key_begin + tiles * kTileKeys;
  int64_t first = 0;
  for (int64_t m = 0, next = 0; m < count; m = next) {
    // The heads of one entry see the same pieces.
    while (next < count && members[next].problem == members[m].problem) ++next;
    const int64_t rows = heads * members[m].at.rows;
    if (own_begin < ends[m]) {
      const BlockSchedule& schedule = ScheduleOf(*members[m].problem, members[m].at, own_begin, ends[m]);
      // Behind the first piece, all rows of a short head have been fetched.
      bool fetches = IsShort<S>(*members[m].problem);
      for (int64_t n = 0; n < schedule.piece_count(); fetches = false) {
        const Piece piece = JoinPieces(schedule, MostWholeKeys(S(), rows), n);
        for (int64_t i = m; i < next; ++i) {
          const bool last = i + 1 == next;
          if (fetches && !last) FetchMember(members[i + 1]);
          // Behind the last head come the next keys of the first one, in this chunk or in the next.
          const KeysAfter<S> after{members[last ? m : i + 1].keys, last ? piece.end : piece.begin};
          AddOwnPiece(members[i], heads, first + (i - m) * rows, schedule, piece, after, own_begin, ends[m],
                      scratch);
        }
      }
    }
    first += (next - m) * rows;
  }
  for (int64_t r = 0; r < all; ++r) Unravel(S(), width, scratch.gathered + r * width);
}

/// Leaves the rows of one member, which begin at row `first` of the scratch.
template <class T, class S>
HWY_INLINE void LeaveMember(const SplitMember<T, S>& m, const ForwardOutputs<T>& out, int64_t heads,
                            int64_t chunk, const Partials<T>& partials, int64_t first,
                            const SplitScratch<T>& scratch) {
  const Problem<T>& p = *m.problem;
  const int64_t width = SplitWidth(p);
  for (int64_t r = 0; r < heads * p.query_len; ++r) {
    const int64_t h = m.at.h + r / p.query_len, row = r % p.query_len;
    const T* gathered = scratch.gathered + (first + r) * width;
    if (partials.data)
      LeavePartial(p, scratch.states[first + r], gathered,
                   partials.At((m.at.b * p.query_heads + h) * p.query_len + row, chunk));
    else
      LeaveRow(p, out, m.at.b, h, row, scratch.states[first + r], gathered);
  }
}

/// The keys and the values of one head of an entry.
template <class T, class S>
HWY_INLINE SplitMember<T, S> MemberOf(const Problem<T>& p, const Operand<const S*>& keys,
                                      const Operand<const S*>& values, int64_t b, int64_t kv) {
  SplitMember<T, S> m{
      &p,
      {b, kv * (p.query_heads / p.kv_heads), kv, 0, p.query_len},
      {keys.data + b * keys.batch_stride + kv * keys.head_stride, keys.row_stride, {}},
      {values.data + b * values.batch_stride + kv * values.head_stride, values.row_stride, {}}};
  if (p.cached.runs) {
    m.keys.cached = KeyRuns<S>(p.cached, kv);
    m.values.cached = ValueRuns<S>(p.cached, kv);
  }
  return m;
}

/// Heads can only share a key that is read if they all see the same keys.
template <class T>
HWY_INLINE int64_t HeadsTogether(const Problem<T>& p) {
  return mask_reads_head(*p.mask) ? 1 : p.query_heads / p.kv_heads;
}

/// The rows that share what is read of a chunk. More of them would not fit the second-level cache beside it.
constexpr int64_t kMostSharing = 64;
/// The heads of keys that take turns in one unit of a cache. A page holds them one behind the other, so their
/// turns read a longer stretch of memory than one head has there. Beside a contiguous store, pages of 64 that
/// come from memory reached a speed of 1.00 with four heads. With one they reached 0.92 to 0.94, and with
/// eight 0.87 to 0.90.
constexpr int64_t kMostTurns = 4;

/// How many heads of keys take turns in a unit, where each of them alone is a unit of `rows` rows and there
/// are `units` of them. It changes no bits: every head keeps its pieces and their order. A cache with no more
/// runs than chunks gives each head one stretch of memory, and turns make these slower unless they are short
/// (docs/performance.md). Most short heads are one piece, and their turns share the schedule.
template <class S, class T>
HWY_INLINE int64_t HeadsInTurn(const Problem<T>& p, int64_t rows, int64_t units, int threads) {
  // Only these calls have scratch buffers for turns (MostRowsInTurn).
  if (!p.by_position || mask_reads_head(*p.mask)) return 1;
  if (!IsShort<S>(p) && p.cached.count <= ChunksOf(p, 1).count) return 1;
  // Loops for many rows begin at multiples of 16 rows alone (tiles/many_rows-inl.h).
  if (rows > 8 && rows % 16 != 0) return 1;
  int64_t heads = kMostTurns;
  // Four units a thread, so that several threads end together.
  while (heads > 1 && (p.kv_heads % heads != 0 || heads * rows > kMostSharing ||
                       (threads > 1 && units < 4 * heads * threads)))
    heads /= 2;
  return heads;
}
/// The most rows of a unit whose heads of keys have `rows` rows each.
template <class T>
HWY_INLINE int64_t MostRowsInTurn(const Problem<T>& p, int64_t rows) {
  return p.by_position ? HWY_MAX(rows, HWY_MIN(kMostTurns * rows, kMostSharing)) : rows;
}

/// One chunk of `turns` heads of keys from kv on. `next`: those that this thread probably computes next.
template <class T, class S>
HWY_NOINLINE void SplitUnit(const Problem<T>& p, const ForwardOutputs<T>& out, const Operand<const S*>& keys,
                            const Operand<const S*>& values, int64_t chunk, int64_t chunk_keys, int64_t b,
                            int64_t kv, int64_t turns, const HeadsOfEntry<T>& next,
                            const Partials<T>& partials, const SplitScratch<T>& scratch) {
  if (ShortHeads<T, S>(p, out, kv, turns, next, scratch)) return;
  const int64_t key_begin = chunk * chunk_keys, key_end = HWY_MIN(p.key_len, key_begin + chunk_keys);
  const int64_t heads = p.query_heads / p.kv_heads, together = HeadsTogether(p);
  // One after the other, heads waited for their first lines longer than they read the rest. One core read a
  // cache that comes from memory at 8 to 12 GB/s.
  if (kv + turns < p.kv_heads && IsShort<S>(p)) FetchMember(MemberOf(p, keys, values, b, kv + turns));
  SplitMember<T, S> members[kMostTurns];
  int64_t ends[kMostTurns];
  for (int64_t first = 0; first < heads; first += together) {
    for (int64_t n = 0; n < turns; ++n) {
      members[n] = MemberOf(p, keys, values, b, kv + n);
      members[n].at.h = (kv + n) * heads + first;
      ends[n] = key_end;
    }
    SplitBlock(members, turns, together, key_begin, key_begin, ends, scratch);
    for (int64_t n = 0; n < turns; ++n)
      LeaveMember(members[n], out, together, chunk, partials, n * together * p.query_len, scratch);
  }
}

template <class T>
HWY_NOINLINE size_t SplitForwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  carve.Take<T>(PartialElements(p, p.batch * p.kv_heads, GroupRows(p)));
  carve.Take<int64_t>(p.batch * p.kv_heads);
  for (int t = 0; t < threads; ++t) TakeSplitScratch(p, MostRowsInTurn(p, GroupRows(p)), p.key_len, carve);
  return carve.Used();
}

/// Writes the rows of the heads of keys [begin, end) of all entries, once their chunks are merged.
template <class T>
HWY_NOINLINE void LeaveMergedHeads(const Problem<T>& p, const ForwardOutputs<T>& out,
                                   const Partials<T>& partials, int64_t begin, int64_t end) {
  const int64_t rows = GroupRows(p);
  for (int64_t index = begin * rows; index < end * rows; ++index)
    LeaveMergedRow(p, partials, index, RowsInto(p, out));
}

template <class T, class S>
HWY_NOINLINE void SplitForward(const Problem<T>& p, const ForwardOutputs<T>& out,
                               const Operand<const S*>& keys, const Operand<const S*>& values,
                               Executor& executor, std::byte* memory) {
  Carve carve(memory), one(nullptr);
  const int64_t all_heads = p.batch * p.kv_heads, rows = GroupRows(p);
  const Chunks chunks = ChunksOf(p, all_heads);
  Partials<T> partials{nullptr, chunks.count, PartialWidth(p)};
  if (chunks.count > 1) partials.data = carve.Take<T>(PartialElements(p, all_heads, rows));
  const int threads = executor.thread_count();
  const int64_t turns = HeadsInTurn<S>(p, rows, all_heads * chunks.count, threads),
                groups = all_heads / turns;
  // Whoever computes the last chunk of a group of heads merges its chunks. Groups that are fewer than the
  // threads leave the merging of their rows to all of these.
  auto* left = carve.Take<int64_t>(groups);
  const bool merge_at_once = partials.data && groups >= threads;
  for (int64_t n = 0; n < groups; ++n) left[n] = chunks.count;
  std::byte* scratch = memory + carve.Used();
  TakeSplitScratch(p, turns * rows, p.key_len, one);
  executor.parallel_for(groups * chunks.count, [&](int64_t index, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    // The executor gives each thread a stretch of units. So one thread mostly computes all chunks of a group,
    // goes from chunk to chunk as rows are fetched ahead, and has the chunks in its caches for the merging.
    const int64_t chunk = index % chunks.count, group = index / chunks.count, head = group * turns;
    const int64_t kv = head % p.kv_heads;
    const HeadsOfEntry<T> next{kv + turns < p.kv_heads ? &p : nullptr, kv + turns};
    SplitUnit(p, out, keys, values, chunk, chunks.keys, head / p.kv_heads, kv, turns, next, partials,
              TakeSplitScratch(p, turns * rows, p.key_len, mine));
    if (merge_at_once && std::atomic_ref(left[group]).fetch_sub(1, std::memory_order_acq_rel) == 1)
      LeaveMergedHeads(p, out, partials, head, head + turns);
  });
  if (!merge_at_once) LeaveMergedRows(p, partials, executor, RowsInto(p, out));
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// The algorithm `split` for several entries of a cache (Together). A unit is a chunk and some heads of keys,
// for all entries that share the chunk.
#if defined(FOVEA_FLASH_SPLIT_TOGETHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SPLIT_TOGETHER_INL_H_
#undef FOVEA_FLASH_SPLIT_TOGETHER_INL_H_
#else
#define FOVEA_FLASH_SPLIT_TOGETHER_INL_H_
#endif

#include "kernels/flash/split-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The most rows of one head of keys of an entry.
template <class T>
HWY_INLINE int64_t LongestRows(const Together<T>& t) {
  int64_t most = 0;
  for (int64_t n = 0; n < t.count; ++n) most = HWY_MAX(most, GroupRows(*t.problems[n]));
  return most;
}
template <class T>
HWY_INLINE Partials<T> TakePartials(const Problem<T>& p, Carve& carve) {
  const Chunks chunks = ChunksOf(p, p.kv_heads);
  Partials<T> partials{nullptr, chunks.count, PartialWidth(p)};
  if (chunks.count > 1) partials.data = carve.Take<T>(PartialElements(p, p.kv_heads, GroupRows(p)));
  return partials;
}
/// The entry with the most keys.
template <class T>
HWY_INLINE const Problem<T>& LongestEntry(const Together<T>& t) {
  int64_t longest = 0;
  for (int64_t n = 1; n < t.count; ++n) {
    if (t.problems[n]->key_len > t.problems[longest]->key_len) longest = n;
  }
  return *t.problems[longest];
}

/// For `count` entries, none of which is larger than `largest`.
template <class T>
HWY_NOINLINE size_t SplitTogetherBytes(const Problem<T>& largest, int64_t count, int threads) {
  Carve carve(nullptr);
  carve.Take<Partials<T>>(count);
  for (int64_t n = 0; n < count; ++n) TakePartials(largest, carve);
  for (int n = 0; n < threads; ++n)
    TakeSplitScratch(largest, HWY_MAX(kMostSharing, GroupRows(largest)), largest.key_len, carve);
  return carve.Used();
}

/// One chunk and one head of keys of the entries that share it.
template <class T, class S>
HWY_NOINLINE void SplitSharedUnit(const Together<T>& t, const SharedChunk& shared, int64_t kv,
                                  const Partials<T>* partials, const SplitScratch<T>& scratch) {
  SplitMember<T, S> members[kMostSharing];
  int64_t ends[kMostSharing];
  const Problem<T>& p = *t.problems[shared.first];
  const int64_t heads = p.query_heads / p.kv_heads, together = HeadsTogether(p), keys = FixedChunkKeys(p),
                key_begin = shared.chunk * keys;
  const Operand<const S*> none{};
  for (int64_t first = 0; first < heads; first += together) {
    for (int64_t n = shared.first; n < shared.first + shared.count;) {
      int64_t count = 0, rows = 0;
      const int64_t begin = n;
      for (; n < shared.first + shared.count; ++n, ++count) {
        const Problem<T>& own = *t.problems[n];
        if (count > 0 && (count == kMostSharing || rows + together * own.query_len > kMostSharing)) break;
        members[count] = MemberOf(own, none, none, 0, kv);
        members[count].at.h = kv * heads + first;
        ends[count] = HWY_MIN(own.key_len, key_begin + keys);
        rows += together * own.query_len;
      }
      SplitBlock(members, count, together, key_begin, HWY_MIN(shared.end, ends[0]), ends, scratch);
      for (int64_t m = 0, row = 0; m < count; ++m) {
        LeaveMember(members[m], t.outputs[begin + m], together, shared.chunk, partials[begin + m], row,
                    scratch);
        row += together * members[m].at.rows;
      }
    }
  }
}

template <class T, class S>
HWY_NOINLINE void SplitTogether(const Together<T>& t, Executor& executor, std::byte* memory) {
  Carve carve(memory), one(nullptr);
  auto* partials = carve.Take<Partials<T>>(t.count);
  for (int64_t n = 0; n < t.count; ++n) partials[n] = TakePartials(*t.problems[n], carve);
  std::byte* scratch = memory + carve.Used();
  const Problem<T>& p = LongestEntry(t);
  const int64_t longest = LongestRows(t), rows = HWY_MAX(kMostSharing, longest), key_len = p.key_len,
                keys = FixedChunkKeys(p),
                turns = HeadsInTurn<S>(p, longest, t.chunk_count * p.kv_heads, executor.thread_count()),
                groups = p.kv_heads / turns;
  TakeSplitScratch(p, rows, key_len, one);
  executor.parallel_for(t.chunk_count * groups, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    const SplitScratch<T> own = TakeSplitScratch(p, rows, key_len, mine);
    const SharedChunk& shared = t.chunks[unit / groups];
    const int64_t kv = unit % groups * turns, n = shared.first, after = (unit + 1) / groups;
    if (shared.count == 1) {
      const HeadsOfEntry<T> next{after < t.chunk_count ? t.problems[t.chunks[after].first] : nullptr,
                                 (unit + 1) % groups * turns};
      return SplitUnit<T, S>(*t.problems[n], t.outputs[n], {}, {}, shared.chunk, keys, 0, kv, turns, next,
                             partials[n], own);
    }
    for (int64_t i = 0; i < turns; ++i) SplitSharedUnit<T, S>(t, shared, kv + i, partials, own);
  });
  bool merges = false;
  for (int64_t n = 0; n < t.count; ++n) merges |= partials[n].data != nullptr;
  if (!merges) return;
  executor.parallel_for(t.count * p.query_heads, [&](int64_t unit, int) {
    const int64_t n = unit / p.query_heads, h = unit % p.query_heads;
    const Problem<T>& own = *t.problems[n];
    if (!partials[n].data) return;
    for (int64_t row = 0; row < own.query_len; ++row) {
      const int64_t index = h * own.query_len + row;
      LeaveMergedRow(own, partials[n], index, RowsInto(own, t.outputs[n]));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

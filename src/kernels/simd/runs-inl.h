// Rows of keys or of values, side by side or in several places as in a cache (fovea/cache/view.h), and how
// they are fetched ahead of their use.
#if defined(FOVEA_SIMD_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_RUNS_INL_H_
#undef FOVEA_SIMD_RUNS_INL_H_
#else
#define FOVEA_SIMD_RUNS_INL_H_
#endif

#include "kernels/simd/cached_rows.h"
#include "kernels/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The first run that ends behind position `begin`; runs.count if there is none. Pages are of equal length,
/// so the right one is where the length of the first puts it. The search jumped to places that no branch
/// predictor knows, three times a piece.
HWY_INLINE int64_t FirstRunBehind(const CachedRows& rows, int64_t begin) {
  if (rows.count > 1 && begin >= rows.runs[0].position && rows.runs[0].count > 0) {
    const int64_t guess = (begin - rows.runs[0].position) / rows.runs[0].count;
    if (guess < rows.count && rows.runs[guess].position <= begin &&
        begin < rows.runs[guess].position + rows.runs[guess].count)
      return guess;
  }
  int64_t low = 0, high = rows.count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (rows.runs[middle].position + rows.runs[middle].count <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// The first row of one head in a run.
template <class S>
HWY_INLINE const S* FirstRow(const KeyValueRun& run, bool values, int64_t head) {
  return values ? reinterpret_cast<const S*>(run.value) + head * run.value_head_stride
                : reinterpret_cast<const S*>(run.key) + head * run.key_head_stride;
}

/// Rows of one head that follow a stretch: `rest_count` ones of its run, the runs behind it, and what `then`
/// has behind those.
template <class S>
struct RunsBehind {
  int64_t rest_count = 0;
  const KeyValueRun *run = nullptr, *end = nullptr;
  int64_t head = 0;
  bool values = false;
  const RunsBehind* then = nullptr;
  /// The first row of the next run, which is passed over; null if there is none.
  HWY_INLINE const S* Take() {
    if (run == end && then) *this = RunsBehind(*then);
    if (run == end) return nullptr;
    return FirstRow<S>(*run++, values, head);
  }
};

/// The keys, or the values, of one head of a cache.
template <class S>
struct HeadRuns {
  const CachedRows* rows = nullptr;
  bool values = false;
  int64_t head = 0;
  int64_t stride = 0;  ///< from row to row, in elements
  /// If not null, what is fetched from run `stop` on in place of the runs there (FetchThen).
  const RunsBehind<S>* then = nullptr;
  const KeyValueRun* stop = nullptr;

  HWY_INLINE const S* First(int64_t run) const { return FirstRow<S>(rows->runs[run], values, head); }
  /// body(begin, end, first, behind) for each stretch of the positions [begin, end) that lies side by side:
  /// `first` is its first row, `behind` has the rows that follow. Positions that are not kept are passed
  /// over.
  template <class Body>
  HWY_INLINE void ForStretches(int64_t begin, int64_t end, Body&& body) const {
    for (int64_t n = FirstRunBehind(*rows, begin); n < rows->count; ++n) {
      const KeyValueRun& run = rows->runs[n];
      if (run.position >= end) return;
      const int64_t from = HWY_MAX(begin, run.position), to = HWY_MIN(end, run.position + run.count);
      const S* first = First(n) + (from - run.position) * stride;
      body(from, to, first,
           RunsBehind<S>{run.position + run.count - to, &run + 1, then ? stop : rows->runs + rows->count,
                         head, values, then});
    }
  }
};
/// Rows of `rows` before position `end` are read, and then those of `next` from position `begin` on: fetches
/// go the same way. Nothing changes where a run lies on both sides of a position. `behind` outlives `rows`.
template <class S>
HWY_INLINE void FetchThen(HeadRuns<S>& rows, int64_t end, const HeadRuns<S>& next, int64_t begin,
                          RunsBehind<S>& behind) {
  if (rows.stride != next.stride) return;  // rows are fetched by one stride
  const int64_t stop = FirstRunBehind(*rows.rows, end), first = FirstRunBehind(*next.rows, begin);
  if (stop < rows.rows->count && rows.rows->runs[stop].position < end) return;
  if (first == next.rows->count || next.rows->runs[first].position < begin) return;
  behind = {0, next.rows->runs + first, next.rows->runs + next.rows->count, next.head, next.values};
  rows.then = &behind;
  rows.stop = rows.rows->runs + stop;
}

template <class S>
HWY_INLINE HeadRuns<S> KeyRuns(const CachedRows& rows, int64_t head) {
  return {&rows, false, head, rows.key_row_stride};
}
template <class S>
HWY_INLINE HeadRuns<S> ValueRuns(const CachedRows& rows, int64_t head) {
  return {&rows, true, head, rows.value_row_stride};
}

/// The keys or values of one head that lie side by side, in the type S that they are stored in.
template <class S>
struct StoredRows {
  const S* data;
  int64_t stride;
  /// Of a cache: how many rows lie side by side, and where the rows behind them lie.
  int64_t count = INT64_MAX;
  RunsBehind<S> behind = {};
  HWY_INLINE const S* at(int64_t j) const { return data + j * stride; }
};
template <class S>
HWY_INLINE void FetchRow(const S* row, int64_t dim) {
  constexpr int64_t line = 64 / sizeof(S);
  int64_t i = 0;
  for (; i + 3 * line < dim; i += 4 * line) FetchLines<4>(row + i);
  for (; i < dim; i += line) FetchLine(row + i);
}

/// How far ahead of their use rows are fetched (FetchLine). The processor's own prefetchers follow one stream
/// well while little is computed between its lines, and they stop at every page. With 32 products for each
/// key, one Zen 5 core read 21 GB/s of 38 without this. On a Zen 4, 4 KiB made decoding 1.2 times as slow,
/// and 16 KiB changed nothing.
constexpr int64_t kAheadBytes = 8192;
template <class S>
HWY_INLINE int64_t RowsAhead(int64_t dim, int64_t bytes = kAheadBytes) {
  return bytes / HWY_MAX(dim * static_cast<int64_t>(sizeof(S)), 1);
}

/// The rows that are fetched while those of a stretch are read, `ahead` rows before them. In a cache they may
/// lie in the runs behind the stretch. It goes from row to row: finding each one among the runs took five
/// times as long as reading rows of 24 elements.
template <class S>
class RowsToFetch {
 public:
  HWY_INLINE RowsToFetch(const StoredRows<S>& rows, int64_t ahead, bool fetch)
      : behind_(rows.behind), row_(fetch ? rows.data : nullptr), stride_(rows.stride), left_(rows.count) {
    if (left_ != INT64_MAX) left_ += behind_.rest_count;
    while (row_ && ahead >= left_) {
      ahead -= left_;
      NextRun();
    }
    if (!row_) return;
    row_ += ahead * stride_;
    left_ -= ahead;
  }
  /// Fetches the next row, if there is one.
  HWY_INLINE void Next(int64_t dim) {
    if (!row_) return;
    FetchRow(row_, dim);
    Step();
  }
  /// The same for a row of kLines lines.
  template <int kLines>
  HWY_INLINE void NextLines() {
    if (!row_) return;
    FetchLines<kLines>(row_);
    Step();
  }

 private:
  HWY_INLINE void Step() {
    row_ += stride_;
    if (--left_ == 0) NextRun();
  }
  HWY_INLINE void NextRun() {
    row_ = behind_.Take();
    if (row_) left_ = behind_.run[-1].count;
  }

  RunsBehind<S> behind_;
  const S* row_;
  int64_t stride_, left_;  ///< rows of this run, row_ included
};

/// All keys, or all values, of one head: side by side in an operand, or in the runs of a cache.
template <class S>
struct HeadRows {
  const S* data;
  int64_t stride;
  HeadRuns<S> cached;  ///< in place of these if rows is not null
  /// body(begin, end, rows) for the stretches of [begin, end) that lie side by side; rows.at(0) is row
  /// `begin`.
  template <class Body>
  HWY_INLINE void ForStretches(int64_t begin, int64_t end, Body&& body) const {
    if (!cached.rows) return body(begin, end, StoredRows<S>{data + begin * stride, stride});
    cached.ForStretches(begin, end,
                        [&](int64_t from, int64_t to, const S* first, const RunsBehind<S>& behind) HWY_ATTR {
                          body(from, to, StoredRows<S>{first, cached.stride, to - from, behind});
                        });
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

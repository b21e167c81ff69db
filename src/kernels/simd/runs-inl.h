// Rows of keys or of values that lie in several places: what kernels read of a cache (fovea/cache/view.h).
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

/// The first run that ends behind position `begin`; runs.count if there is none.
HWY_INLINE int64_t FirstRunBehind(const CachedRows& rows, int64_t begin) {
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

/// Rows of one head that follow a stretch: `rest_count` ones of its run, and the runs behind it.
template <class S>
struct RunsBehind {
  int64_t rest_count = 0;
  const KeyValueRun *run = nullptr, *end = nullptr;
  int64_t offset = 0;
  bool values = false;
  /// The first row of the next run, which is passed over; null if there is none.
  HWY_INLINE const S* Take() {
    if (run == end) return nullptr;
    const KeyValueRun& taken = *run++;
    return reinterpret_cast<const S*>(values ? taken.value : taken.key) + offset;
  }
};

/// The keys, or the values, of one head of a cache.
template <class S>
struct HeadRuns {
  const CachedRows* rows = nullptr;
  bool values = false;
  int64_t offset = 0;  ///< of the head, in elements
  int64_t stride = 0;  ///< from row to row, in elements

  HWY_INLINE const S* First(int64_t run) const {
    const KeyValueRun& at = rows->runs[run];
    return reinterpret_cast<const S*>(values ? at.value : at.key) + offset;
  }
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
           RunsBehind<S>{run.position + run.count - to, &run + 1, rows->runs + rows->count, offset, values});
    }
  }
};

template <class S>
HWY_INLINE HeadRuns<S> KeyRuns(const CachedRows& rows, int64_t head) {
  return {&rows, false, head * rows.key_head_stride, rows.key_row_stride};
}
template <class S>
HWY_INLINE HeadRuns<S> ValueRuns(const CachedRows& rows, int64_t head) {
  return {&rows, true, head * rows.value_head_stride, rows.value_row_stride};
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

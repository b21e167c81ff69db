// The keys of one piece that each row of a block sees. At the edges of a mask a row sees few of them, so the
// kernels work on strips of 6 rows, and only on the keys that a strip sees.
#if defined(FOVEA_FLASH_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_STRIPS_INL_H_
#undef FOVEA_FLASH_STRIPS_INL_H_
#else
#define FOVEA_FLASH_STRIPS_INL_H_
#endif

#include "kernels/flash/online_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Rows, or keys, of a strip: the rows of a register block.
constexpr int64_t kStrip = 6;

/// Keys [begin, end) of a piece, counted from the first key of the piece.
struct KeyRange {
  int64_t begin = 0, end = 0;
};
HWY_INLINE KeyRange Hull(const KeyRange* ranges, int64_t count) {
  KeyRange hull = ranges[0];
  for (int64_t n = 1; n < count; ++n) {
    if (ranges[n].begin == ranges[n].end) continue;
    if (hull.begin == hull.end) hull = ranges[n];
    hull = {HWY_MIN(hull.begin, ranges[n].begin), HWY_MAX(hull.end, ranges[n].end)};
  }
  return hull;
}

/// ranges[r] = the smallest range of the piece's keys that holds all keys that row r sees.
template <class T>
HWY_INLINE void RangesOf(const BlockSchedule& schedule, const Piece& piece, int64_t rows, KeyRange* ranges) {
  for (int64_t r = 0; r < rows; ++r) {
    ranges[r] = {0, piece.end - piece.begin};
    if (piece.full) continue;
    const SpanList spans = schedule.row(r);
    int64_t first = 0, last = spans.count;
    while (first < last && spans.data[first].end <= piece.begin) ++first;
    while (last > first && spans.data[last - 1].begin >= piece.end) --last;
    ranges[r] = {};
    if (first < last)
      ranges[r] = {HWY_MAX(spans.data[first].begin, piece.begin) - piece.begin,
                   HWY_MIN(spans.data[last - 1].end, piece.end) - piece.begin};
  }
}

/// body(first row, rows, hull) for each strip of rows that sees some key; `hull` is the range that holds the
/// keys of all its rows. If the piece is full, all rows are one strip.
template <class Body>
HWY_INLINE void ForStrips(const Piece& piece, int64_t rows, const KeyRange* ranges, Body&& body) {
  if (piece.full) return body(int64_t{0}, rows, KeyRange{0, piece.end - piece.begin});
  for (int64_t r = 0; r < rows; r += kStrip) {
    const int64_t count = HWY_MIN(kStrip, rows - r);
    const KeyRange hull = Hull(ranges + r, count);
    if (hull.begin < hull.end) body(r, count, hull);
  }
}

/// body(first key, keys, first row, rows) for each strip of keys that some row sees. The rows are those from
/// the first to the last row that sees one of these keys. If the piece is full, all keys are one strip.
template <class Body>
HWY_INLINE void ForKeyStrips(const Piece& piece, int64_t rows, const KeyRange* ranges, Body&& body) {
  const int64_t count = piece.end - piece.begin;
  if (piece.full) return body(int64_t{0}, count, int64_t{0}, rows);
  for (int64_t key = 0; key < count; key += kStrip) {
    const int64_t keys = HWY_MIN(kStrip, count - key);
    int64_t first = rows, last = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (ranges[r].begin >= key + keys || ranges[r].end <= key) continue;
      if (first == rows) first = r;
      last = r + 1;
    }
    if (first < last) body(key, keys, first, last - first);
  }
}

/// The range, widened to whole vectors, which are counted from the first key of the piece.
template <class T>
HWY_INLINE KeyRange WholeVectors(const KeyRange& range) {
  const int64_t lanes = Padded<T>(1);
  return {range.begin / lanes * lanes, Padded<T>(range.end)};
}

/// Sets a row of the piece's scores to 0 outside its range, widened to whole vectors. Returns the part
/// inside: where it begins, and how far scores are valid.
template <class T>
HWY_INLINE KeyRange SeenPart(const KeyRange& range, int64_t count, T* row) {
  if (range.begin == range.end) {
    Fill(T{0}, Padded<T>(count), row);
    return {};
  }
  const KeyRange whole = WholeVectors<T>(range);
  Fill(T{0}, whole.begin, row);
  Fill(T{0}, Padded<T>(count) - whole.end, row + whole.end);
  return {whole.begin, HWY_MIN(whole.end, count)};
}

/// body(begin, end) for every run of keys of the piece, inside `hull`, that some row sees.
template <class Body>
HWY_INLINE void ForRuns(const Piece& piece, const SpanList& visible, const KeyRange& hull, Body&& body) {
  if (piece.full) return body(piece.begin, piece.end);
  for (int64_t n = 0; n < visible.count; ++n) {
    const int64_t begin = HWY_MAX(visible.data[n].begin, piece.begin + hull.begin),
                  end = HWY_MIN(visible.data[n].end, piece.begin + hull.end);
    if (begin < end) body(begin, end);
  }
}

template <class Body>
HWY_INLINE void ForRuns(const Piece& piece, const SpanList& visible, Body&& body) {
  ForRuns(piece, visible, {0, piece.end - piece.begin}, body);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

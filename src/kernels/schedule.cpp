#include "kernels/schedule.h"

#include <algorithm>

namespace fovea::kernels {

void BlockSchedule::build(const Mask& mask, const QueryBlock& block, std::int64_t tile, std::int64_t key_begin, std::int64_t key_end) {
  pieces_.clear();
  const BlockSpans spans = mask.node().spans(block);
  bool partial = false;
  for (const KeySpan& span : spans.some) {
    const std::int64_t end = std::min(span.end, key_end);
    for (std::int64_t begin = std::max(span.begin, key_begin); begin < end;) {
      const std::int64_t stop = std::min(end, (begin / tile + 1) * tile);
      const bool full = classify(spans, begin, stop) == TileClass::full;
      pieces_.push_back({begin, stop, full});
      partial = partial || !full;
      begin = stop;
    }
  }
  if (!partial) {
    visible_ = spans.some;
    return;
  }
  const auto count = static_cast<std::size_t>(block.query_end - block.query_begin);
  rows_.resize(count);
  visible_.clear();
  for (std::size_t r = 0; r < count; ++r) {
    QueryBlock row = block;
    row.query_begin = block.query_begin + static_cast<std::int64_t>(r);
    row.query_end = row.query_begin + 1;
    rows_[r] = mask.node().spans(row).some;
    visible_ = unite(visible_, rows_[r]);
  }
}

}  // namespace fovea::kernels

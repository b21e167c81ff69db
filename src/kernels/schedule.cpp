#include "kernels/schedule.h"

#include <algorithm>

#include "fovea/core/cancellation.h"

namespace fovea::kernels {

void BlockSchedule::build(const Mask& mask, const QueryBlock& block, std::int64_t tile,
                          std::int64_t key_begin, std::int64_t key_end, Pieces pieces) {
  throw_if_cancelled();
  pieces_.clear();
  const BlockSpans spans = mask.node().spans(block);
  bool partial = false;
  for (const KeySpan& span : spans.some) {
    const std::int64_t end = std::min(span.end, key_end);
    std::int64_t begin = std::max(span.begin, key_begin);
    // A tile that the span before it has begun is there already.
    if (pieces == Pieces::tiles)
      begin = std::max({begin / tile * tile, key_begin, pieces_.empty() ? 0 : pieces_.back().end});
    while (begin < end) {
      const std::int64_t stop = std::min(pieces == Pieces::tiles ? key_end : end, (begin / tile + 1) * tile);
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
  if (const std::optional<KeyBand> band = mask.node().band(block)) return build_rows(*band, block);
  for (std::size_t r = 0; r < count; ++r) {
    QueryBlock row = block;
    row.query_begin = block.query_begin + static_cast<std::int64_t>(r);
    row.query_end = row.query_begin + 1;
    rows_[r] = mask.node().spans(row).some;
    visible_ = unite(visible_, rows_[r]);
  }
}

void BlockSchedule::build_rows(const KeyBand& band, const QueryBlock& block) {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const std::int64_t query = block.query_begin + static_cast<std::int64_t>(r);
    const KeySpan span{std::max(query + band.first, band.begin), std::min(query + band.last, band.end)};
    rows_[r].clear();
    if (span.begin >= span.end) continue;
    rows_[r].push_back(span);
    if (!visible_.empty() && span.begin <= visible_.back().end)
      visible_.back().end = std::max(visible_.back().end, span.end);
    else
      visible_.push_back(span);
  }
}

// A cancelled call stops here, within a unit of work, because every kernel asks for its pieces one by one. A
// unit is long: a block of queries against a million keys takes half a second, a unit of backward more.
const Piece* BlockSchedule::pieces() const {
  throw_if_cancelled();
  return pieces_.data();
}
std::int64_t BlockSchedule::piece_count() const {
  return static_cast<std::int64_t>(pieces_.size());
}
SpanList BlockSchedule::row(std::int64_t r) const {
  const KeySpans& spans = rows_[static_cast<std::size_t>(r)];
  return {spans.data(), static_cast<std::int64_t>(spans.size())};
}
SpanList BlockSchedule::visible() const {
  return {visible_.data(), static_cast<std::int64_t>(visible_.size())};
}

BlockSchedule& thread_schedule() {
  thread_local BlockSchedule schedule;
  return schedule;
}

bool mask_reads_head(const Mask& mask) {
  return mask.node().by_head();
}

std::int64_t weight_slot(std::span<const std::int64_t> heads, std::int64_t head, std::int64_t from) {
  if (heads.empty()) return from == 0 ? head : -1;
  for (auto slot = static_cast<std::size_t>(from); slot < heads.size(); ++slot) {
    if (heads[slot] == head) return static_cast<std::int64_t>(slot);
  }
  return -1;
}

std::int64_t list_size(std::span<const std::int64_t> list) {
  return static_cast<std::int64_t>(list.size());
}
std::int64_t list_at(std::span<const std::int64_t> list, std::int64_t n) {
  return list[static_cast<std::size_t>(n)];
}

}  // namespace fovea::kernels

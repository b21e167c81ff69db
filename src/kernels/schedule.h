// What the mask leaves to do for one block of queries, as plain arrays: made here, outside the per-ISA code, so that no standard template is compiled with
// instructions that the CPU may lack.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention/mask.h"

namespace fovea::kernels {

/// Keys [begin, end), inside one tile. `full`: every query of the block sees all of them.
struct Piece {
  std::int64_t begin = 0, end = 0;
  bool full = false;
};

/// Spans of one row, or runs of keys.
struct SpanList {
  const KeySpan* data = nullptr;
  std::int64_t count = 0;
};

class BlockSchedule {
 public:
  /// Rows are `row_begin`.. of the call; positions add query_offset. Tiles are [n·tile, (n+1)·tile). Keys outside [key_begin, key_end) are left out.
  void build(const Mask& mask, const QueryBlock& block, std::int64_t tile, std::int64_t key_begin, std::int64_t key_end);

  const Piece* pieces() const { return pieces_.data(); }
  std::int64_t piece_count() const { return static_cast<std::int64_t>(pieces_.size()); }
  /// Exact; only where some piece is partial.
  SpanList row(std::int64_t r) const {
    const KeySpans& spans = rows_[static_cast<std::size_t>(r)];
    return {spans.data(), static_cast<std::int64_t>(spans.size())};
  }
  /// Keys that at least one query of the block sees, exactly: a product must not touch the others, which may hold NaN.
  SpanList visible() const { return {visible_.data(), static_cast<std::int64_t>(visible_.size())}; }

 private:
  std::vector<Piece> pieces_;
  std::vector<KeySpans> rows_;
  KeySpans visible_;
};

}  // namespace fovea::kernels

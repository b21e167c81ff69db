// What the mask leaves to do for one block of queries, as plain arrays: made here, outside the per-ISA code,
// so that no standard template is compiled with instructions that the CPU may lack.
#pragma once

#include <cstdint>
#include <span>
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
  /// Rows are `row_begin`.. of the call; `block` has their positions. Tiles are [n·tile, (n+1)·tile). Keys
  /// outside [key_begin, key_end) are left out.
  /// `pieces`: those of Pieces::tiles begin and end where tiles do, so that they are the same whatever block a
  /// query is in.
  enum class Pieces : std::uint8_t { seen, tiles };
  void build(const Mask& mask, const QueryBlock& block, std::int64_t tile, std::int64_t key_begin,
             std::int64_t key_end, Pieces pieces = Pieces::seen);

  // Defined in the .cpp, like everything here that the per-ISA code calls.
  const Piece* pieces() const;
  std::int64_t piece_count() const;
  /// Exact; only where some piece is partial.
  SpanList row(std::int64_t r) const;
  /// Keys that at least one query of the block sees, exactly: a product must not touch the others, which may
  /// hold NaN.
  SpanList visible() const;

 private:
  void build_rows(const KeyBand& band, const QueryBlock& block);

  std::vector<Piece> pieces_;
  std::vector<KeySpans> rows_;
  KeySpans visible_;
};

/// This thread's schedule: its arrays grow to the largest block met and stay.
BlockSchedule& thread_schedule();

/// to[j - begin] = what dropout multiplies the weight of key j by, for keys [begin, begin + count).
template <class T>
void dropout_factors(double rate, std::uint64_t seed, const Site& first, std::int64_t count, T* to);

/// Do heads of one block see different keys?
bool mask_reads_head(const Mask& mask);

/// The first slot of `heads` at or after `from` that asks for head `head`, -1 if none. No heads means all of
/// them.
std::int64_t weight_slot(std::span<const std::int64_t> heads, std::int64_t head, std::int64_t from);
/// A span's own members are templates, which the per-ISA code must not compile.
std::int64_t list_size(std::span<const std::int64_t> list);
std::int64_t list_at(std::span<const std::int64_t> list, std::int64_t n);

}  // namespace fovea::kernels

// The work that the mask leaves for one block of queries, as plain arrays. The arrays are made here and not
// in the code of one instruction set, so that no standard template is compiled with instructions that the CPU
// may lack.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention/mask.h"
#include "fovea/attention/mask_definition.h"

namespace fovea::kernels {

/// Keys [begin, end), which lie inside one tile. `full`: every query of the block sees all of them.
struct Piece {
  std::int64_t begin = 0, end = 0;
  bool full = false;
};

/// The spans of keys that one row sees, or runs of keys.
struct SpanList {
  const KeySpan* data = nullptr;
  std::int64_t count = 0;
};

class BlockSchedule {
 public:
  /// `block` has the positions of its queries. Tile n holds keys [n·tile, (n+1)·tile). Keys outside
  /// [key_begin, key_end) are left out.
  /// Pieces of Pieces::tiles begin and end where tiles do, so that they do not depend on the block that a
  /// query is in. Pieces of Pieces::seen leave out keys at both ends that no query of the block sees.
  enum class Pieces : std::uint8_t { seen, tiles };
  void build(const Mask& mask, const QueryBlock& block, std::int64_t tile, std::int64_t key_begin,
             std::int64_t key_end, Pieces pieces = Pieces::seen);

  // Defined in the .cpp, like everything here that code of one instruction set calls.
  const Piece* pieces() const;
  std::int64_t piece_count() const;
  /// The keys that row r of the block sees, exactly. Only filled where some piece is not full.
  SpanList row(std::int64_t r) const;
  /// The keys that at least one query of the block sees, exactly. A product must not touch the others: their
  /// values may be NaN.
  SpanList visible() const;

 private:
  void build_rows(const KeyBand& band, const QueryBlock& block);

  std::vector<Piece> pieces_;
  std::vector<KeySpans> rows_;
  KeySpans visible_;
};

/// This thread's schedule. Its arrays keep the size of the largest block so far.
BlockSchedule& thread_schedule();

/// Whether the heads of one block may see different keys.
bool mask_reads_head(const Mask& mask);

/// The first slot of `heads`, from slot `from` on, that names head `head`; -1 if none does. An empty list
/// names every head once.
std::int64_t weight_slot(std::span<const std::int64_t> heads, std::int64_t head, std::int64_t from);
/// The members of a span, for code of one instruction set: a span's own are templates, which it must not
/// compile.
std::int64_t list_size(std::span<const std::int64_t> list);
std::int64_t list_at(std::span<const std::int64_t> list, std::int64_t n);

}  // namespace fovea::kernels

// The rows of one sequence in the layers that share a store: which block and slot holds each position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/blocks.h"

namespace fovea::cache {

/// Rows to be read or written: `count` slots side by side from `slot` on, in memory of this layout.
struct Slots {
  const BlockLayout* layout = nullptr;
  std::byte* block = nullptr;
  std::int64_t slot = 0, count = 0;

  /// The first key, or value of its own, of a head of the layer at `index`.
  std::byte* row(std::size_t index, std::int64_t head, bool value) const {
    const BlockLayout::Layer& layer = layout->layers[index];
    return block + head * layer.head_bytes(layout->rows) +
           (value ? layer.value_offset + slot * layer.value_bytes()
                  : layer.key_offset + slot * layer.key_bytes());
  }
};

/// Abstract over stores. Positions below `length`, which the caller keeps, hold rows; those behind are room.
class Rows {
 public:
  virtual ~Rows() = default;
  /// Shares all blocks with this; who writes first copies.
  virtual std::unique_ptr<Rows> fork() const = 0;
  /// Bytes of the blocks that make_room(length, rows) takes.
  virtual std::int64_t bytes_for(std::int64_t length, std::int64_t rows) const = 0;
  /// Makes the slots of positions [length, length + rows) writable and this sequence's own. If it throws
  /// (CacheFull, bad_alloc), nothing has changed.
  virtual void make_room(std::int64_t length, std::int64_t rows) = 0;
  /// A Ring alone, before rows up to `end` are written. Makes the block this sequence's own if they take the
  /// place of rows that others hold: a fork, a view or a checkpoint made since make_room. If it throws,
  /// nothing has changed.
  virtual void keep_overwritten(std::int64_t) {}
  /// Slots from `position` on, at most `count`; after make_room.
  virtual Slots slots(std::int64_t position, std::int64_t count) = 0;
  /// Rows [0, length) of the layer at `index` in the layout.
  virtual void runs(std::size_t index, std::int64_t length, std::vector<KeyValueRun>& to) const = 0;
  /// What keeps the blocks of runs alive.
  virtual std::shared_ptr<const void> owner() const = 0;
  /// Whether truncate(length) leaves every row that a query at position `length` may see.
  virtual bool can_truncate(std::int64_t length) const = 0;
  virtual void truncate(std::int64_t length) = 0;
  virtual void checkpoint(std::int64_t length) = 0;
  /// Pages alone: gives back full pages inside `range`, which ends at the length or before. If it throws
  /// (bad_alloc), nothing has changed.
  virtual void drop(PositionRange) {}
  virtual bool lacks_pages() const { return false; }
  /// Of positions below `length` the ones that are kept: [0, first) and [begin, length).
  struct Kept {
    std::int64_t first = 0, begin = 0;
  };
  virtual Kept kept(std::int64_t) const { return {}; }
  /// A Ring or LastRow alone: after make_room, rows behind the sinks and before `begin` are not there.
  virtual void keep_from(std::int64_t) {}
  /// A LastRow alone: where the next row is written, and the commit that makes it the one of `length` tokens.
  virtual Slots next_row() { return {}; }
  virtual void commit(std::int64_t) {}
  /// A Ring or LastRow alone: the rows of each checkpoint, by ascending length, as rows of their own.
  struct Saved {
    std::int64_t length = 0;
    std::unique_ptr<Rows> rows;
  };
  virtual std::vector<Saved> checkpoints() const { return {}; }
  /// Makes those rows a checkpoint behind the ones that are there.
  virtual void add_checkpoint(Saved) {}
  /// Pages alone: appends a full page whose rows are at `data` in a mapped file.
  virtual void adopt(std::byte*, const std::shared_ptr<const void>&) {}
  /// Pages alone: lets page `number`, which is full, be found by its ids; `root` is the chain before page 0.
  virtual void make_known(std::int64_t, std::uint64_t, std::span<const std::int32_t>) {}
  /// Pages alone: takes that back, for rows that are not committed after all.
  virtual void forget(std::int64_t) noexcept {}
  /// Pages alone: appends the page that has these ids behind the last one, if there is one.
  virtual bool take_known(std::uint64_t, std::span<const std::int32_t>) { return false; }
  /// Of a block; that of the memory that Slots lie in may have more rows.
  const BlockLayout& layout() const { return *layout_; }
  /// Calls visit(block, own) for every block; `own`: no other sequence and no view holds it.
  virtual void for_blocks(const std::function<void(const Block&, bool)>& visit) const = 0;

 protected:
  Rows(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout)
      : pool_(std::move(pool)), layout_(std::move(layout)) {}
  Rows(const Rows&) = default;
  std::shared_ptr<Pool> pool_;
  std::shared_ptr<const BlockLayout> layout_;
};

std::unique_ptr<Rows> start_paged(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout);
/// Of Contiguous and Ring: one block a sequence.
std::unique_ptr<Rows> start_buffer(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout,
                                   const CacheStore& store);
/// Of any store.
std::unique_ptr<Rows> start_rows(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout,
                                 const CacheStore& store);

}  // namespace fovea::cache

// Rows in one block: Contiguous, where position p is slot p, and Ring, where the slots behind the sinks are
// used again.
#include <algorithm>
#include <utility>

#include "cache/block_rows.h"

namespace fovea::cache {
namespace {

struct BufferPlace {
  std::int64_t lowest = 0;  // rows in [sinks, lowest) are not there any more
};

class BufferRows final : public BlockRows<BufferRows, BufferPlace> {
 public:
  BufferRows(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout, const CacheStore& store)
      : BlockRows(std::move(pool), std::move(layout)) {
    if (const auto* ring = std::get_if<Ring>(&store)) {
      sinks_ = ring->sinks;
      window_ = ring->window;
      turn_ = ring->window + ring->slack;
    }
  }

  std::int64_t bytes_for(std::int64_t length, std::int64_t rows) const override {
    if (has_room(length, rows)) return 0;
    const std::int64_t capacity = capacity_for(length + rows);
    return capacity == layout_->rows ? layout_->bytes : BlockLayout::of(layout_->layers, capacity).bytes;
  }

  void make_room(std::int64_t length, std::int64_t rows) override {
    if (!has_room(length, rows)) {
      std::shared_ptr<const BlockLayout> layout = layout_;
      if (const std::int64_t capacity = capacity_for(length + rows); capacity != layout->rows)
        layout = std::make_shared<const BlockLayout>(BlockLayout::of(layout_->layers, capacity));
      Ref<Block> block = pool_->take(layout);
      if (block_) layout_->copy_rows(block_->data, 0, used_slots(length), *layout, block->data, 0);
      block_ = std::move(block);
      layout_ = std::move(layout);
    }
  }

  void keep_overwritten(std::int64_t end) override {
    if (lowest_after(end) <= std::max(sinks_, place_.lowest) || block_.unique()) return;
    Ref<Block> block = pool_->take(layout_);
    layout_->copy_rows(block_->data, 0, layout_->rows, *layout_, block->data, 0);
    block_ = std::move(block);
  }

  // Rows that are written take the place of the oldest ones. Rows that are only reserved take nobody's.
  Slots slots(std::int64_t position, std::int64_t count) override {
    const std::int64_t slot = slot_of(position);
    const std::int64_t end = turn_ > 0 && position < sinks_ ? sinks_ : layout_->rows;
    count = std::min(count, end - slot);
    place_.lowest = std::max(place_.lowest, lowest_after(position + count));
    return {layout_.get(), block_->data, slot, count};
  }

  void runs(std::size_t index, std::int64_t length, std::vector<KeyValueRun>& to) const override {
    if (length == 0) return;
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      if (begin < end) to.push_back(layout_->run(index, block_->data, slot_of(begin), begin, end - begin));
    };
    if (turn_ == 0) return add(0, length);
    add(0, std::min(sinks_, length));
    const std::int64_t begin = std::max(sinks_, place_.lowest);
    // Where the ring begins anew between `begin` and `length`.
    const std::int64_t wrap = begin + (turn_ - (begin - sinks_) % turn_);
    add(begin, std::min(wrap, length));
    add(std::max(wrap, begin), length);
  }

  bool can_truncate(std::int64_t length) const override {
    return turn_ == 0 || length <= sinks_ || reaches(place_.lowest, length) || has_checkpoint(length);
  }
  void truncate(std::int64_t length) override {
    if (turn_ == 0) return;
    drop_checkpoints_behind(length);
    if (length <= sinks_) place_.lowest = 0;  // the ring is empty
    if (reaches(place_.lowest, length)) return;
    restore_last_checkpoint();
  }
  void checkpoint(std::int64_t length) override {
    if (turn_ > 0 && length > 0) keep_checkpoint(length);
  }
  Kept kept(std::int64_t length) const override {
    if (turn_ == 0) return {};
    if (length <= sinks_) return {.first = length, .begin = length};
    return {.first = sinks_, .begin = std::max(sinks_, place_.lowest)};
  }
  void keep_from(std::int64_t begin) override {
    if (turn_ > 0 && begin > sinks_) place_.lowest = std::max(place_.lowest, begin);
  }

 private:
  std::int64_t slot_of(std::int64_t position) const {
    return turn_ == 0 || position < sinks_ ? position : sinks_ + (position - sinks_) % turn_;
  }
  // The first position behind the sinks that is still there once rows up to `end` were written.
  std::int64_t lowest_after(std::int64_t end) const {
    return turn_ == 0 ? 0 : std::max<std::int64_t>(0, end - turn_);
  }
  // Whether a query at position `length` finds its window where rows from `lowest` on, and the sinks, are
  // kept.
  bool reaches(std::int64_t lowest, std::int64_t length) const {
    return lowest <= std::max(sinks_, length - window_);
  }
  std::int64_t used_slots(std::int64_t length) const {
    return turn_ == 0 ? length : std::min(layout_->rows, std::max(length, place_.lowest + turn_));
  }
  bool has_room(std::int64_t length, std::int64_t rows) const {
    if (rows == 0) return true;
    return block_ && block_.unique() && (turn_ > 0 || length + rows <= layout_->rows);
  }
  std::int64_t capacity_for(std::int64_t rows) const {
    std::int64_t capacity = layout_->rows;
    while (turn_ == 0 && capacity < rows) capacity *= 2;
    return capacity;
  }

  std::int64_t sinks_ = 0, window_ = 0, turn_ = 0;  // turn_: slots that are used again; 0 of Contiguous
};

}  // namespace

std::unique_ptr<Rows> start_buffer(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout,
                                   const CacheStore& store) {
  return std::make_unique<BufferRows>(std::move(pool), std::move(layout), store);
}

}  // namespace fovea::cache

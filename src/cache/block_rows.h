// Rows in one block a sequence, with the blocks that checkpoints keep.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cache/rows.h"

namespace fovea::cache {

/// The base of Derived, whose rows stand in one block. `Place` says what is where in the block.
template <class Derived, class Place>
class BlockRows : public Rows {
 public:
  BlockRows(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout)
      : Rows(std::move(pool), std::move(layout)) {}
  std::unique_ptr<Rows> fork() const override { return std::make_unique<Derived>(self()); }
  std::shared_ptr<const void> owner() const override { return std::make_shared<const Ref<Block>>(block_); }
  std::vector<Saved> checkpoints() const override {
    std::vector<Saved> found;
    for (const Checkpoint& kept : checkpoints_) {
      auto rows = std::make_unique<Derived>(self());
      rows->block_ = kept.block;
      rows->place_ = kept.place;
      rows->checkpoints_.clear();
      found.push_back({kept.length, std::move(rows)});
    }
    return found;
  }
  void add_checkpoint(Saved saved) override {
    const auto& rows = static_cast<const Derived&>(*saved.rows);
    checkpoints_.push_back({saved.length, rows.place_, rows.block_});
  }
  void for_blocks(const std::function<void(const Block&, bool)>& visit) const override {
    if (block_) visit(*block_, block_.unique());
    for (const Checkpoint& kept : checkpoints_) {
      if (kept.block.get() != block_.get()) visit(*kept.block, kept.block.unique());
    }
  }

 protected:
  bool has_checkpoint(std::int64_t length) const {
    return std::any_of(checkpoints_.begin(), checkpoints_.end(),
                       [&](const Checkpoint& kept) { return kept.length == length; });
  }
  void keep_checkpoint(std::int64_t length) {
    if (checkpoints_.empty() || checkpoints_.back().length != length)
      checkpoints_.push_back({length, place_, block_});
  }
  void drop_checkpoints_behind(std::int64_t length) {
    while (!checkpoints_.empty() && checkpoints_.back().length > length) checkpoints_.pop_back();
  }
  void restore_last_checkpoint() {
    block_ = checkpoints_.back().block;
    place_ = checkpoints_.back().place;
  }

  Ref<Block> block_;
  Place place_;

 private:
  struct Checkpoint {
    std::int64_t length = 0;
    Place place;
    Ref<Block> block;
  };
  const Derived& self() const { return static_cast<const Derived&>(*this); }

  std::vector<Checkpoint> checkpoints_;  // ascending in length
};

}  // namespace fovea::cache

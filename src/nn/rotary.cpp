#include "fovea/nn/rotary.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace fovea::nn {

struct Rotary::Growing {
  std::optional<Rope> rope;  // none of a table that was given
  std::int64_t limit = 0;
  std::mutex mutex;
  std::optional<RopeTable> table;
};

Rotary::Rotary(RopeTable table) : growing_(std::make_shared<Growing>()) {
  growing_->limit = table.positions();
  growing_->table = std::move(table);
}

Rotary::Rotary(const Rope& rope, std::int64_t limit) : growing_(std::make_shared<Growing>()) {
  check_rope(rope);
  if (limit < 1 || limit > (std::int64_t{1} << 40))
    throw InvalidArgument("Rotary", "limit", "a number of positions in [1, 2^40]", std::to_string(limit));
  growing_->rope = rope;
  growing_->limit = limit;
}

RopeTable Rotary::table(std::int64_t positions) const {
  const std::int64_t needed = std::min(positions, growing_->limit);
  {
    const std::lock_guard lock(growing_->mutex);
    if (growing_->table && growing_->table->positions() >= needed) return *growing_->table;
  }
  // Its frequencies depend on the number of positions, so there is one table only.
  const bool whole = std::holds_alternative<DynamicNtkScaling>(growing_->rope->scaling);
  std::int64_t size = whole ? growing_->limit : 256;
  while (size < needed) size *= 2;
  // Without the lock: the executor makes the table, and its present work may wait for the lock.
  RopeTable table(*growing_->rope, std::min(size, growing_->limit), DType::f32);
  const std::lock_guard lock(growing_->mutex);
  if (!growing_->table || growing_->table->positions() < table.positions())
    growing_->table = std::move(table);
  return *growing_->table;
}

std::int64_t Rotary::limit() const noexcept {
  return growing_->limit;
}

}  // namespace fovea::nn

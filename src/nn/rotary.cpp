#include "fovea/nn/rotary.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fovea::nn {

struct Rotary::Growing {
  std::optional<Rope> rope;  // none of a table that was given
  std::int64_t limit = 0;
  std::optional<std::int64_t> changes;  // changes_behind(rope), below the limit
  std::mutex mutex;
  std::optional<RopeTable> table, changed;  // `changed`: for lengths behind `changes`
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
  growing_->changes = fovea::changes_behind(rope);
  if (growing_->changes && *growing_->changes >= limit) growing_->changes.reset();
}

RopeTable Rotary::table(std::int64_t positions) const {
  const std::int64_t needed = std::min(positions, growing_->limit);
  const bool behind = growing_->changes && needed > *growing_->changes;
  std::optional<RopeTable>& kept = behind ? growing_->changed : growing_->table;
  // Frequencies of their own for each length: a table serves that length alone.
  const bool exact = behind && std::holds_alternative<DynamicNtkScaling>(growing_->rope->scaling);
  {
    const std::lock_guard lock(growing_->mutex);
    if (kept && (exact ? kept->positions() == needed : kept->positions() >= needed)) return *kept;
  }
  std::int64_t size = 256;
  while (size < needed) size *= 2;
  const std::int64_t most = growing_->changes && !behind ? *growing_->changes : growing_->limit;
  // Without the lock: the executor makes the table, and its present work may wait for the lock.
  RopeTable table(*growing_->rope, exact ? needed : std::min(size, most), DType::f32);
  const std::lock_guard lock(growing_->mutex);
  if (exact || !kept || kept->positions() < table.positions()) kept = table;
  return table.positions() >= kept->positions() ? table : *kept;
}

RopeTable Rotary::table(std::span<const std::int64_t> lengths, std::span<std::int64_t> first) const {
  const std::int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const auto& changes = growing_->changes;
  // Beyond the limit the rotation refuses a position. In rows of several lengths it would find another's.
  if (!changes || longest <= *changes || longest > growing_->limit) return table(longest);
  const bool exact = std::holds_alternative<DynamicNtkScaling>(growing_->rope->scaling);
  // Lengths with the same frequencies: by the longest of them that the call has.
  std::map<std::int64_t, std::int64_t> kinds;
  const auto kind_of = [&](std::int64_t length) -> std::int64_t {
    if (length <= *changes) return 0;
    return exact ? length : 1;
  };
  for (const std::int64_t length : lengths) {
    std::int64_t& most = kinds[kind_of(length)];
    most = std::max(most, length);
  }
  if (kinds.size() < 2) return table(longest);
  std::vector<RopeTable> tables;
  std::int64_t begin = 0;
  for (auto& [kind, most] : kinds) {
    tables.push_back(table(most));
    most = begin;
    begin += tables.back().positions();
  }
  for (std::size_t e = 0; e < lengths.size(); ++e) first[e] += kinds[kind_of(lengths[e])];
  return RopeTable(tables);
}

std::optional<std::int64_t> Rotary::changes_behind() const noexcept {
  return growing_->changes;
}

std::int64_t Rotary::limit() const noexcept {
  return growing_->limit;
}

}  // namespace fovea::nn

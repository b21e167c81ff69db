// What makes pending rows part of sequences. Memory may run out in the first half of it alone, which is taken
// back then; the second half cannot fail.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/checks.h"
#include "cache/sequence.h"

namespace fovea {

using cache::refuse;
using cache::Rows;

std::int64_t Sequence::State::pending_rows(const char* function) const {
  const std::int64_t rows = pending.front();
  for (std::size_t l = 1; l < pending.size(); ++l) {
    if (pending[l] != rows)
      refuse(function, "sequence",
             "as many pending rows in every layer as in layer 0, " + std::to_string(rows),
             std::to_string(pending[l]) + " in layer " + std::to_string(l));
  }
  return rows;
}

void Sequence::State::make_pages_known(std::int64_t from, std::int64_t to) {
  if (root == 0) return;
  Rows& pages = *groups.front();
  const std::int64_t page = pages.layout().rows;
  std::vector<std::int32_t> own(static_cast<std::size_t>(page));
  std::int64_t n = from / page;
  try {
    for (; n < to / page; ++n) {
      for (std::int64_t k = 0; k < page; ++k) own[static_cast<std::size_t>(k)] = ids[n * page + k];
      pages.make_known(n, root, own);
    }
  } catch (...) {
    while (n-- > from / page) pages.forget(n);
    throw;
  }
}

void Sequence::State::prepare_commit(std::int64_t rows, std::span<const std::int32_t> new_ids) {
  const std::int64_t to = length + rows;
  try {
    if (ids.size() == length) {
      for (const std::int32_t id : new_ids) ids.push_back(id);
    }
    if (ids.size() == to) make_pages_known(length, to);
  } catch (...) {
    ids.shrink(length);
    throw;
  }
}

void Sequence::State::abandon_commit() noexcept {
  if (ids.size() <= length) return;
  if (root != 0) {
    const std::int64_t page = groups.front()->layout().rows;
    for (std::int64_t n = length / page; n < ids.size() / page; ++n) groups.front()->forget(n);
  }
  ids.shrink(length);
}

void Sequence::State::finish_commit(std::int64_t rows) {
  if (rows > 0) {
    for (const auto& group : groups) group->commit(length + rows);
  }
  length += rows;
  drop_pending();
}

namespace {

// Throws unless the rows of `state` can be committed with these ids. Returns their number.
std::int64_t checked_commit(const Sequence::State& state, std::span<const std::int32_t> ids) {
  const std::int64_t rows = state.pending_rows("commit");
  if (!ids.empty() && static_cast<std::int64_t>(ids.size()) != rows)
    refuse("commit", "ids", "one id for each of the " + std::to_string(rows) + " pending rows, or none",
           std::to_string(ids.size()));
  return rows;
}

}  // namespace

void KvCache::commit(Sequence& sequence, std::span<const std::int32_t> ids) {
  Sequence::State& state = state_of("commit", sequence);
  const std::int64_t rows = checked_commit(state, ids);
  state.prepare_commit(rows, ids);
  state.finish_commit(rows);
}

void KvCache::commit(std::span<Sequence* const> sequences,
                     std::span<const std::span<const std::int32_t>> ids) {
  if (!ids.empty() && ids.size() != sequences.size())
    refuse("commit", "ids",
           "a list for each of the " + std::to_string(sequences.size()) + " sequences, or none",
           std::to_string(ids.size()) + " lists");
  const std::vector<Sequence::State*> states = states_of("commit", sequences);
  const auto ids_of = [&](std::size_t n) { return ids.empty() ? std::span<const std::int32_t>() : ids[n]; };
  std::vector<std::int64_t> rows;
  for (std::size_t n = 0; n < states.size(); ++n) rows.push_back(checked_commit(*states[n], ids_of(n)));
  std::size_t prepared = 0;
  try {
    for (; prepared < states.size(); ++prepared)
      states[prepared]->prepare_commit(rows[prepared], ids_of(prepared));
  } catch (...) {
    while (prepared-- > 0) states[prepared]->abandon_commit();
    throw;
  }
  for (std::size_t n = 0; n < states.size(); ++n) states[n]->finish_commit(rows[n]);
}

}  // namespace fovea

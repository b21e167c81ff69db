#include "fovea/cache/kv_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cache/checks.h"
#include "cache/sequence.h"

namespace fovea {

using cache::BlockLayout;
using cache::checked_layer;
using cache::expect_store;
using cache::Keeps;
using cache::most_rows;
using cache::Pool;
using cache::refuse;
using cache::Rows;
using cache::Slots;

CacheFull::CacheFull(std::int64_t needed, std::int64_t used, std::int64_t limit)
    : Error("KvCache: " + std::to_string(needed) + " more bytes are needed, and " + std::to_string(used) +
            " of limit_bytes = " + std::to_string(limit) + " are in use"),
      needed_(needed),
      used_(used),
      limit_(limit) {}

KvCache::Impl::Impl(KvCacheOptions given) : options(std::move(given)) {
  if (options.layers.empty()) refuse("KvCache", "options.layers", "at least one layer", "none");
  if (options.limit_bytes < 0)
    refuse("KvCache", "options.limit_bytes", "0 or more", std::to_string(options.limit_bytes));
  if (options.prefix_bytes < 0)
    refuse("KvCache", "options.prefix_bytes", "0 or more", std::to_string(options.prefix_bytes));
  std::vector<std::vector<BlockLayout::Layer>> layers;
  for (std::size_t l = 0; l < options.layers.size(); ++l) {
    CacheLayer& layer = options.layers[l];
    layer = cache::checked(layer, l);
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const Group& group) { return group.store == layer.store; });
    const auto group = static_cast<std::size_t>(found - groups.begin());
    if (found == groups.end()) {
      groups.push_back({.store = layer.store, .layout = {}});
      layers.emplace_back();
    }
    places.push_back({group, layers[group].size()});
    layers[group].push_back({.number = static_cast<std::int64_t>(l), .spec = layer});
    if (!std::holds_alternative<LastRow>(layer.store))
      bytes_per_row +=
          layer.num_kv_heads * (layers[group].back().key_bytes() + layers[group].back().value_bytes());
    if (const auto* ring = std::get_if<Ring>(&layer.store))
      most_pending = std::min(most_pending, ring->slack);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].layout = std::make_shared<const BlockLayout>(
        BlockLayout::of(std::move(layers[g]), cache::rows_of_block(groups[g].store)));
  }
  pool = std::make_shared<Pool>(options.limit_bytes, options.prefix_bytes);
}

Sequence::Sequence() noexcept = default;
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;
Sequence::Sequence(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}

KvCache::KvCache(KvCacheOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

const KvCacheOptions& KvCache::options() const noexcept {
  return impl_->options;
}
std::int64_t KvCache::layer_count() const noexcept {
  return static_cast<std::int64_t>(impl_->options.layers.size());
}
std::int64_t KvCache::bytes_per_row() const noexcept {
  return impl_->bytes_per_row;
}

Sequence::State& KvCache::state_of(const char* function, const Sequence& sequence) const {
  if (!sequence.state_)
    refuse(function, "sequence", "a sequence of this cache",
           "an empty handle: it was released or moved from");
  if (sequence.state_->cache != impl_)
    refuse(function, "sequence", "a sequence of this cache", "a sequence of another cache");
  return *sequence.state_;
}

std::vector<Sequence::State*> KvCache::states_of(const char* function,
                                                 std::span<Sequence* const> sequences) const {
  cache::check_different(sequences, [&](const char* expected, const char* got) {
    refuse(function, "sequences", expected, got);
  });
  std::vector<Sequence::State*> states;
  for (const Sequence* sequence : sequences) states.push_back(&state_of(function, *sequence));
  return states;
}

Sequence KvCache::start() {
  auto state = std::make_unique<Sequence::State>();
  state->cache = impl_;
  state->pending.resize(impl_->places.size());
  for (const Impl::Group& group : impl_->groups)
    state->groups.push_back(cache::start_rows(impl_->pool, group.layout, group.store));
  if (impl_->finds_prefixes()) state->root = impl_->pool->root_of(0);
  return Sequence(std::move(state));
}

Sequence KvCache::start(std::span<const std::int32_t> ids, std::uint64_t salt) {
  Sequence sequence = start();
  if (!impl_->finds_prefixes()) return sequence;
  Sequence::State& state = *sequence.state_;
  state.root = impl_->pool->root_of(salt);
  const auto page = static_cast<std::size_t>(impl_->groups.front().layout->rows);
  for (std::size_t begin = 0; begin + page < ids.size(); begin += page) {
    const auto own = ids.subspan(begin, page);
    if (!state.groups.front()->take_known(state.root, own)) break;
    for (const std::int32_t id : own) state.ids.push_back(id);
    state.length += static_cast<std::int64_t>(page);
  }
  return sequence;
}

std::int64_t KvCache::find_prefix(std::span<const std::int32_t> ids, std::uint64_t salt) const {
  if (impl_->pool->known_root(salt) == 0) return 0;
  KvCache same(*this);
  return length(same.start(ids, salt));
}

Sequence KvCache::fork(const Sequence& from) {
  const Sequence::State& source = state_of("fork", from);
  auto state = std::make_unique<Sequence::State>();
  state->cache = impl_;
  state->pending.resize(source.pending.size());
  for (const auto& rows : source.groups) state->groups.push_back(rows->fork());
  state->length = source.length;
  state->ids = source.ids;
  state->root = source.root;
  return Sequence(std::move(state));
}

void KvCache::release(Sequence& sequence) {
  state_of("release", sequence);
  sequence.state_.reset();
}

std::int64_t KvCache::length(const Sequence& sequence) const {
  return state_of("length", sequence).length;
}

std::int64_t KvCache::pending(std::int64_t layer, const Sequence& sequence) const {
  const Sequence::State& state = state_of("pending", sequence);
  return state.pending[checked_layer("pending", layer, state.pending.size())];
}

std::vector<std::int32_t> KvCache::ids(const Sequence& sequence) const {
  const Sequence::State& state = state_of("ids", sequence);
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(state.ids.size()));
  for (std::int64_t n = 0; n < state.ids.size(); ++n) ids.push_back(state.ids[n]);
  return ids;
}

void KvCache::reserve(Sequence& sequence, std::int64_t rows) {
  Sequence::State& state = state_of("reserve", sequence);
  if (rows < 0 || rows > most_rows - state.length)
    refuse(
        "reserve", "rows",
        "a number from 0 to " + std::to_string(most_rows - state.length) + ", which makes 2^30 rows in all",
        std::to_string(rows));
  if (rows > impl_->most_pending)
    refuse("reserve", "rows",
           "at most the slack of the Ring, " + std::to_string(impl_->most_pending) +
               ": more rows would overwrite the window of the first of them",
           std::to_string(rows));
  std::int64_t bytes = 0;
  for (const auto& group : state.groups) bytes += group->bytes_for(state.length, rows);
  if (bytes > 0) impl_->pool->expect_room(bytes);
  try {
    for (const auto& group : state.groups) group->make_room(state.length, rows);
  } catch (...) {
    // Memory ran out, or another thread took the room. The groups before this one have made room already, and
    // hold the pending rows no more; the committed rows are there.
    state.drop_pending();
    throw;
  }
  state.drop_pending();
  state.reserved = rows;
}

KeyValueView KvCache::view(std::int64_t layer, const Sequence& sequence) const {
  const Sequence::State& state = state_of("view", sequence);
  const std::size_t number = checked_layer("view", layer, state.pending.size());
  const Impl::Place& place = impl_->places[number];
  const CacheLayer& spec = impl_->options.layers[number];
  expect_store("view", number, spec, Keeps::rows);
  const Rows& rows = *state.groups[place.group];
  KeyValueView view;
  view.length = state.length + state.pending[number];
  view.num_kv_heads = spec.num_kv_heads;
  view.head_dim = view.key_row_stride = spec.head_dim;
  view.value_dim = spec.value_dim;
  view.dtype = spec.dtype;
  view.value_row_stride = spec.values == CacheValues::own ? spec.value_dim : spec.head_dim;
  rows.runs(place.index, view.length, view.runs);
  view.owner = rows.owner();
  return view;
}

void KvCache::rollback(Sequence& sequence) {
  state_of("rollback", sequence).drop_pending();
}

void KvCache::truncate(Sequence& sequence, std::int64_t length) {
  Sequence::State& state = state_of("truncate", sequence);
  if (length < 0 || length > state.length)
    refuse("truncate", "length",
           "a number from 0 to the length of the sequence, " + std::to_string(state.length),
           std::to_string(length));
  for (const auto& group : state.groups) {
    if (!group->can_truncate(length))
      refuse("truncate", "length",
             "a length whose rows are still kept: behind all that were dropped, and with a Ring at most its "
             "slack back from the last row that was ever written, or that of a checkpoint. A LastRow has no "
             "other",
             std::to_string(length));
  }
  // Of copies, so that nothing has changed where memory runs out.
  std::vector<std::unique_ptr<Rows>> groups;
  for (const auto& group : state.groups) {
    groups.push_back(group->fork());
    groups.back()->truncate(length);
  }
  auto ids = state.ids;
  ids.shrink(length);
  state.groups = std::move(groups);
  state.ids = std::move(ids);
  state.length = length;
  state.drop_pending();
}

void KvCache::drop(Sequence& sequence, std::span<const PositionRange> ranges) {
  Sequence::State& state = state_of("drop", sequence);
  std::int64_t end = 0;
  for (std::size_t n = 0; n < ranges.size(); ++n) {
    const PositionRange& range = ranges[n];
    if (range.begin < end || range.end < range.begin || range.end > state.length)
      refuse("drop", "ranges[" + std::to_string(n) + "]",
             "ascending positions from " + std::to_string(end) + " to the length of the sequence, " +
                 std::to_string(state.length),
             "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")");
    end = range.end;
  }
  for (const auto& group : state.groups) {
    for (const PositionRange& range : ranges) group->drop(range);
  }
}

void KvCache::checkpoint(Sequence& sequence) {
  Sequence::State& state = state_of("checkpoint", sequence);
  for (const auto& group : state.groups) group->checkpoint(state.length);
}

void KvCache::keep(Sequence& sequence, std::span<const std::int64_t> path) {
  Sequence::State& state = state_of("keep", sequence);
  const std::int64_t pending = state.pending_rows("keep");
  for (std::size_t n = 0; n < path.size(); ++n) {
    const std::int64_t least = n == 0 ? 0 : path[n - 1] + 1;
    if (path[n] < least || path[n] >= pending)
      pending == 0 ? refuse("keep", "path", "nothing, because no rows are pending",
                            std::to_string(path.size()) + " indices")
                   : refuse("keep", "path[" + std::to_string(n) + "]",
                            "an index from " + std::to_string(least) + " to " + std::to_string(pending - 1) +
                                ", of a pending row behind the one before it",
                            std::to_string(path[n]));
  }
  const bool has_last_row =
      std::any_of(impl_->groups.begin(), impl_->groups.end(),
                  [](const Impl::Group& group) { return std::holds_alternative<LastRow>(group.store); });
  if (has_last_row && std::ssize(path) == pending) return;
  if (has_last_row)
    refuse("keep", "path",
           "all " + std::to_string(pending) + " pending rows beside a LastRow, which read them",
           std::to_string(path.size()) + " of them");
  // The rows are copied out and, once they are this sequence's own memory, in again: a view may hold the old
  // ones.
  const auto kept = static_cast<std::int64_t>(path.size());
  std::vector<std::vector<std::byte>> copies;
  std::vector<BlockLayout> layouts;
  for (const auto& group : state.groups) {
    layouts.push_back(BlockLayout::of(group->layout().layers, std::max<std::int64_t>(kept, 1)));
    copies.emplace_back(static_cast<std::size_t>(layouts.back().bytes));
    for (std::int64_t n = 0; n < kept; ++n) {
      const Slots from = group->slots(state.length + path[static_cast<std::size_t>(n)], 1);
      from.layout->copy_rows(from.block, from.slot, 1, layouts.back(), copies.back().data(), n);
    }
  }
  try {
    for (const auto& group : state.groups) group->make_room(state.length, state.reserved);
  } catch (...) {
    state.drop_pending();
    throw;
  }
  for (std::size_t g = 0; g < state.groups.size(); ++g) {
    Rows& group = *state.groups[g];
    for (std::int64_t n = 0; n < kept; ++n) {
      const Slots to = group.slots(state.length + n, 1);
      layouts[g].copy_rows(copies[g].data(), n, 1, *to.layout, to.block, to.slot);
    }
  }
  std::fill(state.pending.begin(), state.pending.end(), static_cast<std::int64_t>(path.size()));
}

void KvCache::permute(std::span<Sequence> sequences, std::span<const std::int64_t> indices) {
  if (indices.size() != sequences.size())
    refuse("permute", "indices",
           "one index for each of the " + std::to_string(sequences.size()) + " sequences",
           std::to_string(indices.size()));
  std::vector<Sequence> result = permuted(sequences, indices);
  std::move(result.begin(), result.end(), sequences.begin());
}

void KvCache::permute(std::vector<Sequence>& sequences, std::span<const std::int64_t> indices) {
  sequences = permuted(sequences, indices);
}

std::vector<Sequence> KvCache::permuted(std::span<Sequence> sequences,
                                        std::span<const std::int64_t> indices) {
  for (const Sequence& sequence : sequences) state_of("permute", sequence);
  std::vector<std::int64_t> uses(sequences.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= static_cast<std::int64_t>(sequences.size()))
      refuse("permute", "indices[" + std::to_string(i) + "]",
             "an index from 0 to " + std::to_string(std::ssize(sequences) - 1), std::to_string(indices[i]));
    ++uses[static_cast<std::size_t>(indices[i])];
  }
  // The last use of a sequence moves it; those before are forks.
  std::vector<Sequence> result(indices.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto source = static_cast<std::size_t>(indices[i]);
    if (--uses[source] > 0) result[i] = fork(sequences[source]);
  }
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (result[i]) continue;
    result[i] = std::move(sequences[static_cast<std::size_t>(indices[i])]);
    result[i].state_->drop_pending();
  }
  return result;
}

std::int64_t KvCache::bytes_for(std::int64_t rows) const {
  if (rows < 0 || rows > most_rows)
    refuse("bytes_for", "rows", "a number from 0 to 2^30", std::to_string(rows));
  KvCache same(*this);
  const Sequence sequence = same.start();
  std::int64_t bytes = 0;
  for (const auto& group : sequence.state_->groups) bytes += group->bytes_for(0, rows);
  return bytes;
}

CacheBytes KvCache::bytes() const {
  const Pool::Bytes bytes = impl_->pool->bytes();
  return {.used = bytes.used, .prefixes = bytes.prefixes, .mapped = bytes.mapped, .free = bytes.free};
}

KvCache::SequenceBytes KvCache::bytes(const Sequence& sequence) const {
  SequenceBytes bytes;
  for (const auto& group : state_of("bytes", sequence).groups) {
    group->for_blocks([&](const cache::Block& block, bool own) {
      bytes.used += block.bytes;
      if (!own) bytes.shared += block.bytes;
    });
  }
  return bytes;
}

}  // namespace fovea

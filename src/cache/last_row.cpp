// LastRow: one row a sequence, which the next one replaces. The block has two slots, so that a row that is
// not committed leaves the committed one in place. Where others hold the block, the next row goes into a
// block of its own, and the committed one is not copied.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/block_rows.h"
#include "cache/checks.h"
#include "cache/sequence.h"

namespace fovea::cache {
namespace {

struct LastRowPlace {
  std::int64_t slot = 0;    // of the committed row
  std::int64_t length = 0;  // tokens up to the committed row; 0: there is none
};

class LastRowRows final : public BlockRows<LastRowRows, LastRowPlace> {
 public:
  using BlockRows::BlockRows;

  std::unique_ptr<Rows> fork() const override {
    auto rows = std::make_unique<LastRowRows>(*this);
    rows->next_ = Ref<Block>();
    return rows;
  }
  std::int64_t bytes_for(std::int64_t, std::int64_t rows) const override {
    return has_room(rows) ? 0 : layout_->bytes;
  }
  void make_room(std::int64_t, std::int64_t rows) override {
    if (has_room(rows)) return;
    (block_ ? next_ : block_) = pool_->take(layout_);
  }
  Slots slots(std::int64_t, std::int64_t) override { return {layout_.get(), block_->data, place_.slot, 1}; }
  Slots next_row() override {
    return next_ ? Slots{layout_.get(), next_->data, 0, 1}
                 : Slots{layout_.get(), block_->data, 1 - place_.slot, 1};
  }
  void commit(std::int64_t length) override {
    place_ = {next_ ? 0 : 1 - place_.slot, length};
    if (next_) block_ = std::move(next_);
  }
  void for_blocks(const std::function<void(const Block&, bool)>& visit) const override {
    BlockRows::for_blocks(visit);
    if (next_) visit(*next_, true);
  }
  void runs(std::size_t, std::int64_t, std::vector<KeyValueRun>&) const override {}

  bool can_truncate(std::int64_t length) const override {
    return length == 0 || length == place_.length || has_checkpoint(length);
  }
  void truncate(std::int64_t length) override {
    drop_checkpoints_behind(length);
    if (length != place_.length && length > 0) restore_last_checkpoint();
    place_.length = length;
  }
  void checkpoint(std::int64_t length) override {
    if (length > 0) keep_checkpoint(length);
  }
  Kept kept(std::int64_t length) const override {
    return {.first = 0, .begin = std::max<std::int64_t>(length - 1, 0)};
  }
  void keep_from(std::int64_t begin) override { place_.length = block_ ? begin + 1 : 0; }

 private:
  bool has_room(std::int64_t rows) const { return rows == 0 || next_ || (block_ && block_.unique()); }

  Ref<Block> next_;  // for the next row, where others hold block_
};

}  // namespace

std::unique_ptr<Rows> start_rows(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout,
                                 const CacheStore& store) {
  if (std::holds_alternative<Paged>(store)) return start_paged(std::move(pool), std::move(layout));
  if (std::holds_alternative<LastRow>(store))
    return std::make_unique<LastRowRows>(std::move(pool), std::move(layout));
  return start_buffer(std::move(pool), std::move(layout), store);
}

}  // namespace fovea::cache

namespace fovea {

using cache::BlockLayout;
using cache::checked_layer;
using cache::described;
using cache::expect_store;
using cache::Keeps;
using cache::refuse;
using cache::Rows;
using cache::Slots;

namespace {

void expect_reserved(const char* function, const Sequence::State& state) {
  if (state.reserved == 0) refuse(function, "sequence", "a sequence with reserved rows", "none reserved");
}

}  // namespace

void KvCache::replace(std::int64_t layer, Sequence& sequence, ConstTensorView row) {
  Sequence::State* const one = &state_of("replace", sequence);
  if (row && row.rank() != 1) refuse("replace", "row", "one axis", described(row));
  replace_rows(layer, {&one, 1}, row);
}

void KvCache::replace(std::int64_t layer, std::span<Sequence* const> sequences, ConstTensorView rows) {
  const std::vector<Sequence::State*> states = states_of("replace", sequences);
  if (!rows || rows.rank() != 2 || rows.size(0) != static_cast<std::int64_t>(states.size()))
    refuse("replace", "rows", "a row for each of the " + std::to_string(states.size()) + " sequences",
           described(rows));
  replace_rows(layer, states, rows);
}

// The last axis of `rows` is a row.
void KvCache::replace_rows(std::int64_t layer, std::span<Sequence::State* const> states,
                           ConstTensorView rows) {
  const std::size_t number = checked_layer("replace", layer, impl_->options.layers.size());
  const CacheLayer& spec = impl_->options.layers[number];
  expect_store("replace", number, spec, Keeps::last_row);
  if (!rows || rows.size(rows.rank() - 1) != spec.head_dim || rows.dtype() != spec.dtype ||
      !rows.contiguous())
    refuse("replace", rows.rank() > 1 ? "rows" : "row",
           std::to_string(spec.head_dim) + " elements of " + std::string(to_string(spec.dtype)) +
               " for each sequence, contiguous",
           described(rows));
  for (const Sequence::State* state : states) expect_reserved("replace", *state);
  const std::byte* from = rows.raw();
  for (Sequence::State* state : states) {
    const auto bytes = static_cast<std::size_t>(spec.head_dim) * size_of(spec.dtype);
    std::memcpy(place_of_next_row(number, *state), from, bytes);
    from += bytes;
  }
}

std::byte* KvCache::place_of_next_row(std::size_t layer, Sequence::State& state) {
  const Impl::Place& place = impl_->places[layer];
  Rows& group = *state.groups[place.group];
  const Slots slots = group.next_row();
  state.pending[layer] = state.reserved;
  return slots.row(place.index, 0, false);
}

TensorView KvCache::next_row(std::int64_t layer, Sequence& sequence) {
  Sequence::State& state = state_of("next_row", sequence);
  const std::size_t number = checked_layer("next_row", layer, impl_->options.layers.size());
  const CacheLayer& spec = impl_->options.layers[number];
  expect_store("next_row", number, spec, Keeps::last_row);
  expect_reserved("next_row", state);
  return {place_of_next_row(number, state), spec.dtype, Shape{spec.head_dim}};
}

ConstTensorView KvCache::last_row(std::int64_t layer, const Sequence& sequence) const {
  const Sequence::State& state = state_of("last_row", sequence);
  const std::size_t number = checked_layer("last_row", layer, state.pending.size());
  const CacheLayer& spec = impl_->options.layers[number];
  expect_store("last_row", number, spec, Keeps::last_row);
  if (state.length == 0) return {};
  const Impl::Place& place = impl_->places[number];
  Rows& group = *state.groups[place.group];
  const Slots slots = group.slots(state.length - 1, 1);
  return {slots.row(place.index, 0, false), spec.dtype, Shape{spec.head_dim}};
}

}  // namespace fovea

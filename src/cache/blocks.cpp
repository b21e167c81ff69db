#include "cache/blocks.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/fnv1a.h"
#include "core/memory.h"

namespace fovea::cache {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// A hit compares the parent and all ids, so that a collision costs time and nothing else.
std::uint64_t hash_of(std::uint64_t parent, std::span<const std::int32_t> ids) {
  Fnv1a hash;
  hash.mix(parent);
  for (const std::int32_t id : ids) hash.mix(std::uint64_t{static_cast<std::uint32_t>(id)});
  return hash.value() ^ (hash.value() >> 29);
}

}  // namespace

BlockLayout BlockLayout::of(std::vector<Layer> layers, std::int64_t rows) {
  BlockLayout layout;
  layout.rows = rows;
  for (Layer& layer : layers) {
    layer.key_offset = layer.value_offset = layout.bytes;
    if (layer.spec.values == CacheValues::own) layer.value_offset += rows * layer.key_bytes();
    layout.bytes += aligned(layer.spec.num_kv_heads * layer.head_bytes(rows));
  }
  layout.layers = std::move(layers);
  return layout;
}

KeyValueRun BlockLayout::run(std::size_t index, const std::byte* data, std::int64_t slot,
                             std::int64_t position, std::int64_t count) const {
  const Layer& layer = layers[index];
  const std::int64_t head_stride =
      layer.head_bytes(rows) / static_cast<std::int64_t>(size_of(layer.spec.dtype));
  return {.position = position,
          .count = count,
          .key = data + layer.key_offset + slot * layer.key_bytes(),
          .value =
              layer.spec.value_dim > 0 ? data + layer.value_offset + slot * layer.value_row_bytes() : nullptr,
          .key_head_stride = head_stride,
          .value_head_stride = head_stride};
}

void BlockLayout::copy_rows(const std::byte* source, std::int64_t from, std::int64_t count,
                            const BlockLayout& target, std::byte* destination, std::int64_t to) const {
  if (count <= 0) return;
  const auto copy = [&](std::int64_t row_bytes, const std::byte* head, std::byte* target_head) {
    std::memcpy(target_head + to * row_bytes, head + from * row_bytes,
                static_cast<std::size_t>(count * row_bytes));
  };
  for (std::size_t n = 0; n < layers.size(); ++n) {
    const Layer &a = layers[n], &b = target.layers[n];
    for (std::int64_t h = 0; h < a.spec.num_kv_heads; ++h) {
      const std::byte* head = source + h * a.head_bytes(rows);
      std::byte* target_head = destination + h * b.head_bytes(target.rows);
      copy(a.key_bytes(), head + a.key_offset, target_head + b.key_offset);
      if (a.value_bytes() > 0) copy(a.value_bytes(), head + a.value_offset, target_head + b.value_offset);
    }
  }
}

void dispose(Block* block) noexcept {
  const std::shared_ptr<Pool> pool = block->pool;  // lives on while it frees its last block
  pool->retire(block);
}

Pool::~Pool() {
  // Blocks that sequences or views hold keep the pool alive; only prefixes can be left. They hold it as well,
  // so KvCache drops them before it lets go (see drop_prefixes).
  drop_free_memory();
}

bool Pool::has_free_page(std::int64_t bytes, const PageMemory* pages) const noexcept {
  if (pages) return pages->has_free();
  return std::any_of(pages_.begin(), pages_.end(), [&](const auto& one) {
    return one.second.page_bytes() == bytes && one.second.has_free();
  });
}

bool Pool::make_room(std::int64_t bytes, const PageMemory* pages) noexcept {
  if (bytes > limit_ - (used_ - prefixes_)) return false;  // all prefixes together would not be enough
  while (bytes > limit_ - used_ && !kept_.empty()) drop_oldest_prefix();
  if (bytes > limit_ - used_ - free_bytes_ && !has_free_page(bytes, pages)) drop_free_memory();
  return bytes <= limit_ - used_;
}

void Pool::expect_room(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!make_room(bytes)) throw CacheFull(bytes, used_, limit_);
}

Ref<Block> Pool::take(std::shared_ptr<const BlockLayout> layout) {
  const std::int64_t bytes = layout->bytes;
  auto block = std::make_unique<Block>();
  block->pool = shared_from_this();
  block->bytes = bytes;
  block->layout = std::move(layout);
  const std::lock_guard lock(mutex_);
  if (!make_room(bytes)) throw CacheFull(bytes, used_, limit_);
  // As tensors have it. From operator new, the memory of the rows that a translator's decoder reads went back
  // to the system with each batch: 8 x 128 ids took 6 % longer for new pages.
  block->memory = allocate_elements(static_cast<std::size_t>(bytes));
  block->data = block->memory.get();
  used_ += bytes;
  return Ref<Block>(block.release());
}

Ref<Block> Pool::take_page(const std::shared_ptr<const BlockLayout>& layout, const Block* last,
                           std::int64_t needed, std::int64_t present) {
  const std::int64_t bytes = layout->bytes;
  auto block = std::make_unique<Block>();
  block->pool = shared_from_this();
  block->bytes = bytes;
  const std::lock_guard lock(mutex_);
  PageMemory& pages = pages_.try_emplace(layout.get(), layout).first->second;
  if (!make_room(bytes, &pages)) throw CacheFull(bytes, used_, limit_);
  const std::int64_t before = pages.pages();
  block->page = pages.take({.last = last && last->pages == &pages ? last->page : PageMemory::Page(),
                            .needed = needed,
                            .present = present},
                           (limit_ - used_ - free_bytes_) / bytes);
  block->pages = &pages;
  block->data = pages.data(block->page);
  block->layout = pages.layout(block->page);
  block->first = pages.first_slot(block->page);
  free_bytes_ += (pages.pages() - before - 1) * bytes;
  used_ += bytes;
  return Ref<Block>(block.release());
}

Ref<Block> Pool::adopt(std::shared_ptr<const BlockLayout> layout, std::byte* data,
                       std::shared_ptr<const void> mapping) {
  auto block = std::make_unique<Block>();
  block->pool = shared_from_this();
  block->bytes = layout->bytes;
  block->layout = std::move(layout);
  block->data = data;
  block->mapping = std::move(mapping);
  const std::lock_guard lock(mutex_);
  if (!make_room(block->bytes)) throw CacheFull(block->bytes, used_, limit_);
  used_ += block->bytes;
  mapped_ += block->bytes;
  return Ref<Block>(block.release());
}

void Pool::retire(Block* block) noexcept {
  const std::lock_guard lock(mutex_);
  if (block->serial != 0 && prefix_limit_ >= block->bytes) {
    try {
      kept_.push_front(block);
      place_[block] = kept_.begin();
      prefixes_ += block->bytes;
      while (prefixes_ > prefix_limit_) drop_oldest_prefix();
      return;
    } catch (const std::bad_alloc&) {  // of the lists: then the page is not kept
      if (!kept_.empty() && kept_.front() == block) kept_.pop_front();
    }
  }
  release(block);
}

void Pool::drop_name(const Block& page) noexcept {
  if (page.serial == 0) return;
  const auto [begin, end] = known_.equal_range(page.hash);
  for (auto at = begin; at != end; ++at) {
    if (at->second != &page) continue;
    known_.erase(at);
    break;
  }
}

void Pool::release(Block* block) noexcept {
  drop_name(*block);
  used_ -= block->bytes;
  if (block->pages) {
    block->pages->give_back(block->page);
    free_bytes_ += block->bytes;
  } else if (block->mapping) {
    mapped_ -= block->bytes;
  }
  delete block;
}

void Pool::drop_oldest_prefix() noexcept {
  Block* block = kept_.back();
  kept_.pop_back();
  place_.erase(block);
  prefixes_ -= block->bytes;
  release(block);
}

void Pool::drop_prefixes() noexcept {
  const std::shared_ptr<Pool> self = shared_from_this();  // the prefixes may be the last to hold it
  const std::lock_guard lock(mutex_);
  prefix_limit_ = 0;
  while (!kept_.empty()) drop_oldest_prefix();
}

void Pool::drop_free_memory() noexcept {
  for (auto& [layout, pages] : pages_) free_bytes_ -= pages.drop_free_slabs() * pages.page_bytes();
}

Block* Pool::known(std::uint64_t hash, std::uint64_t parent,
                   std::span<const std::int32_t> ids) const noexcept {
  const auto [begin, end] = known_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    Block* block = at->second;
    if (block->parent == parent && std::equal(ids.begin(), ids.end(), block->ids.begin(), block->ids.end()))
      return block;
  }
  return nullptr;
}

std::uint64_t Pool::known_root(std::uint64_t salt) {
  const std::lock_guard lock(mutex_);
  const auto found = roots_.find(salt);
  return found == roots_.end() ? 0 : found->second;
}

std::uint64_t Pool::root_of(std::uint64_t salt) {
  const std::lock_guard lock(mutex_);
  const auto [root, added] = roots_.try_emplace(salt, serials_ + 1);
  if (added) ++serials_;
  return root->second;
}

void Pool::make_known(Block& page, std::uint64_t parent, std::span<const std::int32_t> ids) {
  const std::uint64_t hash = hash_of(parent, ids);
  std::vector<std::int32_t> copy(ids.begin(), ids.end());
  const std::lock_guard lock(mutex_);
  if (const Block* same = known(hash, parent, ids)) {
    page.chain = same->serial;
    return;
  }
  known_.emplace(hash, &page);
  page.hash = hash;
  page.parent = parent;
  page.ids = std::move(copy);
  page.chain = page.serial = ++serials_;
}

void Pool::forget(Block& page) noexcept {
  const std::lock_guard lock(mutex_);
  drop_name(page);
  page.serial = page.hash = page.parent = page.chain = 0;
  page.ids.clear();
}

Ref<Block> Pool::find(std::uint64_t parent, std::span<const std::int32_t> ids) {
  const std::uint64_t hash = hash_of(parent, ids);
  const std::lock_guard lock(mutex_);
  Block* block = known(hash, parent, ids);
  if (!block) return {};
  if (const auto kept = place_.find(block); kept != place_.end()) {
    kept_.erase(kept->second);
    place_.erase(kept);
    prefixes_ -= block->bytes;
    return Ref<Block>(block);
  }
  // A page whose last reference another thread has just dropped is on its way to retire.
  return block->try_retain() ? Ref<Block>::adopt(block) : Ref<Block>();
}

Pool::Bytes Pool::bytes() {
  const std::lock_guard lock(mutex_);
  return {used_, prefixes_, mapped_, free_bytes_};
}

}  // namespace fovea::cache

#include "cache/blocks.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/fnv1a.h"
#include "core/huge_pages.h"
#include "core/memory.h"

namespace fovea::cache {
namespace {

// Blocks that are taken from the system at once where a huge page holds fewer.
constexpr std::int64_t slab_blocks = 8;

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

bool Pool::make_room(std::int64_t bytes) noexcept {
  if (bytes > limit_ - (used_ - prefixes_)) return false;  // all prefixes together would not be enough
  while (bytes > limit_ - used_ && !kept_.empty()) drop_oldest_prefix();
  // A free block of this size serves as well as memory of the system.
  if (bytes > limit_ - used_ - free_bytes_) {
    const auto found = free_.find(bytes);
    if (found == free_.end() || found->second.empty()) drop_free_memory();
  }
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
  const bool reused = layout->reused;
  block->layout = std::move(layout);
  const std::lock_guard lock(mutex_);
  if (!make_room(bytes)) throw CacheFull(bytes, used_, limit_);
  if (reused) {
    std::vector<Free>& free = free_[bytes];
    if (free.empty()) add_slab(bytes);
    block->data = free.back().data;
    block->slab = free.back().slab;
    free.pop_back();
    ++block->slab->used;
    free_bytes_ -= bytes;
  } else {
    // As tensors have it. From operator new, the memory of the rows that a translator's decoder reads went
    // back to the system with each batch: 8 x 128 ids took 6 % longer for new pages.
    block->memory = allocate_elements(static_cast<std::size_t>(bytes));
    block->data = block->memory.get();
  }
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
  if (block->slab) {
    free_.find(block->bytes)->second.push_back({block->data, block->slab});  // add_slab has reserved for it
    --block->slab->used;
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
  for (auto& [bytes, slabs] : slabs_) {
    std::vector<Free>& free = free_.find(bytes)->second;
    for (auto slab = slabs.begin(); slab != slabs.end();) {
      if (slab->used > 0) {
        ++slab;
        continue;
      }
      std::erase_if(free, [&](const Free& one) { return one.slab == &*slab; });
      free_bytes_ -= slab->blocks * bytes;
      slab = slabs.erase(slab);
    }
  }
}

// The first block alone, on small pages: a short text writes a few rows of each layer, and huge pages would
// bring in the whole block and what lies beside it, 8 MB for GPT-2. Then as many blocks as fill a huge page,
// or slab_blocks if those are more, as far as the limit allows; at least one.
void Pool::add_slab(std::int64_t block_bytes) {
  std::vector<Free>& free = free_[block_bytes];
  std::list<Slab>& slabs = slabs_[block_bytes];
  const bool first = slabs.empty();
  const std::int64_t allowed = (limit_ - used_ - free_bytes_) / block_bytes,
                     full = std::max(static_cast<std::int64_t>(huge_page) / block_bytes, slab_blocks),
                     blocks = first ? 1 : std::max<std::int64_t>(std::min(full, allowed), 1);
  std::int64_t all = blocks;
  for (const Slab& slab : slabs) all += slab.blocks;
  free.reserve(static_cast<std::size_t>(all));
  const auto bytes = static_cast<std::size_t>(blocks * block_bytes);
  slabs.push_back(
      {first ? allocate_on_small_pages(bytes) : allocate_elements(bytes), blocks * block_bytes, blocks, 0});
  Slab& slab = slabs.back();
  // Handed out from the beginning of the slab on.
  for (std::int64_t n = blocks; n-- > 0;) free.push_back({slab.memory.get() + n * block_bytes, &slab});
  free_bytes_ += slab.bytes;
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

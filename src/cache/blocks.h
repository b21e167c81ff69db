// Memory of a cache: blocks that hold rows of several layers, a limit on all of them together, and the full
// pages that start(ids) can find. Here is memory; cache/rows.h says which rows lie where in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/shared.h"
#include "fovea/cache/kv_cache.h"

namespace fovea::cache {

class Pool;

/// Where the rows of each layer of a group stand in a block: [kv_head][K|V][row][dim] a layer, layer after
/// layer, each layer at a multiple of 64 bytes. Keys and values of a head lie side by side because a kernel
/// reads them by turns. With all keys before all values, decoding of bf16 over pages of 16 took a tenth more
/// (docs/performance.md).
struct BlockLayout {
  struct Layer {
    std::int64_t number = 0;  // among all layers of the cache
    CacheLayer spec;
    std::int64_t key_offset = 0, value_offset = 0;  // bytes; equal where values are the first of keys
    std::int64_t key_bytes() const { return spec.head_dim * static_cast<std::int64_t>(size_of(spec.dtype)); }
    std::int64_t value_bytes() const {
      return spec.values == CacheValues::own ? spec.value_dim * static_cast<std::int64_t>(size_of(spec.dtype))
                                             : 0;
    }
    /// From head to head in a block of so many rows.
    std::int64_t head_bytes(std::int64_t rows) const { return rows * (key_bytes() + value_bytes()); }
  };
  std::vector<Layer> layers;
  std::int64_t rows = 0, bytes = 0;
  bool reused = false;  ///< blocks of this size will be needed again: pages
  /// The same layers in a block of so many rows.
  static BlockLayout of(std::vector<Layer> layers, std::int64_t rows);
  /// Copies `count` rows, from row `from` of a block of this layout to row `to` of one of layout `target`.
  void copy_rows(const std::byte* source, std::int64_t from, std::int64_t count, const BlockLayout& target,
                 std::byte* destination, std::int64_t to) const;
};

/// Memory that blocks of one size are cut from: the first block, then a huge page or more. Neighbouring pages
/// then share entries of the processor's address cache.
struct Slab {
  std::shared_ptr<std::byte[]> memory;
  std::int64_t bytes = 0, blocks = 0, used = 0;
};

/// Memory for rows, and what identifies a page by its ids.
struct Block : Counted {
  std::shared_ptr<Pool> pool;  // outlives the cache where a view holds a block
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::shared_ptr<const BlockLayout> layout;
  Slab* slab = nullptr;                 // null: `data` is in `memory`, or in `mapping`
  std::shared_ptr<std::byte[]> memory;  // the block's own
  std::shared_ptr<const void> mapping;  // a file that the rows lie in; they are then never written
  /// A page that start(ids) can find has a serial number; `parent` is the chain of the page before it.
  std::uint64_t serial = 0, hash = 0, parent = 0;
  /// The serial number of the page that is found for the same ids: this one's, or that of an equal page which
  /// was known before. 0: the page is not full, or rows of it have no ids.
  std::uint64_t chain = 0;
  std::vector<std::int32_t> ids;
};
void dispose(Block* block) noexcept;

/// All blocks of a cache. Every function locks.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  Pool(std::int64_t limit_bytes, std::int64_t prefix_bytes)
      : limit_(limit_bytes), prefix_limit_(prefix_bytes) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Throws CacheFull unless blocks of `bytes` together can be taken now. Drops prefixes to make room.
  void expect_room(std::int64_t bytes);
  /// Throws CacheFull, std::bad_alloc.
  Ref<Block> take(std::shared_ptr<const BlockLayout> layout);
  /// A block whose rows are at `data` in a mapped file. Throws CacheFull, std::bad_alloc.
  Ref<Block> adopt(std::shared_ptr<const BlockLayout> layout, std::byte* data,
                   std::shared_ptr<const void> mapping);

  /// The chain in front of the first page, for sequences that are started with `salt`.
  std::uint64_t root_of(std::uint64_t salt);
  /// The same, or 0 if no sequence was started with it.
  std::uint64_t known_root(std::uint64_t salt);
  /// Lets a full page be found behind the page whose chain is `parent`, and sets its chain. If a page with
  /// the same ids is known already, that one stays the one that is found.
  void make_known(Block& page, std::uint64_t parent, std::span<const std::int32_t> ids);
  /// Takes make_known back.
  void forget(Block& page) noexcept;
  /// The page with these ids behind `parent`, or none.
  Ref<Block> find(std::uint64_t parent, std::span<const std::int32_t> ids);

  struct Bytes {
    std::int64_t used = 0, prefixes = 0, mapped = 0, free = 0;
  };
  Bytes bytes();
  /// Drops the pages that no sequence holds, and keeps none from now on: the cache is gone.
  void drop_prefixes() noexcept;

 private:
  friend void dispose(Block* block) noexcept;
  void retire(Block* block) noexcept;
  // The caller of these has locked.
  void release(Block* block) noexcept;
  void drop_name(const Block& page) noexcept;
  void drop_oldest_prefix() noexcept;
  void drop_free_memory() noexcept;
  void add_slab(std::int64_t block_bytes);
  bool make_room(std::int64_t bytes) noexcept;
  Block* known(std::uint64_t hash, std::uint64_t parent, std::span<const std::int32_t> ids) const noexcept;

  std::mutex mutex_;
  std::int64_t limit_, prefix_limit_, used_ = 0, prefixes_ = 0, mapped_ = 0, free_bytes_ = 0;
  std::uint64_t serials_ = 0;
  struct Free {
    std::byte* data;
    Slab* slab;
  };
  std::map<std::int64_t, std::vector<Free>> free_;  // by bytes; has room for every block of the slabs
  std::map<std::int64_t, std::list<Slab>> slabs_;   // the same
  std::unordered_map<std::uint64_t, std::uint64_t> roots_;
  std::unordered_multimap<std::uint64_t, Block*> known_;
  // Pages that no sequence holds, the last used first, and where each stands in that list.
  std::list<Block*> kept_;
  std::unordered_map<const Block*, std::list<Block*>::iterator> place_;
};

}  // namespace fovea::cache

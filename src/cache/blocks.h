// Memory of a cache: blocks that hold rows of several layers, a limit on all of them together, and the full
// pages that start(ids) can find. cache/rows.h says which rows of a sequence lie in which block.
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

#include "cache/block_layout.h"
#include "cache/page_memory.h"
#include "cache/shared.h"

namespace fovea::cache {

class Pool;

/// Memory for rows, and what identifies a page by its ids.
struct Block : Counted {
  std::shared_ptr<Pool> pool;  // outlives the cache where a view holds a block
  /// Of the memory that the block's rows lie in, from slot `first` on. Pages share it with their neighbours.
  std::byte* data = nullptr;
  std::shared_ptr<const BlockLayout> layout;
  std::int64_t first = 0, bytes = 0;    // `bytes` of the block alone
  PageMemory* pages = nullptr;          // null: `data` is in `memory`, or in `mapping`
  PageMemory::Page page;                // of `pages`
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
  /// A block with memory of its own. Throws CacheFull, std::bad_alloc.
  Ref<Block> take(std::shared_ptr<const BlockLayout> layout);
  /// A page of a sequence that has `present` pages and takes `needed` now, if possible behind its last one,
  /// which may be null (PageMemory::take). Throws CacheFull, std::bad_alloc.
  Ref<Block> take_page(const std::shared_ptr<const BlockLayout>& layout, const Block* last,
                       std::int64_t needed, std::int64_t present);
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
  // A free page is as good as memory of the system: of `pages`, or, without it, any of so many bytes.
  bool make_room(std::int64_t bytes, const PageMemory* pages = nullptr) noexcept;
  bool has_free_page(std::int64_t bytes, const PageMemory* pages) const noexcept;
  Block* known(std::uint64_t hash, std::uint64_t parent, std::span<const std::int32_t> ids) const noexcept;

  std::mutex mutex_;
  std::int64_t limit_, prefix_limit_, used_ = 0, prefixes_ = 0, mapped_ = 0, free_bytes_ = 0;
  std::uint64_t serials_ = 0;
  std::map<const BlockLayout*, PageMemory> pages_;  // by the layout of a page
  std::unordered_map<std::uint64_t, std::uint64_t> roots_;
  std::unordered_multimap<std::uint64_t, Block*> known_;
  // Pages that no sequence holds, the last used first, and where each stands in that list.
  std::list<Block*> kept_;
  std::unordered_map<const Block*, std::list<Block*>::iterator> place_;
};

}  // namespace fovea::cache

// Regions of memory, and the blocks in them.
//
// A step of training ends some hundred tensors of a megabyte. malloc gives such memory back to the system,
// and takes new pages for the next tensor: 44,000 page faults and 0.1 s in a step of 0.33 s. It can be told
// to keep everything (mallopt), but then it does so for the whole program, for ever, and on small pages.
// Blocks that are chosen by size alone, without splitting and merging, would fit one shape of a batch: the
// next batch has other lengths.
#include "core/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#if __has_include(<pthread.h>)
#include <pthread.h>
#endif

#include "core/huge_pages.h"
#include "fovea/core/memory.h"

namespace fovea {
namespace {

// One cache line, and the width of an AVX-512 vector.
constexpr std::size_t line = 64;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The address sanitizer watches the ends of blocks of operator new, and when they end.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool in_regions = false;
#else
constexpr bool in_regions = true;
#endif

// Blocks of operator new that wait for the next taker of their size, in lists by size.
class SmallBlocks {
 public:
  void* take(std::size_t bytes) {
    const Size size = size_of_list(bytes);
    if (size.list < lists_.size() && keeps_.load(std::memory_order_relaxed)) {
      const std::lock_guard lock(mutex_);
      if (Waiting* first = lists_[size.list]) {
        lists_[size.list] = first->next;
        return first;
      }
    }
    return ::operator new(size.bytes);
  }

  void give_back(void* memory, std::size_t bytes) noexcept {
    const std::size_t list = size_of_list(bytes).list;
    if (list < lists_.size() && keeps_.load(std::memory_order_relaxed)) {
      const std::lock_guard lock(mutex_);
      if (keeps_.load(std::memory_order_relaxed)) {
        lists_[list] = new (memory) Waiting{lists_[list]};
        return;
      }
    }
    ::operator delete(memory);
  }

  void keep(bool keeps) noexcept {
    const std::lock_guard lock(mutex_);
    keeps_.store(keeps && in_regions, std::memory_order_relaxed);
    if (keeps) return;
    for (Waiting*& first : lists_) {
      while (first) ::operator delete(std::exchange(first, first->next));
    }
  }
  std::mutex& mutex() { return mutex_; }

 private:
  struct Waiting {
    Waiting* next;
  };
  struct Size {
    std::size_t list, bytes;
  };
  // Eight sizes for each power of two, so that at most an eighth of a block is empty.
  static Size size_of_list(std::size_t bytes) {
    constexpr std::size_t least = 64;
    if (bytes <= least) return {0, least};
    const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^power < bytes
    const std::size_t step = (std::size_t{1} << power) / 8, rounded = round_up(bytes, step);
    return {(power - 6) * 8 + (rounded >> (power - 3)) - 8, rounded};
  }

  std::mutex mutex_;
  std::atomic<bool> keeps_{false};
  std::array<Waiting*, 12 * 8> lists_{};  // up to 240 KiB
};

// Never destroyed, because tensors of other static objects may end later.
SmallBlocks& small_blocks() {
  static SmallBlocks& all = *new SmallBlocks;
  return all;
}

struct Block;
struct SizedBlock {
  std::size_t bytes = 0;
  Block* block = nullptr;
};
// By size, then by region, then by address. Of empty regions of one size the first that was requested comes
// first: its pages are there, and those of a later one may never have been touched. By address alone a
// translator's second batch took the later region, which Linux puts below, and 40 MB of new pages.
struct BySize {
  using is_transparent = void;
  bool operator()(const SizedBlock& a, const SizedBlock& b) const;
  bool operator()(const SizedBlock& a, std::size_t bytes) const { return a.bytes < bytes; }
};
using FreeBlocks = std::set<SizedBlock, BySize, KeptAllocator<SizedBlock>>;

// Stands in front of its bytes. The blocks of a region cover it; two neighbours are never both free.
struct alignas(line) Block {
  Block* before = nullptr;  // by address; null: the first of the region
  Block* after = nullptr;
  std::size_t bytes = 0;    // with this header
  std::int64_t region = 0;  // its number in the order of requests
  // Its entry among the free blocks, while it is not one of them: giving a block back then needs no memory.
  FreeBlocks::node_type entry;

  bool is_free() const { return entry.empty(); }
  bool is_a_region() const { return !before && !after; }
  std::byte* data() { return reinterpret_cast<std::byte*>(this) + sizeof(Block); }
  static Block* of(std::byte* data) { return reinterpret_cast<Block*>(data - sizeof(Block)); }
};

bool BySize::operator()(const SizedBlock& a, const SizedBlock& b) const {
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  if (a.block->region != b.block->region) return a.block->region < b.block->region;
  return std::less<>()(a.block, b.block);
}

class Regions {
 public:
  std::byte* take(std::size_t bytes) {
    if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
    const std::size_t wanted = round_up(bytes, line) + sizeof(Block);
    const std::lock_guard lock(mutex_);
    // The smallest block that suffices: large ones stay whole.
    auto found = free_.lower_bound(wanted);
    if (found == free_.end()) found = request(wanted);
    Block* block = found->block;
    if (block->is_a_region()) empty_ -= block->bytes;
    split(block, wanted);
    block->entry = free_.extract(found);
    memory_.used += block->bytes;
    return block->data();
  }

  void give_back(std::byte* data) noexcept {
    const std::lock_guard lock(mutex_);
    Block* block = Block::of(data);
    memory_.used -= block->bytes;
    FreeBlocks::node_type entry = std::move(block->entry);
    if (block->after && block->after->is_free()) {
      free_.erase({block->after->bytes, block->after});
      merge(block);
    }
    if (block->before && block->before->is_free()) {
      block = block->before;
      free_.erase({block->bytes, block});
      merge(block);
    }
    if (block->is_a_region()) empty_ += block->bytes;
    entry.value() = {block->bytes, block};
    free_.insert(std::move(entry));
    if (keepers_ == 0) trim(std::max(reserve, memory_.used / 4));
  }

  void make_room(std::size_t bytes) {
    // A header, and what rounds a tensor up to whole lines.
    constexpr std::size_t most_beside = sizeof(Block) + line;
    const std::size_t wanted = bytes + (bytes / large_tensor + 1) * most_beside;
    const std::lock_guard lock(mutex_);
    if (bytes >= large_tensor && free_.lower_bound(wanted) == free_.end()) request(round_up(wanted, region));
  }

  void keep() {
    const std::lock_guard lock(mutex_);
    if (++keepers_ == 1) small_blocks().keep(true);
  }
  void stop_keeping() noexcept {
    const std::lock_guard lock(mutex_);
    if (--keepers_ > 0) return;
    trim(std::max(reserve, memory_.used / 4));
    small_blocks().keep(false);
  }
  TensorMemory memory() {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  std::mutex& mutex() { return mutex_; }

 private:
  static constexpr std::size_t reserve = std::size_t{64} << 20;
  // Smaller regions would cut up what could be one block; a larger one would be mostly empty in a small
  // program, whose untouched part costs nothing but address space.
  static constexpr std::size_t region = std::size_t{64} << 20;
  static constexpr std::align_val_t alignment{huge_page};

  FreeBlocks::iterator request(std::size_t wanted) {
    const std::size_t bytes = std::max(region, round_up(wanted, huge_page));
    void* memory = ::operator new(bytes, alignment, std::nothrow);
    if (!memory) {
      trim(0);
      memory = ::operator new(bytes, alignment);
    }
    prefer_huge_pages(memory, bytes);
    ++memory_.requests;
    memory_.taken += bytes;
    empty_ += bytes;
    return free_.insert({bytes, new (memory) Block{.bytes = bytes, .region = memory_.requests, .entry = {}}})
        .first;
  }

  // What is left of a block serves others, unless it is smaller than any tensor that asks for one.
  void split(Block* block, std::size_t wanted) {
    const std::size_t left = block->bytes - wanted;
    if (left < large_tensor + sizeof(Block)) return;
    Block* rest = new (reinterpret_cast<std::byte*>(block) + wanted)
        Block{.before = block, .after = block->after, .bytes = left, .region = block->region, .entry = {}};
    free_.insert({left, rest});
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->bytes = wanted;
  }

  // Adds the block after this one to it.
  static void merge(Block* block) noexcept {
    const Block* next = block->after;
    block->bytes += next->bytes;
    block->after = next->after;
    if (block->after) block->after->before = block;
  }

  // Gives regions back, the largest first, until at most `most` bytes of empty ones are left.
  void trim(std::size_t most) noexcept {
    for (auto at = free_.end(); empty_ > most && at != free_.begin();) {
      --at;
      Block* block = at->block;
      if (!block->is_a_region()) continue;
      empty_ -= block->bytes;
      memory_.taken -= block->bytes;
      at = free_.erase(at);
      ::operator delete(block, alignment);
    }
  }

  std::mutex mutex_;
  FreeBlocks free_;
  TensorMemory memory_;
  std::size_t empty_ = 0;  // bytes of regions that are one free block
  int keepers_ = 0;
};

// Never destroyed, because tensors of other static objects may end later.
Regions& regions() {
  static Regions& all = *new Regions;
  return all;
}

#if __has_include(<pthread.h>)
// A child must not find the lock held by a thread that it does not have. The regions are made here, before
// there are threads, so that a fork cannot fall into their making either.
void lock_all() {
  regions().mutex().lock();
  small_blocks().mutex().lock();
}
void unlock_all() {
  small_blocks().mutex().unlock();
  regions().mutex().unlock();
}
[[maybe_unused]] const int handlers_registered =
    (lock_all(), unlock_all(), pthread_atfork(lock_all, unlock_all, unlock_all));
#endif

}  // namespace

std::shared_ptr<std::byte[]> allocate_on_small_pages(std::size_t bytes) {
  constexpr std::align_val_t alignment{line};
  return {static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), alignment)),
          [](std::byte* data) { ::operator delete(data, alignment); }};
}

std::shared_ptr<std::byte[]> allocate_elements(std::size_t bytes) {
  if (!in_regions) return allocate_on_small_pages(bytes);
  if (bytes >= large_tensor)
    return {regions().take(bytes), [](std::byte* data) { regions().give_back(data); },
            KeptAllocator<std::byte>()};
  // Elements and counter in one block, which malloc finds in a list of its thread. It searches for an aligned
  // one.
  const auto block =
      std::allocate_shared_for_overwrite<std::byte[]>(KeptAllocator<std::byte>(), bytes + line);
  const auto address = reinterpret_cast<std::uintptr_t>(block.get());
  return {block, block.get() + (round_up(address, line) - address)};
}

void reserve_elements(std::size_t bytes) noexcept {
  if (!in_regions || bytes > SIZE_MAX / 2) return;
  try {
    regions().make_room(bytes);
  } catch (const std::bad_alloc&) {  // tensors ask for smaller regions, or say what is missing
  }
}

void* take_small(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())) throw std::bad_alloc();
  return small_blocks().take(bytes);
}
void give_small(void* memory, std::size_t bytes) noexcept {
  small_blocks().give_back(memory, bytes);
}

KeepMemory::KeepMemory() {
  regions().keep();
}
KeepMemory::KeepMemory(const KeepMemory&) {
  regions().keep();
}
KeepMemory::~KeepMemory() {
  regions().stop_keeping();
}

TensorMemory tensor_memory() {
  return regions().memory();
}

}  // namespace fovea

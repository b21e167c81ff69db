// Memory for the pages of one layout, in which neighbouring pages of a sequence lie side by side. Here is
// which page lies where, and nothing that knows of sequences; cache/blocks.h counts bytes and references.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "cache/block_layout.h"

namespace fovea::cache {

/// Stretches of 1, 2, 4 or 8 pages. A stretch has the layout of one large page: the rows of a head lie behind
/// each other from page to page. Reads of a head then go on where they would jump
/// (docs/decisions/0054-stretches-of-pages.md). Stretches are cut from slabs, and halves that are free join
/// again (buddies; Knowlton 1965). Not for several threads at once.
class PageMemory {
 public:
  static constexpr int most_order = 3;  ///< of a stretch: it has 2^order pages

  struct Slab;
  /// Of each page of a slab, as the first one of a stretch.
  struct Stretch {
    Slab* slab = nullptr;
    std::int32_t begin = 0;  ///< its first page in the slab
    std::int8_t order = 0;
    bool free = false;            ///< nobody uses a page of it
    std::uint8_t used_pages = 0;  ///< a bit for each page; 0 also where the page begins no stretch
  };
  /// Memory that stretches are cut from: the first page, then a huge page or more. Neighbouring pages then
  /// share entries of the processor's address cache.
  struct Slab {
    std::shared_ptr<std::byte[]> memory;
    std::int64_t pages = 0, used = 0;
    std::vector<std::list<Stretch>::iterator> at;  // by page
  };
  struct Page {
    Stretch* stretch = nullptr;
    int number = 0;  ///< in the stretch
  };

  explicit PageMemory(std::shared_ptr<const BlockLayout> page);
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  bool has_free() const noexcept { return free_pages_ > 0; }
  std::int64_t page_bytes() const noexcept { return layouts_.front()->bytes; }
  /// A page for a sequence whose last one is `last`, and which has so many.
  struct Wish {
    Page last = {};
    std::int64_t needed = 1;   ///< pages that are taken now, this one included
    std::int64_t present = 0;  ///< pages that the sequence has
  };
  /// The page behind the last one, if that is free. Else the first page of a free stretch, of as many pages
  /// as are needed or as a quarter of those present. For the latter no more pages wait for their sequences
  /// than a quarter of all that are used. Memory of up to `allowed` pages is taken for it, unless more pages
  /// than a quarter of the used ones are free. Else any free page. Takes memory of a page if there is none.
  /// Throws std::bad_alloc if that cannot be had.
  Page take(const Wish& wish, std::int64_t allowed);
  void give_back(const Page& page) noexcept;
  /// Gives slabs without a used page back to the system. Returns how many pages they had.
  std::int64_t drop_free_slabs() noexcept;
  /// Pages that slabs have, used or not.
  std::int64_t pages() const noexcept { return pages_; }

  /// The memory of the stretch of a page, its layout, and the slot in it of the page's first row.
  std::byte* data(const Page& page) const noexcept;
  const std::shared_ptr<const BlockLayout>& layout(const Page& page) const noexcept;
  std::int64_t first_slot(const Page& page) const noexcept;

 private:
  using Stretches = std::list<Stretch>;

  std::int64_t wanted(const Wish& wish) const noexcept;
  void add_slab(int order, std::int64_t allowed);
  Stretch* cut(int order) noexcept;
  void use(const Page& page) noexcept;
  void move(Stretch& stretch, Stretches& to) noexcept;
  Stretches& list_of(const Stretch& stretch) noexcept;
  void free_stretch(Stretch& stretch, int order) noexcept;

  std::array<std::shared_ptr<const BlockLayout>, most_order + 1> layouts_;
  std::list<Slab> slabs_;
  // Every page of a slab is in one of these, so that nothing is allocated where a page is given back.
  std::array<Stretches, most_order + 1> free_;
  Stretches partly_;  // stretches with used and free pages
  Stretches others_;  // those whose pages are all used, and pages that begin none
  std::int64_t pages_ = 0, free_pages_ = 0;
  std::int64_t waiting_ = 0;  ///< of the free pages those in partly_
};

}  // namespace fovea::cache

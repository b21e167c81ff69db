#include "cache/page_memory.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "core/huge_pages.h"
#include "core/memory.h"

namespace fovea::cache {
namespace {

constexpr std::int64_t most_pages = std::int64_t{1} << PageMemory::most_order;

// The largest order of a stretch of at most `pages` pages.
int order_within(std::int64_t pages) {
  return std::bit_width(static_cast<std::uint64_t>(std::clamp<std::int64_t>(pages, 1, most_pages))) - 1;
}

std::uint8_t all_pages(int order) {
  return static_cast<std::uint8_t>((1u << (1u << order)) - 1);
}

}  // namespace

PageMemory::PageMemory(std::shared_ptr<const BlockLayout> page) {
  for (int order = 1; order <= most_order; ++order)
    layouts_[static_cast<std::size_t>(order)] =
        std::make_shared<const BlockLayout>(BlockLayout::of(page->layers, page->rows << order));
  layouts_.front() = std::move(page);
}

std::byte* PageMemory::data(const Page& page) const noexcept {
  return page.stretch->slab->memory.get() + page.stretch->begin * page_bytes();
}

const std::shared_ptr<const BlockLayout>& PageMemory::layout(const Page& page) const noexcept {
  return layouts_[static_cast<std::size_t>(page.stretch->order)];
}

std::int64_t PageMemory::first_slot(const Page& page) const noexcept {
  return page.number * layouts_.front()->rows;
}

PageMemory::Stretches& PageMemory::list_of(const Stretch& stretch) noexcept {
  if (stretch.free) return free_[static_cast<std::size_t>(stretch.order)];
  return stretch.used_pages != 0 && stretch.used_pages != all_pages(stretch.order) ? partly_ : others_;
}

// From the list that it is in.
void PageMemory::move(Stretch& stretch, Stretches& to) noexcept {
  to.splice(to.end(), list_of(stretch), stretch.slab->at[static_cast<std::size_t>(stretch.begin)]);
}

void PageMemory::free_stretch(Stretch& stretch, int order) noexcept {
  move(stretch, free_[static_cast<std::size_t>(order)]);
  stretch.order = static_cast<std::int8_t>(order);
  stretch.free = true;
}

// Small pages for the first page alone: a short text writes a few rows of each layer, and huge pages would
// bring in the whole page and what lies beside it, 8 MB for GPT-2. Then as many pages as fill a huge page, or
// a stretch if that is more, as far as `allowed` goes; at least one.
void PageMemory::add_slab(int order, std::int64_t allowed) {
  const bool small = slabs_.empty() && order == 0;
  const std::int64_t full = std::max(static_cast<std::int64_t>(huge_page) / page_bytes(), most_pages),
                     pages = small ? 1 : std::max<std::int64_t>(std::min(full, allowed), 1);
  const auto bytes = static_cast<std::size_t>(pages * page_bytes());
  Slab slab{small ? allocate_on_small_pages(bytes) : allocate_elements(bytes), pages, 0, {}};
  Stretches fresh;
  for (std::int64_t n = 0; n < pages; ++n)
    slab.at.push_back(fresh.insert(fresh.end(), Stretch{.begin = static_cast<std::int32_t>(n)}));
  slabs_.push_back(std::move(slab));
  for (Stretch& stretch : fresh) stretch.slab = &slabs_.back();
  others_.splice(others_.end(), fresh);
  for (std::int64_t n = 0; n < pages;) {
    const int aligned = n == 0 ? most_order : std::countr_zero(static_cast<std::uint64_t>(n));
    const int order = std::min(order_within(pages - n), aligned);
    free_stretch(*slabs_.back().at[static_cast<std::size_t>(n)], order);
    n += std::int64_t{1} << order;
  }
  pages_ += pages;
  free_pages_ += pages;
}

// A free stretch of 2^order pages, from the smallest free one that is at least as large. Null: there is none.
PageMemory::Stretch* PageMemory::cut(int order) noexcept {
  int found = order;
  while (found <= most_order && free_[static_cast<std::size_t>(found)].empty()) ++found;
  if (found > most_order) return nullptr;
  Stretch& stretch = free_[static_cast<std::size_t>(found)].front();
  while (found > order) {
    --found;
    free_stretch(*stretch.slab->at[static_cast<std::size_t>(stretch.begin + (1 << found))], found);
    free_stretch(stretch, found);
  }
  return &stretch;
}

void PageMemory::use(const Page& page) noexcept {
  Stretch& stretch = *page.stretch;
  Stretches& from = list_of(stretch);
  waiting_ += stretch.free ? (1 << stretch.order) - 1 : -1;
  stretch.free = false;
  stretch.used_pages = static_cast<std::uint8_t>(stretch.used_pages | 1u << page.number);
  Stretches& to = list_of(stretch);
  to.splice(to.end(), from, stretch.slab->at[static_cast<std::size_t>(stretch.begin)]);
  ++stretch.slab->used;
  --free_pages_;
}

// Forks go on from one page, and each may leave a stretch with a single used page: so the bound is on all of
// them together.
std::int64_t PageMemory::wanted(const Wish& wish) const noexcept {
  const std::int64_t used = pages_ - free_pages_;
  return std::max(wish.needed, std::min(wish.present / 4, used / 4 - waiting_ + 1));
}

PageMemory::Page PageMemory::take(const Wish& wish, std::int64_t allowed) {
  const auto taken = [&](Stretch& stretch, int number) {
    const Page page{&stretch, number};
    use(page);
    return page;
  };
  const Page& last = wish.last;
  if (last.stretch && last.number + 1 < 1 << last.stretch->order &&
      (last.stretch->used_pages >> (last.number + 1) & 1u) == 0)
    return taken(*last.stretch, last.number + 1);
  const auto first_waiting = [&] {
    Stretch& stretch = partly_.front();
    return taken(stretch, std::countr_one(stretch.used_pages));
  };
  const int order = order_within(wanted(wish));
  if (order == 0 && waiting_ > (pages_ - free_pages_) / 4) return first_waiting();
  if (Stretch* stretch = cut(order)) return taken(*stretch, 0);
  // A better place is worth new memory only where few pages are free, and none is worth an error.
  if (allowed > 0 && free_pages_ <= (pages_ - free_pages_) / 4) {
    try {
      add_slab(order, allowed);
    } catch (const std::bad_alloc&) {
    }
  }
  for (int smaller = order; smaller >= 0; --smaller) {
    if (Stretch* stretch = cut(smaller)) return taken(*stretch, 0);
  }
  if (partly_.empty()) {
    add_slab(0, 1);
    return taken(*cut(0), 0);
  }
  return first_waiting();
}

void PageMemory::give_back(const Page& page) noexcept {
  Stretch* stretch = page.stretch;
  Slab& slab = *stretch->slab;
  Stretches& from = list_of(*stretch);
  stretch->used_pages = static_cast<std::uint8_t>(stretch->used_pages & ~(1u << page.number));
  --slab.used;
  ++free_pages_;
  waiting_ += stretch->used_pages != 0 ? 1 : 1 - (1 << stretch->order);
  Stretches& to = stretch->used_pages != 0 ? partly_ : others_;
  to.splice(to.end(), from, slab.at[static_cast<std::size_t>(stretch->begin)]);
  if (stretch->used_pages != 0) return;
  int order = stretch->order;
  for (; order < most_order; ++order) {
    const std::int32_t pages = 1 << order, beside = stretch->begin ^ pages;
    if (beside + pages > slab.pages) break;
    Stretch& other = *slab.at[static_cast<std::size_t>(beside)];
    if (!other.free || other.order != order) break;
    move(other, others_);
    other.free = false;
    stretch = beside < stretch->begin ? &other : stretch;
  }
  free_stretch(*stretch, order);
}

std::int64_t PageMemory::drop_free_slabs() noexcept {
  std::int64_t dropped = 0;
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    if (slab->used > 0) {
      ++slab;
      continue;
    }
    for (const Stretches::iterator& stretch : slab->at) list_of(*stretch).erase(stretch);
    dropped += slab->pages;
    slab = slabs_.erase(slab);
  }
  pages_ -= dropped;
  free_pages_ -= dropped;
  return dropped;
}

}  // namespace fovea::cache

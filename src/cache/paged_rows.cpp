// Rows in pages: position p is slot p mod page_size of page p / page_size.
#include <algorithm>

#include "cache/rows.h"

namespace fovea::cache {
namespace {

// The first append after a fork copies at most so many references to pages.
using Pages = SharedVector<Ref<Block>, 32>;

class PagedRows final : public Rows {
 public:
  PagedRows(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout)
      : Rows(std::move(pool), std::move(layout)) {}

  std::unique_ptr<Rows> fork() const override { return std::make_unique<PagedRows>(*this); }

  std::int64_t bytes_for(std::int64_t length, std::int64_t rows) const override {
    if (has_room(length, rows)) return 0;
    const std::int64_t copied = rows > 0 && shares_last_page(length) ? 1 : 0;
    return (pages_of(length + rows) - pages_of(length) + copied) * layout_->bytes;
  }

  void make_room(std::int64_t length, std::int64_t rows) override {
    if (has_room(length, rows)) return;
    const bool copies = rows > 0 && shares_last_page(length);
    Pages pages = pages_;  // so that nothing has changed where a page cannot be taken
    pages.shrink(pages_of(length));
    if (copies) {
      const std::int64_t last = length / page();
      const Block& shared = *pages[last];
      Ref<Block> copy = pool_->take_page(layout_, nullptr, 1, 0);
      shared.layout->copy_rows(shared.data, shared.first, length % page(), *copy->layout, copy->data,
                               copy->first);
      pages.own(last) = std::move(copy);
    }
    while (pages.size() < pages_of(length + rows)) {
      const std::int64_t present = pages.size();
      const Block* last = present > 0 ? pages[present - 1].get() : nullptr;
      pages.push_back(pool_->take_page(layout_, last, pages_of(length + rows) - present, present));
    }
    pages_ = std::move(pages);
  }

  Slots slots(std::int64_t position, std::int64_t count) override {
    const std::int64_t slot = position % page();
    const Block& block = *pages_[position / page()];
    return {block.layout.get(), block.data, block.first + slot, std::min(count, page() - slot)};
  }

  void runs(std::size_t index, std::int64_t length, std::vector<KeyValueRun>& to) const override {
    to.reserve(to.size() + static_cast<std::size_t>(pages_of(length)));
    for (std::int64_t begin = 0; begin < length; begin += page()) {
      const Block* block = pages_[begin / page()].get();
      if (block)
        to.push_back(
            block->layout->run(index, block->data, block->first, begin, std::min(page(), length - begin)));
    }
  }
  std::shared_ptr<const void> owner() const override { return std::make_shared<const Pages>(pages_); }

  bool can_truncate(std::int64_t length) const override { return length >= end_of_dropped_; }
  void truncate(std::int64_t length) override { pages_.shrink(pages_of(length)); }
  void checkpoint(std::int64_t) override {}
  void drop(PositionRange range) override {
    Pages pages = pages_;
    std::int64_t end = end_of_dropped_;
    for (std::int64_t n = pages_of(range.begin); n < range.end / page(); ++n) {
      if (!pages[n]) continue;
      pages.own(n) = {};
      end = std::max(end, (n + 1) * page());
    }
    pages_ = std::move(pages);
    end_of_dropped_ = end;
  }
  bool lacks_pages() const override { return end_of_dropped_ > 0; }
  void adopt(std::byte* data, const std::shared_ptr<const void>& mapping) override {
    pages_.push_back(pool_->adopt(layout_, data, mapping));
  }
  void for_blocks(const std::function<void(const Block&, bool)>& visit) const override {
    for (std::int64_t n = 0; n < pages_.size(); ++n) {
      if (pages_[n]) visit(*pages_[n], pages_.is_own(n) && pages_[n].unique());
    }
  }

  void make_known(std::int64_t number, std::uint64_t root, std::span<const std::int32_t> ids) override {
    // What follows a dropped page cannot be found: the page no longer says what stands before.
    if (number > 0 && !pages_[number - 1]) return;
    const std::uint64_t parent = number == 0 ? root : pages_[number - 1]->chain;
    if (parent != 0) pool_->make_known(*pages_[number], parent, ids);
  }
  void forget(std::int64_t number) noexcept override { pool_->forget(*pages_[number]); }
  bool take_known(std::uint64_t root, std::span<const std::int32_t> ids) override {
    Ref<Block> page = pool_->find(pages_.size() == 0 ? root : pages_[pages_.size() - 1]->chain, ids);
    if (!page) return false;
    pages_.push_back(std::move(page));
    return true;
  }

 private:
  std::int64_t page() const { return layout_->rows; }
  std::int64_t pages_of(std::int64_t rows) const { return (rows + page() - 1) / page(); }
  // Whether this sequence alone holds the page, on every level. A page that can be found, or lies in a file,
  // is never written.
  bool is_own(std::int64_t number) const {
    return pages_.is_own(number) && pages_[number].unique() && pages_[number]->chain == 0 &&
           !pages_[number]->mapping;
  }
  bool shares_last_page(std::int64_t length) const {
    return length % page() != 0 && !is_own(length / page());
  }
  bool has_room(std::int64_t length, std::int64_t rows) const {
    if (pages_.size() != pages_of(length + rows)) return false;
    for (std::int64_t n = length / page(); n < pages_.size(); ++n) {
      if (!is_own(n)) return false;
    }
    return true;
  }

  Pages pages_;  // a page that was dropped is empty
  std::int64_t end_of_dropped_ = 0;
};

}  // namespace

std::unique_ptr<Rows> start_paged(std::shared_ptr<Pool> pool, std::shared_ptr<const BlockLayout> layout) {
  return std::make_unique<PagedRows>(std::move(pool), std::move(layout));
}

}  // namespace fovea::cache

#include "cache/page_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fovea/cache/kv_cache.h"
#include "fovea/core/memory.h"
#include "fovea/core/philox.h"

namespace fovea::cache {
namespace {

// Pages of so many bytes: 4 rows of 16 elements in each of `heads` heads.
std::shared_ptr<const BlockLayout> layout_of(std::int64_t heads) {
  const CacheLayer spec{.num_kv_heads = heads, .head_dim = 16, .value_dim = 16};
  return std::make_shared<const BlockLayout>(BlockLayout::of({{.number = 0, .spec = spec}}, 4));
}

constexpr std::int64_t any = 1 << 20;

TEST(PageMemory, GivesTheNextPageOfAStretchToWhoHasTheLast) {
  PageMemory memory(layout_of(2));
  const PageMemory::Page first = memory.take({.needed = 4}, any), other = memory.take({.needed = 4}, any);
  const PageMemory::Page second = memory.take({.last = first, .needed = 4}, any);
  EXPECT_EQ(second.stretch, first.stretch);
  EXPECT_EQ(second.number, 1);
  EXPECT_NE(other.stretch, first.stretch);
  EXPECT_EQ(memory.first_slot(second), 4);
  EXPECT_EQ(memory.layout(second)->rows, 16);
  // Another one who has the first page does not get the second again.
  EXPECT_NE(memory.take({.last = first}, any).stretch, first.stretch);
  memory.give_back(second);
  EXPECT_EQ(memory.take({.last = first}, any).number, 1);
}

TEST(PageMemory, TakesNoMoreThanIsAllowedWhileAPageIsFree) {
  PageMemory memory(layout_of(2));
  const PageMemory::Page first = memory.take({.needed = 8}, 8);
  ASSERT_EQ(memory.pages(), 8);
  std::set<std::pair<PageMemory::Stretch*, int>> pages{{first.stretch, first.number}};
  for (int n = 1; n < 8; ++n) {
    const PageMemory::Page page = memory.take({.needed = 8}, 0);
    EXPECT_TRUE(pages.emplace(page.stretch, page.number).second);
  }
  EXPECT_EQ(memory.pages(), 8);
  EXPECT_FALSE(memory.has_free());
  (void)memory.take({.needed = 8}, 0);
  EXPECT_EQ(memory.pages(), 9);
}

TEST(PageMemory, HoldsNoPageTwiceAndJoinsHalvesThatAreFree) {
  for (const std::int64_t heads : {1, 300}) {  // many pages in a slab; 153,600 bytes each, which are 13
    PageMemory memory(layout_of(heads));
    PhiloxStream random(static_cast<std::uint64_t>(heads));
    std::vector<PageMemory::Page> held;
    std::set<const std::byte*> places;  // of the first row of each page
    const auto place = [&](const PageMemory::Page& page) {
      return memory.data(page) + memory.first_slot(page) * 16 * 4;
    };
    for (int step = 0; step < 20000; ++step) {
      // It grows, and shrinks to nothing, again and again.
      if (held.empty() || random.next_below(100) < (step / 1000 % 2 == 0 ? 60 : 40)) {
        const PageMemory::Page last = held.empty() || random.next_below(4) == 0
                                          ? PageMemory::Page()
                                          : held[random.next_below(static_cast<std::uint32_t>(held.size()))];
        held.push_back(
            memory.take({.last = last, .needed = 1 + random.next_below(12), .present = random.next_below(40)},
                        random.next_below(8) == 0 ? 0 : 40));
        ASSERT_TRUE(places.insert(place(held.back())).second) << "step " << step;
      } else {
        const std::size_t n = random.next_below(static_cast<std::uint32_t>(held.size()));
        places.erase(place(held[n]));
        memory.give_back(std::exchange(held[n], held.back()));
        held.pop_back();
      }
      ASSERT_EQ(memory.has_free(), memory.pages() > static_cast<std::int64_t>(held.size()));
    }
    for (const PageMemory::Page& page : held) memory.give_back(page);
    const std::int64_t pages = memory.pages();
    // All memory is in the largest stretches again.
    std::map<const PageMemory::Slab*, std::int64_t> in_largest;
    while (memory.has_free()) {
      const PageMemory::Page page = memory.take({.needed = 8}, 0);
      in_largest[page.stretch->slab] += page.stretch->order == PageMemory::most_order ? 1 : 0;
    }
    EXPECT_EQ(memory.pages(), pages);
    for (const auto& [slab, count] : in_largest) EXPECT_EQ(count, slab->pages / 8 * 8);
  }
}

TEST(PageMemory, DropsSlabsWithoutAUsedPage) {
  PageMemory memory(layout_of(300));
  const PageMemory::Page kept = memory.take({}, any);  // alone, on small pages
  std::vector<PageMemory::Page> others;
  for (int n = 0; n < 30; ++n) others.push_back(memory.take({.needed = 2}, any));
  for (const PageMemory::Page& page : others) memory.give_back(page);
  const std::int64_t pages = memory.pages();
  EXPECT_EQ(memory.drop_free_slabs(), pages - 1);
  EXPECT_EQ(memory.pages(), 1);
  EXPECT_FALSE(memory.has_free());
  memory.give_back(kept);
  EXPECT_EQ(memory.drop_free_slabs(), 1);
  EXPECT_EQ(memory.drop_free_slabs(), 0);
}

// Each page of a chain goes on from a fork whose other side took the next page, and gave it back.
TEST(PageMemory, LetsNoMoreThanAQuarterWaitBehindForks) {
  PageMemory memory(layout_of(2));
  std::vector<PageMemory::Page> pages{memory.take({}, any)};
  for (std::int64_t n = 1; n < 400; ++n) {
    const PageMemory::Wish wish{.last = pages.back(), .present = n};
    const PageMemory::Page one = memory.take(wish, any), other = memory.take(wish, any);
    memory.give_back(one);
    pages.push_back(other);
  }
  std::set<const PageMemory::Stretch*> stretches;
  std::int64_t held = 0;
  for (const PageMemory::Page& page : pages) {
    if (stretches.insert(page.stretch).second) held += 1 << page.stretch->order;
  }
  EXPECT_LE(held, 400 + 400 / 4 + 1);  // and the page that was given back last
}

// Whole stretches stay whole while many pages wait in others.
TEST(PageMemory, TakesSinglePagesFromStretchesThatAreUsedInPart) {
  PageMemory memory(layout_of(300));
  std::vector<PageMemory::Page> pages{memory.take({.needed = 8}, 16)};
  for (int n = 1; n < 8; ++n) pages.push_back(memory.take({.last = pages.back()}, 0));
  const PageMemory::Page other = memory.take({.needed = 8}, 16);
  memory.give_back(other);
  ASSERT_NE(other.stretch, pages[0].stretch);
  for (const int n : {1, 3, 4, 5, 7}) memory.give_back(pages[static_cast<std::size_t>(n)]);
  // Until no more than a quarter as many wait as are used.
  for (int n = 0; n < 4; ++n) EXPECT_EQ(memory.take({}, any).stretch, pages[0].stretch) << n;
}

// Texts of one page end, and another one grows: it uses what they left before there is new memory.
TEST(PageMemory, UsesWhatEndedTextsLeft) {
  PageMemory memory(layout_of(300));
  std::vector<PageMemory::Page> short_texts;
  for (int n = 0; n < 256; ++n) short_texts.push_back(memory.take({}, any));
  for (std::size_t n = 0; n < short_texts.size(); n += 2) memory.give_back(short_texts[n]);
  PageMemory::Page last{};
  for (std::int64_t n = 0; n < 256; ++n) last = memory.take({.last = last, .present = n}, any);
  constexpr std::int64_t used = 128 + 256, slab = 13;
  EXPECT_LE(memory.pages(), used + used / 4 + slab);
}

// A short text touches little of it, and huge pages would bring in all of it.
TEST(KvCache, TheFirstPageIsNotInTheRegionsOfTensors) {
  if (tensor_memory().requests == 0) {
    const Tensor large(DType::f32, {1 << 16});
    if (tensor_memory().requests == 0) GTEST_SKIP() << "a sanitizer has tensors from operator new";
  }
  KvCache cache({.layers = {{.num_kv_heads = 4, .head_dim = 128, .store = Paged{64}}}});
  Sequence s = cache.start();
  const std::size_t before = tensor_memory().used;
  cache.reserve(s, 64);
  EXPECT_EQ(tensor_memory().used, before);
  EXPECT_EQ(cache.bytes().free, 0);
  cache.reserve(s, 65);
  EXPECT_GT(tensor_memory().used, before);
  EXPECT_GT(cache.bytes().free, 0);
}

// Texts that grow in turns, a page at a time, beside each other.
TEST(KvCache, MostPagesOfALongSequenceLieBehindTheOneBefore) {
  KvCache cache({.layers = {{.num_kv_heads = 3, .head_dim = 8, .store = Paged{4}},
                            {.num_kv_heads = 1, .head_dim = 16, .value_dim = 8, .store = Paged{4}}}});
  std::vector<Sequence> sequences;
  for (int n = 0; n < 3; ++n) sequences.push_back(cache.start());
  constexpr std::int64_t pages = 64;
  const Tensor x = Tensor::zeros(DType::f32, {1, 3, 4, 8}), key = Tensor::zeros(DType::f32, {1, 1, 4, 16}),
               value = Tensor::zeros(DType::f32, {1, 1, 4, 8});
  for (std::int64_t n = 0; n < pages; ++n) {
    for (Sequence& s : sequences) {
      cache.reserve(s, 4);
      cache.append(0, s, x, x);
      cache.append(1, s, key, value);
      cache.commit(s);
    }
  }
  for (const Sequence& s : sequences) {
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      const KeyValueView view = cache.view(layer, s);
      ASSERT_EQ(std::ssize(view.runs), pages);
      std::int64_t jumps = 0;
      for (std::size_t n = 1; n < view.runs.size(); ++n) {
        const KeyValueRun &before = view.runs[n - 1], &run = view.runs[n];
        const bool key_follows = run.key == before.key + before.count * view.key_row_stride * 4,
                   value_follows = run.value == before.value + before.count * view.value_row_stride * 4;
        EXPECT_EQ(key_follows, value_follows);
        jumps += key_follows ? 0 : 1;
      }
      // Stretches of 1 page up to 8 pages, of 2 up to 16, of 4 up to 32, then of 8.
      EXPECT_LE(jumps, 8 + 4 + 4 + 4);
    }
  }
}

}  // namespace
}  // namespace fovea::cache

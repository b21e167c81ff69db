// Batches of texts of similar length.
#include "fovea/models/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::models {
namespace {

TEST(Batches, HoldEachTextOnceAmongTextsOfItsLength) {
  const std::vector<std::int64_t> lengths{5, 0, 2, 9, 5, 1, 0, 7, 2};
  for (const std::int64_t size : {1, 2, 3, 20}) {
    std::mutex mutex;
    std::vector<std::vector<std::size_t>> batches;
    for_batches(lengths, size, [&](std::span<const std::size_t> texts) {
      const std::lock_guard lock(mutex);
      batches.emplace_back(texts.begin(), texts.end());
    });
    std::vector<std::size_t> all;
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    for (const std::vector<std::size_t>& texts : batches) {
      ASSERT_FALSE(texts.empty());
      EXPECT_LE(std::ssize(texts), size);
      all.insert(all.end(), texts.begin(), texts.end());
      ranges.emplace_back(lengths[texts.front()], lengths[texts.back()]);
    }
    std::ranges::sort(all);
    EXPECT_EQ(all, (std::vector<std::size_t>{0, 2, 3, 4, 5, 7, 8}));
    std::ranges::sort(ranges);
    for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  }
}

TEST(Batches, OfFewTextsAreSmallerForAnyNumberOfThreads) {
  struct Case {
    std::size_t texts;
    std::int64_t size;
    std::vector<std::size_t> batches;
  };
  for (const int threads : {1, 2, 5}) {
    const std::unique_ptr<Executor> pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    for (const Case& c : {Case{3, 32, {3}}, Case{9, 32, {4, 4, 1}}, Case{32, 32, {8, 8, 8, 8}},
                          Case{9, 3, {3, 3, 3}}, Case{160, 32, {32, 32, 32, 32, 32}}}) {
      std::mutex mutex;
      std::vector<std::size_t> sizes;
      for_batches(std::vector<std::int64_t>(c.texts, 5), c.size, [&](std::span<const std::size_t> texts) {
        const std::lock_guard lock(mutex);
        sizes.push_back(texts.size());
      });
      std::ranges::sort(sizes, std::greater());
      EXPECT_EQ(sizes, c.batches) << threads << " threads, " << c.texts << " texts";
    }
    set_default_executor(nullptr);
  }
}

TEST(Batches, AnExceptionOfOneIsThrown) {
  const std::vector<std::int64_t> lengths{1, 2, 3};
  EXPECT_THROW(for_batches(lengths, 1,
                           [](std::span<const std::size_t> texts) {
                             if (texts.front() == 1) throw InvalidArgument("test", "text", "another", "this");
                           }),
               InvalidArgument);
  EXPECT_THROW(for_batches(lengths, 0, [](std::span<const std::size_t>) {}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::models

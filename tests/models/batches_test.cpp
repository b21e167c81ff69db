// Batches of texts of similar length.
#include "fovea/models/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/core/memory.h"
#include "fovea/core/tensor.h"

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

TEST(Batches, AreEvenWorkForTwoAndFourThreadsWhateverTheirNumber) {
  struct Case {
    std::size_t texts;
    std::int64_t size;
    std::vector<std::size_t> batches;
  };
  for (const int threads : {1, 2, 5}) {
    const std::unique_ptr<Executor> pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    for (const Case& c :
         {Case{3, 32, {3}}, Case{9, 32, {3, 3, 3}}, Case{32, 32, {8, 8, 8, 8}}, Case{9, 3, {3, 3, 3}},
          Case{160, 32, std::vector<std::size_t>(8, 20)}, Case{182, 32, {23, 23, 23, 23, 23, 23, 22, 22}},
          Case{33, 8, {5, 4, 4, 4, 4, 4, 4, 4}}}) {
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

// Memory of this size goes back to the system where nothing keeps it.
TEST(Batches, FindTheMemoryOfTheBatchBefore) {
  const std::unique_ptr<Executor> pool = make_thread_pool(1);
  set_default_executor(pool.get());
  const std::int64_t before = tensor_memory().requests;
  for_batches(std::vector<std::int64_t>(64, 5), 8, [](std::span<const std::size_t>) {
    const Tensor memory(DType::f32, {std::int64_t{40} << 20});
  });
  set_default_executor(nullptr);
  EXPECT_LE(tensor_memory().requests - before, 1);
}

// Of four batches two threads begin with the two longest, each with one of them.
TEST(Batches, TheLongestBeginOnAllThreads) {
  const std::unique_ptr<Executor> pool = make_thread_pool(2);
  set_default_executor(pool.get());
  std::vector<std::int64_t> lengths(16);
  std::iota(lengths.begin(), lengths.end(), 1);
  std::latch both(2);
  std::mutex mutex;
  std::vector<std::size_t> begun;
  for_batches(lengths, 4, [&](std::span<const std::size_t> texts) {
    bool waits = false;
    {
      const std::lock_guard lock(mutex);
      waits = begun.size() < 2;
      begun.push_back(texts.front());
    }
    if (waits) both.arrive_and_wait();
  });
  set_default_executor(nullptr);
  ASSERT_EQ(begun.size(), 4U);
  begun.resize(2);
  std::ranges::sort(begun);
  EXPECT_EQ(begun, (std::vector<std::size_t>{8, 12}));
}

// The longest text is worked on first, and handed on in its turn.
TEST(Batches, AreHandedOnInTheOrderOfTheTexts) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 40; ++i) lengths.push_back(i * 7 % 11);
  for (const int threads : {1, 2, 5}) {
    const std::unique_ptr<Executor> pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    for (const std::int64_t size : {1, 3, 100}) {
      std::vector<char> worked(lengths.size());
      std::vector<std::size_t> handed_on;
      for_batches_in_order(
          lengths, size,
          [&](std::span<const std::size_t> texts) {
            for (const std::size_t text : texts) worked[text] = 1;
            return true;
          },
          [&](std::size_t text) {
            EXPECT_TRUE(worked[text] || lengths[text] == 0) << text;
            handed_on.push_back(text);
          });
      ASSERT_EQ(handed_on.size(), lengths.size());
      for (std::size_t i = 0; i < handed_on.size(); ++i) EXPECT_EQ(handed_on[i], i);
    }
    set_default_executor(nullptr);
  }
}

// Otherwise the first answer of a window of equal lines would come last.
TEST(Batches, OfTextsOfOneLengthTheFirstBeginFirst) {
  std::vector<std::size_t> begun;
  set_default_executor(&serial_executor());
  for_batches(std::vector<std::int64_t>(64, 5), 8, [&](std::span<const std::size_t> texts) {
    begun.insert(begun.end(), texts.begin(), texts.end());
  });
  set_default_executor(nullptr);
  ASSERT_EQ(begun.size(), 64u);
  for (std::size_t batch = 0; batch < 8; ++batch) {
    std::sort(begun.begin() + static_cast<std::ptrdiff_t>(8 * batch),
              begun.begin() + static_cast<std::ptrdiff_t>(8 * (batch + 1)));
  }
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(begun[i], i);
}

TEST(Batches, NothingIsHandedOnBehindOneThatWasCancelled) {
  std::vector<std::size_t> handed_on;
  for_batches_in_order(
      std::vector<std::int64_t>{0, 3, 2, 0, 1}, 1,
      [](std::span<const std::size_t> texts) { return texts.front() != 2; },
      [&](std::size_t text) { handed_on.push_back(text); });
  EXPECT_EQ(handed_on, (std::vector<std::size_t>{0, 1}));
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

TEST(Batches, NothingIsDoneBehindTheFirstFailure) {
  const std::vector<std::int64_t> lengths{3, 0, 2, 5, 4, 1, 6, 2, 0, 7, 3, 2};
  for (const int threads : {1, 2, 5}) {
    const std::unique_ptr<Executor> pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    for (std::size_t bad = 0; bad < lengths.size(); ++bad) {
      std::vector<std::size_t> handed;
      const auto done = [&](std::size_t text) {
        handed.push_back(text);
        if (text >= bad) throw std::runtime_error(std::to_string(text));
      };
      try {
        for_batches_in_order(
            lengths, 4, [](std::span<const std::size_t>) { return true; }, done);
        ADD_FAILURE() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), std::to_string(bad));
      }
      EXPECT_EQ(handed.size(), bad + 1) << threads << " threads";
    }
    set_default_executor(nullptr);
  }
}

}  // namespace
}  // namespace fovea::models

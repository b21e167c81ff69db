// Saved sequences whose pages lie in the file, are shared by threads, or lose their file. FOVEA_CACHE_KILLS
// sets how often a process is killed while it saves.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "cache/saved_sequence.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/philox.h"

namespace fovea {
namespace {

using testing::add;
using testing::bytes_of;
using testing::CacheFile;
using testing::every_store;
using testing::expect_same;
using testing::rows_of;

TEST_F(CacheFile, PagesWithIdsAreFoundAgainUnderTheSaltOfTheLoad) {
  KvCacheOptions options = every_store().front();
  options.prefix_bytes = 1 << 20;
  KvCache cache(options), other(options);
  Sequence s = cache.start();
  add(cache, s, 11, 1);
  cache.save(s, file());
  const std::vector<std::int32_t> ids = cache.ids(s);
  for (const CacheMemory memory : {CacheMemory::copied, CacheMemory::mapped}) {
    const std::uint64_t salt = memory == CacheMemory::copied ? 4 : 5;
    Sequence t = other.load(file(), {.salt = salt, .memory = memory});
    EXPECT_EQ(other.find_prefix(ids, salt), 8);
    EXPECT_EQ(other.find_prefix(ids), 0);
    other.release(t);
    Sequence again = other.start(ids, salt);
    EXPECT_EQ(other.length(again), 8) << "the pages are kept, in the file if they lie there";
    add(other, again, 9, 3);
    Sequence whole = cache.fork(s);
    cache.truncate(whole, 8);
    add(cache, whole, 9, 3);
    expect_same(cache, whole, other, again);
  }
}

TEST_F(CacheFile, AMappedFileMayBeReplacedOrRemoved) {
  const KvCacheOptions options = every_store().front();
  KvCache cache(options), other(options);
  Sequence s = cache.start(), shorter = cache.start();
  add(cache, s, 29, 1);
  add(cache, shorter, 2, 2);
  cache.save(s, file());
  const Sequence t = other.load(file(), {.memory = CacheMemory::mapped});
  cache.save(shorter, file());
  expect_same(cache, s, other, t);
  const Sequence u = other.load(file(), {.memory = CacheMemory::mapped});
  std::filesystem::remove(file());
  expect_same(cache, shorter, other, u);
  other.save(t, file());  // a sequence may be saved over the file in which it lies
  const Sequence v = other.load(file(), {.memory = CacheMemory::mapped});
  other.save(v, file());
  expect_same(cache, s, other, v);
  KeyValueView view;
  {
    KvCache third(options);
    Sequence w = third.load(file(), {.memory = CacheMemory::mapped});
    view = third.view(0, w);
  }
  EXPECT_EQ(rows_of(view), rows_of(cache.view(0, s))) << "a view outlives the cache";
}

TEST_F(CacheFile, ACopyDoesNotNeedTheFileAnyMore) {
  KvCache cache(every_store().front()), other(every_store().front());
  Sequence s = cache.start();
  add(cache, s, 29, 1);
  cache.save(s, file());
  const Sequence t = other.load(file());
  std::filesystem::resize_file(file(), 0);
  expect_same(cache, s, other, t);
}

TEST_F(CacheFile, AMappedPageIsCopiedBeforeItIsWritten) {
  const CacheLayer layer{.num_kv_heads = 2, .head_dim = 4, .store = Paged{4}};
  const std::int64_t page = 2 * 2 * 4 * 4 * 4;
  KvCache cache({.layers = {layer}}), other({.layers = {layer}});
  Sequence s = cache.start();
  add(cache, s, 16, 1, false);  // a page with ids is copied because it can be found
  cache.save(s, file());
  const std::string saved = bytes_of(file());
  Sequence t = other.load(file(), {.memory = CacheMemory::mapped});
  EXPECT_EQ(other.bytes().mapped, 4 * page);
  EXPECT_EQ(other.bytes().used, 4 * page);
  for (Sequence* one : {&s, &t}) {
    KvCache& of = one == &s ? cache : other;
    of.truncate(*one, 10);
    add(of, *one, 5, 3, false);
  }
  expect_same(cache, s, other, t);
  EXPECT_EQ(other.bytes().mapped, 2 * page);
  EXPECT_EQ(bytes_of(file()), saved);
}

// ThreadSanitizer watches this one.
TEST_F(CacheFile, ThreadsShareAMapping) {
  const KvCacheOptions options = every_store().front();
  KvCache cache(options);
  Sequence s = cache.start();
  add(cache, s, 29, 1);
  cache.save(s, file());
  std::vector<std::thread> threads;
  Sequence mapped = cache.load(file(), {.memory = CacheMemory::mapped});
  std::vector<Sequence> forks;
  for (int n = 0; n < 4; ++n) forks.push_back(cache.fork(mapped));
  cache.release(mapped);
  const auto expected = rows_of(cache.view(0, s));
  std::atomic<int> wrong{0};
  for (std::size_t n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      for (int round = 0; round < 50; ++round) {
        Sequence own = cache.fork(forks[n]);
        cache.truncate(own, 9 + round % 9);
        add(cache, own, 3, n);
        const Sequence loaded = cache.load(file(), {.salt = n, .memory = CacheMemory::mapped});
        if (rows_of(cache.view(0, loaded)) != expected) ++wrong;
      }
      cache.release(forks[n]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.bytes().mapped, 0);
}

TEST_F(CacheFile, AKilledProcessLeavesTheOldFileOrTheNewOne) {
  const char* given = std::getenv("FOVEA_CACHE_KILLS");
  const int kills = given ? std::atoi(given) : 10;
  const KvCacheOptions options{.layers = {{.num_kv_heads = 2, .head_dim = 32, .store = Paged{16}}}};
  KvCache cache(options);
  Sequence first = cache.start(), second = cache.start();
  add(cache, first, 200, 1);
  add(cache, second, 300, 2);
  cache.save(first, file());
  PhiloxStream random(7);
  int changed = 0;
  std::int64_t before = 200;
  for (int n = 0; n < kills; ++n) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) {
        cache.save(second, file());
        cache.save(first, file());
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random.next_below(20000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    KvCache other(options);
    const Sequence t = other.load(file());
    const std::int64_t length = other.length(t);
    ASSERT_TRUE(length == 200 || length == 300) << length;
    ASSERT_NO_FATAL_FAILURE(expect_same(cache, length == 200 ? first : second, other, t));
    changed += length != before;
    before = length;
  }
  if (kills >= 100) EXPECT_GT(changed, 0) << "no child ever came to saving";
}

}  // namespace
}  // namespace fovea

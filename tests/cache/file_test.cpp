// A sequence in a file: what is loaded is what was saved, and a file that is damaged, foreign or too large is
// refused before anything changes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cache/saved_sequence.h"
#include "core/crc32c.h"
#include "files/fuzz_count.h"
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
using testing::write_bytes;

TEST_F(CacheFile, HoldsWhatWasSavedAndContinuesAsTheSequence) {
  for (const KvCacheOptions& options : every_store()) {
    for (const std::int64_t length : {0, 1, 2, 4, 7, 16, 29}) {
      KvCache cache(options);
      Sequence s = cache.start();
      add(cache, s, length + 3, 1);
      cache.truncate(s, length);  // rows of the file that hold nothing are zero, whatever was there
      cache.save(s, file(), "note");
      const std::string saved = bytes_of(file());
      ASSERT_EQ(saved.size() % 4096, 0u);
      for (const CacheMemory memory : {CacheMemory::copied, CacheMemory::mapped}) {
        KvCache other(options);
        Sequence t = other.load(file(), {.note = "note", .memory = memory});
        ASSERT_NO_FATAL_FAILURE(expect_same(cache, s, other, t));
        other.save(t, path("again"), "note");
        ASSERT_EQ(bytes_of(path("again")), saved);
        Sequence fork = cache.fork(s);
        add(cache, fork, 2, 5);
        add(other, t, 2, 5);
        ASSERT_NO_FATAL_FAILURE(expect_same(cache, fork, other, t));
        cache.truncate(fork, length);
        other.truncate(t, length);
        add(cache, fork, 20, 7);
        add(other, t, 20, 7);
        ASSERT_NO_FATAL_FAILURE(expect_same(cache, fork, other, t));
        other.release(t);
        EXPECT_EQ(other.bytes().used, 0);
        EXPECT_EQ(other.bytes().mapped, 0);
      }
      ASSERT_EQ(bytes_of(file()), saved) << "a mapping was written through";
    }
  }
}

TEST_F(CacheFile, HoldsTheCheckpointsOfARing) {
  KvCache cache(every_store().back()), other(every_store().back());
  Sequence s = cache.start();
  for (const std::int64_t rows : {1, 12, 30}) {
    add(cache, s, rows, 1);
    cache.checkpoint(s);
  }
  add(cache, s, 20, 1);
  cache.save(s, file());
  Sequence t = other.load(file());
  const std::string saved = bytes_of(file());
  other.save(t, path("again"));
  EXPECT_EQ(bytes_of(path("again")), saved);
  expect_same(cache, s, other, t);
  for (const std::int64_t length : {43, 13, 1}) {
    Sequence a = cache.fork(s), b = other.fork(t);
    cache.truncate(a, length);
    other.truncate(b, length);
    expect_same(cache, a, other, b);
    add(cache, a, 25, 4);
    add(other, b, 25, 4);
    expect_same(cache, a, other, b);
  }
  EXPECT_THROW(other.truncate(t, 30), InvalidArgument);
}

TEST_F(CacheFile, OfRowsWithoutIdsHoldsTheIdsBeforeThem) {
  KvCache cache(every_store().front());
  Sequence s = cache.start();
  add(cache, s, 7, 1);
  add(cache, s, 3, 2, false);
  add(cache, s, 3, 3);
  cache.save(s, file());
  KvCache other(every_store().front());
  const Sequence t = other.load(file());
  expect_same(cache, s, other, t);
  EXPECT_EQ(other.ids(t).size(), 7u);
}

TEST_F(CacheFile, IsLoadedByAnotherProcess) {
  for (const KvCacheOptions& options : {every_store().front(), every_store().back()}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      KvCache cache(options);
      Sequence s = cache.start();
      add(cache, s, 29, 1);
      cache.save(s, file());
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    KvCache here(options), there(options);
    Sequence s = here.start();
    add(here, s, 29, 1);
    const Sequence t = there.load(file());
    expect_same(here, s, there, t);
  }
}

// What the FileError of loading says; "" if it loads.
std::string refusal(KvCache& cache, const std::string& path, const CacheLoadOptions& options = {}) {
  try {
    static_cast<void>(cache.load(path, options));
  } catch (const FileError& error) {
    EXPECT_EQ(error.file(), path);
    EXPECT_EQ(cache.bytes().used, 0);
    EXPECT_LT(std::strlen(error.what()), 1000u);
    return error.what();
  }
  return "";
}

void expect_says(const std::string& what, const std::string& words) {
  EXPECT_NE(what.find(words), std::string::npos) << what;
}

TEST_F(CacheFile, CutOrFlippedAnywhereIsRefused) {
  const CacheLayer one{.num_kv_heads = 1, .head_dim = 3, .store = Paged{4}};
  KvCacheOptions options{.layers = {one, one}};
  options.layers[1].store = Ring{.window = 9, .sinks = 2, .slack = 5};
  KvCache cache(options), other(options);
  Sequence s = cache.start();
  add(cache, s, 29, 1);
  cache.save(s, file());
  const std::string good = bytes_of(file());
  EXPECT_EQ(refusal(other, file()), "");
  PhiloxStream random(5);
  for (const CacheMemory memory : {CacheMemory::copied, CacheMemory::mapped}) {
    // Of the mapping every seventh byte, because both are read by the same code.
    const std::size_t step = memory == CacheMemory::copied ? 1 : 7;
    for (std::size_t at = 0; at < good.size(); at += step) {
      std::string bad = good;
      bad[at] ^= static_cast<char>(1u << random.next_below(8));
      write_bytes(file(), bad);
      ASSERT_NE(refusal(other, file(), {.memory = memory}), "") << "byte " << at;
      write_bytes(file(), good.substr(0, at));
      ASSERT_NE(refusal(other, file(), {.memory = memory}), "") << "cut to " << at;
    }
  }
  write_bytes(file(), good + std::string(4096, '\0'));
  expect_says(refusal(other, file()), "was saved with " + std::to_string(good.size()) + " bytes, and holds");
}

// Gives a changed header its checksum, so that what lies behind the check is tested.
std::string sealed(std::string bytes) {
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data() + 16, 8);
  header = std::min<std::uint64_t>(header, bytes.size());
  if (header < 36) return bytes;
  const std::uint32_t checksum = crc32c(bytes.data() + 36, header - 36, crc32c(bytes.data(), 32));
  std::memcpy(bytes.data() + 32, &checksum, 4);
  return bytes;
}
std::string with(std::string bytes, std::size_t at, std::uint64_t value, std::size_t size = 8) {
  std::memcpy(bytes.data() + at, &value, size);
  return sealed(bytes);
}

TEST_F(CacheFile, NamesWhatIsWrong) {
  KvCache cache(every_store().front()), other(every_store().front());
  Sequence s = cache.start();
  add(cache, s, 29, 1);
  cache.save(s, file(), "model 1");
  const std::string good = bytes_of(file());
  const auto says = [&](const std::string& bytes, const std::string& words) {
    write_bytes(file(), bytes);
    expect_says(refusal(other, file(), {.note = "model 1"}), words);
  };
  says("", "holds 0 bytes, too few");
  says(std::string(5000, 'x'), "is no sequence of a cache");
  says(with(good, 12, 1, 4), "expected format version 2, got 1");
  says(with(good, 8, 0x04030201, 4), "the other byte order");
  says(with(good, 16, 1 << 30), "expected a header of a multiple of 4096 bytes");
  // The fields behind the prelude: layers, groups, bytes of the note, length, ids.
  says(with(good, 36, std::uint64_t{1} << 60), "the header ends early");
  says(with(good, 44, std::uint64_t{1} << 60), "the header ends early");
  says(with(good, 52, std::uint64_t{1} << 60), "the header ends early");
  says(with(good, 60, std::uint64_t{1} << 30), "expected rows of the length of the sequence, 1073741824");
  // Behind three layers and the part of the ids: how many lengths the only store has, and the first one.
  says(with(good, 276, std::uint64_t{1} << 60), "the header ends early");
  says(with(with(good, 60, std::uint64_t{1} << 30), 284, std::uint64_t{1} << 30),
       "expected the bytes of 1073741824 rows");
  says(with(good, 60, std::uint64_t{1} << 62), "expected a length from 0 to 2^30");
  says(with(good, 60, 28), "expected at most one id a row, got 29");
  says(with(good, 68, std::uint64_t{1} << 61), "expected at most one id a row");
  std::string damaged = good;
  damaged.back() = 1;
  says(damaged, "bytes from here on are damaged");
  write_bytes(file(), good);
  expect_says(refusal(other, file()), "was saved with the note 'model 1', expected ''");
  expect_says(refusal(other, path("none")), "does not exist");
  expect_says(refusal(other, folder_.string()), "is not a file that can be read");
  EXPECT_THROW(cache.save(s, file(), std::string(70000, 'n')), InvalidArgument);
  EXPECT_THROW(cache.save(s, path("nowhere/x")), FileError);
  EXPECT_EQ(bytes_of(file()), good);
}

TEST_F(CacheFile, OfAnotherCacheIsRefusedByTheFieldThatDiffers) {
  const CacheLayer layer{.num_kv_heads = 2, .head_dim = 6, .value_dim = 4};
  KvCache cache({.layers = {layer}});
  Sequence s = cache.start();
  add(cache, s, 5, 1);
  cache.save(s, file());
  const auto says = [&](const std::function<void(CacheLayer&)>& change, const std::string& words) {
    CacheLayer changed = layer;
    change(changed);
    KvCache other({.layers = {changed}});
    expect_says(refusal(other, file()), "layers[0]." + words);
  };
  says([](CacheLayer& l) { l.num_kv_heads = 3; }, "num_kv_heads = 2, and this cache has 3");
  says([](CacheLayer& l) { l.head_dim = 5; }, "head_dim = 6, and this cache has 5");
  says([](CacheLayer& l) { l.value_dim = 5; }, "value_dim = 4, and this cache has 5");
  says([](CacheLayer& l) { l.dtype = DType::bf16; }, "dtype = f32, and this cache has bf16");
  says([](CacheLayer& l) { l.values = CacheValues::first_of_keys; },
       "values = CacheValues::own, and this cache has CacheValues::first_of_keys");
  says([](CacheLayer& l) { l.store = Paged{16}; }, "store = Paged{64}, and this cache has Paged{16}");
  says([](CacheLayer& l) { l.store = Ring{.window = 3, .sinks = 1, .slack = 9}; },
       "store = Paged{64}, and this cache has Ring{3, 1, 9}");
  KvCache two({.layers = {layer, layer}});
  expect_says(refusal(two, file()), "with 1 layers, and this cache has 2");
}

TEST_F(CacheFile, MutatedHeadersAreRefusedOrFit) {
  PhiloxStream random(20261123);
  constexpr std::uint64_t numbers[] = {0, 1, 2, 5, 28, 30, 4095, 4096, 1u << 30, ~std::uint64_t{0}};
  const int trials = files::fuzz_count(3000);
  int refused = 0, loaded = 0;
  for (const KvCacheOptions& options : {every_store()[1], every_store().back()}) {
    KvCache cache(options);
    Sequence s = cache.start();
    add(cache, s, 15, 1);
    cache.checkpoint(s);
    add(cache, s, 14, 1);
    cache.save(s, file());
    const std::string good = bytes_of(file());
    const std::int64_t used = cache.bytes().used;
    for (int trial = 0; trial < trials; ++trial) {
      std::string bad = good;
      for (std::uint32_t changes = 1 + random.next_below(2); changes > 0; --changes) {
        const std::size_t at = random.next_below(500);
        const std::uint64_t number = numbers[random.next_below(std::size(numbers))];
        if (random.next_below(2) == 0) {
          bad[at] = static_cast<char>(random.next_below(256));
        } else {
          std::memcpy(bad.data() + at / 4 * 4, &number, random.next_below(2) == 0 ? 4 : 8);
        }
      }
      write_bytes(file(), sealed(bad));
      KvCache other(options);
      try {
        const Sequence t =
            other.load(file(), {.memory = trial % 2 == 0 ? CacheMemory::copied : CacheMemory::mapped});
        EXPECT_LE(other.bytes().used, used);
        for (std::int64_t l = 0; l < other.layer_count(); ++l) static_cast<void>(rows_of(other.view(l, t)));
        ++loaded;
      } catch (const FileError& error) {
        EXPECT_LT(std::strlen(error.what()), 1000u);
        EXPECT_EQ(other.bytes().used, 0);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, trials / 3);
  EXPECT_GT(loaded, trials / 300);
}

TEST_F(CacheFile, TheLimitHoldsBeforeAnythingChanges) {
  const CacheLayer layer{.num_kv_heads = 2, .head_dim = 4, .store = Paged{4}};
  const std::int64_t page = 2 * 2 * 4 * 4 * 4;
  KvCache cache({.layers = {layer}}),
      small({.layers = {layer}, .limit_bytes = 4 * page, .prefix_bytes = 2 * page});
  Sequence s = cache.start();
  add(cache, s, 13, 1);
  cache.save(s, file());
  cache.truncate(s, 9);
  cache.save(s, path("three pages"));
  for (const CacheMemory memory : {CacheMemory::copied, CacheMemory::mapped}) {
    Sequence t = small.start();
    add(small, t, 8, 3);
    small.release(t);
    ASSERT_EQ(small.bytes().prefixes, 2 * page);
    Sequence one = small.start();
    add(small, one, 1, 2);
    EXPECT_THROW(static_cast<void>(small.load(file(), {.memory = memory})), CacheFull);
    EXPECT_EQ(small.bytes().used, 3 * page);
    const Sequence three = small.load(path("three pages"), {.salt = 9, .memory = memory});
    EXPECT_EQ(small.bytes().used, 4 * page) << "prefixes make room";
    EXPECT_EQ(small.bytes().mapped, memory == CacheMemory::mapped ? 2 * page : 0);
  }
}

}  // namespace
}  // namespace fovea

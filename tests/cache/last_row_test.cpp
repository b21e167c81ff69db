// LastRow, the store of a recurrence's state, beside layers that keep all rows.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "cache/expect_refused.h"
#include "fovea/cache/kv_cache.h"

namespace fovea {
namespace {

constexpr std::int64_t size = 37;

KvCacheOptions options() {
  return {.layers = {{.head_dim = 4, .store = Paged{4}},
                     {.head_dim = size, .values = CacheValues::none, .store = LastRow{}}}};
}

// Reads `count` rows; the state is then full of `stamp`.
void read(KvCache& cache, Sequence& sequence, std::int64_t count, float stamp) {
  const Tensor rows = Tensor::normal({1, 1, count, 4}, 1);
  Tensor state(DType::f32, {size});
  state.fill(static_cast<double>(stamp));
  cache.reserve(sequence, count);
  cache.append(0, sequence, rows, rows);
  cache.replace(1, sequence, state);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  cache.commit(sequence, ids);
}

// The number that fills the state; -1: there is none.
float stamp_of(const KvCache& cache, const Sequence& sequence) {
  const ConstTensorView state = cache.last_row(1, sequence);
  if (!state) return -1.0f;
  EXPECT_EQ(state.shape(), Shape{size});
  for (std::int64_t i = 1; i < size; ++i) EXPECT_EQ(state.data<float>()[i], state.data<float>()[0]);
  return state.data<float>()[0];
}

TEST(LastRow, IsReplacedByEachCommitAndTakesTheSameMemory) {
  KvCache cache(options());
  Sequence s = cache.start();
  EXPECT_EQ(stamp_of(cache, s), -1.0f);
  read(cache, s, 1, 5.0f);
  const std::int64_t bytes = cache.bytes(s).used;
  for (const float stamp : {6.0f, 7.0f, 8.0f}) {
    read(cache, s, 1, stamp);
    EXPECT_EQ(stamp_of(cache, s), stamp);
  }
  EXPECT_EQ(cache.bytes(s).used, bytes);
  EXPECT_EQ(cache.length(s), 4);
  read(cache, s, 9, 9.0f);
  EXPECT_EQ(stamp_of(cache, s), 9.0f);
}

TEST(LastRow, OfACallThatFailedIsTheOneBefore) {
  KvCache cache(options());
  Sequence s = cache.start();
  read(cache, s, 3, 1.0f);
  Tensor state(DType::f32, {size});
  state.fill(2.0);
  cache.reserve(s, 2);
  cache.replace(1, s, state);
  expect_refused([&] { cache.commit(s); }, "sequence", "pending rows");  // layer 0 has none
  EXPECT_EQ(stamp_of(cache, s), 1.0f);
  cache.rollback(s);
  read(cache, s, 1, 3.0f);
  EXPECT_EQ(stamp_of(cache, s), 3.0f);
}

TEST(LastRow, MayBeWrittenWhereItWillLie) {
  KvCache cache(options());
  Sequence s = cache.start();
  read(cache, s, 3, 1.0f);
  const Tensor rows = Tensor::normal({1, 1, 1, 4}, 1);
  cache.reserve(s, 1);
  cache.append(0, s, rows, rows);
  const TensorView next = cache.next_row(1, s);
  EXPECT_EQ(next.shape(), Shape{size});
  std::fill_n(next.data<float>(), size, 2.0f);
  EXPECT_EQ(stamp_of(cache, s), 1.0f);  // until it is committed
  Sequence fork = cache.fork(s);
  cache.commit(s);
  EXPECT_EQ(stamp_of(cache, s), 2.0f);
  EXPECT_EQ(stamp_of(cache, fork), 1.0f);
  cache.reserve(s, 1);
  std::fill_n(cache.next_row(1, s).data<float>(), size, 3.0f);
  cache.rollback(s);
  EXPECT_EQ(stamp_of(cache, s), 2.0f);
}

TEST(LastRow, OfAForkIsItsOwn) {
  KvCache cache(options());
  Sequence s = cache.start();
  read(cache, s, 3, 1.0f);
  Sequence fork = cache.fork(s);
  read(cache, fork, 1, 2.0f);
  EXPECT_EQ(stamp_of(cache, s), 1.0f);
  EXPECT_EQ(stamp_of(cache, fork), 2.0f);
  read(cache, s, 1, 3.0f);
  EXPECT_EQ(stamp_of(cache, fork), 2.0f);
  std::vector<Sequence> both;
  both.push_back(std::move(s));
  both.push_back(std::move(fork));
  const std::int64_t from[] = {1, 1, 0};
  cache.permute(both, from);
  EXPECT_EQ(stamp_of(cache, both[0]), 2.0f);
  EXPECT_EQ(stamp_of(cache, both[1]), 2.0f);
  EXPECT_EQ(stamp_of(cache, both[2]), 3.0f);
}

TEST(LastRow, GoesBackToCheckpointsAlone) {
  KvCache cache(options());
  Sequence s = cache.start();
  read(cache, s, 3, 1.0f);
  cache.checkpoint(s);
  read(cache, s, 2, 2.0f);
  expect_refused([&] { cache.truncate(s, 4); }, "length", "");
  EXPECT_EQ(stamp_of(cache, s), 2.0f);
  cache.truncate(s, 5);
  EXPECT_EQ(stamp_of(cache, s), 2.0f);
  cache.truncate(s, 3);
  EXPECT_EQ(stamp_of(cache, s), 1.0f);
  read(cache, s, 2, 4.0f);
  cache.truncate(s, 3);
  EXPECT_EQ(stamp_of(cache, s), 1.0f);
  cache.truncate(s, 0);
  EXPECT_EQ(stamp_of(cache, s), -1.0f);
  read(cache, s, 1, 5.0f);
  EXPECT_EQ(stamp_of(cache, s), 5.0f);
}

TEST(LastRow, IsSavedWithItsCheckpoints) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("fovea-last-row-" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()));
  KvCache cache(options());
  Sequence s = cache.start();
  read(cache, s, 3, 1.0f);
  cache.checkpoint(s);
  read(cache, s, 7, 2.0f);
  cache.save(s, path);
  KvCache other(options());
  for (const CacheMemory memory : {CacheMemory::copied, CacheMemory::mapped}) {
    Sequence loaded = other.load(path, {.memory = memory});
    EXPECT_EQ(other.length(loaded), 10);
    EXPECT_EQ(stamp_of(other, loaded), 2.0f);
    read(other, loaded, 1, 3.0f);
    other.truncate(loaded, 3);
    EXPECT_EQ(stamp_of(other, loaded), 1.0f);
  }
  Sequence none = cache.start();
  cache.save(none, path);
  EXPECT_EQ(stamp_of(other, other.load(path)), -1.0f);
  std::filesystem::remove(path);
}

TEST(LastRow, Refusals) {
  KvCache cache(options());
  Sequence s = cache.start();
  const Tensor state(DType::f32, {size}), row = Tensor::normal({1, 1, 1, size}, 1);
  cache.reserve(s, 1);
  expect_refused([&] { cache.append(1, s, row, {}); }, "layer", "");
  expect_refused([&] { cache.view(1, s); }, "layer", "");
  expect_refused([&] { cache.replace(0, s, state); }, "layer", "");
  expect_refused([&] { cache.last_row(0, s); }, "layer", "");
  expect_refused([&] { cache.replace(1, s, Tensor(DType::f32, {size - 1})); }, "row", "");
  expect_refused([&] { cache.next_row(0, s); }, "layer", "");
  cache.rollback(s);
  expect_refused([&] { cache.replace(1, s, state); }, "sequence", "");
  expect_refused([&] { cache.next_row(1, s); }, "sequence", "");
  read(cache, s, 2, 1.0f);
  cache.reserve(s, 2);
  const Tensor two = Tensor::normal({1, 1, 2, 4}, 1);
  cache.append(0, s, two, two);
  cache.replace(1, s, state);
  const std::int64_t path[] = {1};
  expect_refused([&] { cache.keep(s, path); }, "path", "");
  expect_refused(
      [] {
        KvCache({.layers = {
                     {.num_kv_heads = 2, .head_dim = 4, .values = CacheValues::none, .store = LastRow{}}}});
      },
      "options.layers[0].num_kv_heads", "LastRow");
  expect_refused([] { KvCache({.layers = {{.head_dim = 4, .store = LastRow{}}}}); },
                 "options.layers[0].values", "LastRow");
}

}  // namespace
}  // namespace fovea

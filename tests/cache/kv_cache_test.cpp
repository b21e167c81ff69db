// Of the cache what random operations beside plain lists (model_test.cpp) do not show: errors, what views and
// limits promise, prefixes, threads, and what a fork costs.
#include "fovea/cache/kv_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "cache/expect_refused.h"
#include "fovea/core/executor.h"
#include "fovea/core/memory.h"

namespace fovea {
namespace {

constexpr std::int64_t heads = 2, dim = 4;

CacheLayer layer_of(CacheStore store) {
  return {.num_kv_heads = heads, .head_dim = dim, .store = store};
}
Tensor rows_of(std::int64_t rows, float value) {
  Tensor x(DType::f32, {1, heads, rows, dim});
  x.fill(value);
  return x;
}
void add(KvCache& cache, Sequence& s, std::int64_t rows, float value,
         std::span<const std::int32_t> ids = {}) {
  cache.reserve(s, rows);
  const Tensor x = rows_of(rows, value);
  for (std::int64_t l = 0; l < cache.layer_count(); ++l) cache.append(l, s, x, x);
  cache.commit(s, ids);
}
// The first element of each row's key.
std::vector<float> firsts(const KeyValueView& view) {
  std::vector<float> found;
  for (const KeyValueRun& run : view.runs) {
    for (std::int64_t r = 0; r < run.count; ++r)
      found.push_back(reinterpret_cast<const float*>(run.key)[r * view.key_row_stride]);
  }
  return found;
}

TEST(KvCacheErrors, NameWhatIsWrongInTheOptions) {
  const auto with = [](CacheLayer layer) { return [layer] { KvCache({.layers = {layer}}); }; };
  expect_refused([] { KvCache({}); }, "options.layers", "none");
  expect_refused(with({.head_dim = 0}), "options.layers[0].head_dim", "0");
  expect_refused(with({.num_kv_heads = -1, .head_dim = 4}), "options.layers[0].num_kv_heads", "-1");
  expect_refused(with({.head_dim = 4, .value_dim = 0}), "options.layers[0].value_dim", "0");
  expect_refused(with({.head_dim = 4, .store = Paged{48}}), "options.layers[0].store.page_size", "48");
  expect_refused(with({.head_dim = 4, .store = Paged{0}}), "options.layers[0].store.page_size", "0");
  expect_refused(with({.head_dim = 4, .store = Ring{}}), "options.layers[0].store.window", "0");
  expect_refused(with({.head_dim = 4, .store = Ring{.window = 4, .slack = 0}}),
                 "options.layers[0].store.slack", "0");
  expect_refused(with({.head_dim = 4, .value_dim = 5, .values = CacheValues::first_of_keys}),
                 "options.layers[0].value_dim", "at most head_dim = 4");
  expect_refused(with({.head_dim = 4, .value_dim = 2, .values = CacheValues::none}),
                 "options.layers[0].value_dim", "0 beside");
}

TEST(KvCacheErrors, ForeignAndEmptyHandlesAreRefused) {
  KvCache a({.layers = {layer_of(Paged{4})}}), b({.layers = {layer_of(Paged{4})}});
  Sequence s = a.start();
  expect_refused([&] { b.reserve(s, 1); }, "sequence", "another cache");
  expect_refused([&] { static_cast<void>(b.view(0, s)); }, "sequence", "another cache");
  const Sequence moved = std::move(s);
  expect_refused([&] { static_cast<void>(a.length(s)); }, "sequence", "moved from");
  Sequence t = a.fork(moved);
  a.release(t);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { a.release(t); }, [&] { static_cast<void>(a.fork(t)); }, [&] { a.commit(t); },
           [&] { a.rollback(t); }, [&] { a.truncate(t, 0); }, [&] { a.checkpoint(t); },
           [&] { a.keep(t, {}); }})
    expect_refused(call, "sequence", "released");
  Sequence last = a.start();
  Sequence *const none[] = {&last, nullptr}, *const twice[] = {&last, &last};
  expect_refused([&] { a.commit(none, {}); }, "sequences", "a null pointer");
  expect_refused([&] { a.commit(twice, {}); }, "sequences", "one of them twice");
}

TEST(KvCacheErrors, AppendAndCommitRefuseWhatDoesNotFitAndChangeNothing) {
  KvCache cache({.layers = {layer_of(Paged{4}), layer_of(Contiguous{})}});
  Sequence s = cache.start();
  add(cache, s, 3, 1.0f);
  cache.reserve(s, 2);
  const Tensor two = rows_of(2, 2.0f), three = rows_of(3, 2.0f), wide(DType::f32, {1, heads, 2, dim + 1}),
               half(DType::bf16, {1, heads, 2, dim});
  expect_refused([&] { cache.append(0, s, three, three); }, "key", "at most 2 rows");
  expect_refused([&] { cache.append(0, s, wide, two); }, "key", "[1, 2, rows, 4] of f32");
  expect_refused([&] { cache.append(0, s, two, three); }, "value", "[1, 2, 2, 4]");
  expect_refused([&] { cache.append(0, s, half, two); }, "key", "bf16");
  expect_refused([&] { cache.append(0, s, two, {}); }, "value", "nothing");
  expect_refused([&] { cache.append(2, s, two, two); }, "layer", "from 0 to 1");
  cache.append(0, s, two, two);
  expect_refused([&] { cache.append(0, s, two, two); }, "key", "at most 0 rows");
  expect_refused([&] { cache.commit(s); }, "sequence", "0 in layer 1");
  cache.append(1, s, two, two);
  const std::vector<std::int32_t> ids{1, 2, 3};
  expect_refused([&] { cache.commit(s, ids); }, "ids", "each of the 2 pending rows");
  EXPECT_EQ(cache.length(s), 3);
  EXPECT_EQ(cache.pending(0, s), 2);
  cache.commit(s);
  EXPECT_EQ(firsts(cache.view(1, s)), (std::vector<float>{1, 1, 1, 2, 2}));
  expect_refused([&] { cache.truncate(s, 6); }, "length", "from 0 to the length of the sequence, 5");
  expect_refused([&] { cache.truncate(s, -1); }, "length", "-1");
  cache.reserve(s, 2);
  for (std::int64_t l = 0; l < 2; ++l) cache.append(l, s, two, two);
  const std::vector<std::int64_t> twice{0, 0}, beyond{2};
  expect_refused([&] { cache.keep(s, twice); }, "path[1]", "from 1 to 1");
  expect_refused([&] { cache.keep(s, beyond); }, "path[0]", "from 0 to 1");
}

TEST(KvCacheErrors, ARingRefusesWhatItsWindowCannotHold) {
  KvCache cache({.layers = {layer_of(Ring{.window = 4, .sinks = 1, .slack = 3})}});
  Sequence s = cache.start();
  expect_refused([&] { cache.reserve(s, 4); }, "rows", "the slack of the Ring, 3");
  for (int n = 0; n < 7; ++n) add(cache, s, 3, static_cast<float>(n));
  cache.truncate(s, 18);
  expect_refused([&] { cache.truncate(s, 17); }, "length", "a length whose rows are still kept");
  EXPECT_EQ(cache.length(s), 18);
  cache.checkpoint(s);
  for (int n = 0; n < 7; ++n) add(cache, s, 3, 9.0f);
  cache.truncate(s, 18);
  EXPECT_EQ(firsts(cache.view(0, s)).back(), 5.0f);
  cache.truncate(s, 0);
  add(cache, s, 2, 7.0f);
  EXPECT_EQ(firsts(cache.view(0, s)), (std::vector<float>{7, 7}));
}

// 10 rows in pages of 4: of the dropped positions 1 to 8 only page 1, the rows 4 to 7, lies inside.
TEST(KvCache, RowsThatARingOnlyReservesTakeNobodysPlace) {
  KvCache cache(
      {.layers = {{.num_kv_heads = 1, .head_dim = 4, .store = Ring{.window = 16, .sinks = 2, .slack = 4}}}});
  Sequence s = cache.start();
  const auto write = [&](std::int64_t rows, float value) {
    cache.reserve(s, rows);
    Tensor x(DType::f32, {1, 1, rows, 4});
    std::fill_n(x.data<float>(), x.count(), value);
    cache.append(0, s, x, x);
  };
  for (int n = 0; n < 25; ++n) {
    write(4, static_cast<float>(n));
    cache.commit(s);
  }
  const auto kept = [&] {
    std::int64_t rows = 0;
    for (const KeyValueRun& run : cache.view(0, s).runs) rows += run.count;
    return rows;
  };
  EXPECT_EQ(kept(), 22);
  cache.reserve(s, 4);
  cache.rollback(s);
  EXPECT_EQ(kept(), 22);
  Sequence fork = cache.fork(s);
  cache.truncate(fork, 96);
  EXPECT_EQ(cache.length(fork), 96);
  // Rows that were written have taken the place of the oldest, and rolling back does not bring those again.
  write(3, 99.0f);
  cache.rollback(s);
  EXPECT_EQ(kept(), 19);
  cache.truncate(s, 99);
  EXPECT_THROW(cache.truncate(s, 98), InvalidArgument);
}

TEST(KvCache, SeveralSequencesAreCommittedTogether) {
  KvCache cache({.layers = {{.num_kv_heads = 1, .head_dim = 4, .store = Paged{4}}}, .prefix_bytes = 1 << 20});
  const std::vector<std::int32_t> ids{1, 2, 3, 4, 5};
  std::vector<Sequence> sequences;
  for (int n = 0; n < 2; ++n) sequences.push_back(cache.start(ids));
  Tensor x(DType::f32, {1, 1, 5, 4});
  for (Sequence& s : sequences) {
    cache.reserve(s, 5);
    cache.append(0, s, x, x);
  }
  Sequence empty;
  const std::span<const std::int32_t> all = ids, few = all.first(4);
  const std::vector<Sequence*> both{&sequences[0], &sequences[1]}, twice{&sequences[0], &sequences[0]},
      with_empty{&sequences[0], &empty};
  EXPECT_THROW(cache.commit(both, std::vector{all, few}), InvalidArgument);
  EXPECT_THROW(cache.commit(both, std::vector{all}), InvalidArgument);
  EXPECT_THROW(cache.commit(twice, std::vector{all, all}), InvalidArgument);
  EXPECT_THROW(cache.commit(with_empty, std::vector{all, all}), InvalidArgument);
  for (const Sequence& s : sequences) EXPECT_EQ(cache.length(s), 0);
  EXPECT_EQ(cache.find_prefix(std::vector<std::int32_t>{1, 2, 3, 4, 9}), 0);
  cache.commit(both, std::vector{all, std::span<const std::int32_t>()});
  EXPECT_EQ(cache.ids(sequences[0]), ids);
  EXPECT_EQ(cache.length(sequences[1]), 5);
  EXPECT_TRUE(cache.ids(sequences[1]).empty());
  EXPECT_EQ(cache.find_prefix(std::vector<std::int32_t>{1, 2, 3, 4, 9}), 4);
}

// So that the rows of one batch lie where those of the last one were.
TEST(KvCache, RowsLieInTheMemoryOfTensors) {
  if (tensor_memory().requests == 0) {
    const Tensor large(DType::f32, {1 << 16});
    if (tensor_memory().requests == 0) GTEST_SKIP() << "a sanitizer has tensors from operator new";
  }
  for (const CacheStore& store : {CacheStore(Contiguous{}), CacheStore(Paged{64})}) {
    const std::size_t before = tensor_memory().used;
    {
      KvCache cache({.layers = {layer_of(store)}});
      Sequence s = cache.start();
      cache.reserve(s, 1 << 12);
      EXPECT_GE(tensor_memory().used, before + static_cast<std::size_t>(cache.bytes().used));
    }
    EXPECT_EQ(tensor_memory().used, before);
  }
}

// A prompt that threads share: heads and pages by themselves, rounded from f32 where the layer has 16 bits.
TEST(KvCache, LongPromptsAreWrittenByThreadsAsByOne) {
  const std::int64_t rows = 300, width = 64;
  Tensor x(DType::f32, {1, heads, rows, width});
  for (std::int64_t i = 0; i < x.count(); ++i) x.data<float>()[i] = static_cast<float>(i % 4099) / 17.0f;
  for (const CacheStore store : {CacheStore(Contiguous{}), CacheStore(Paged{16})}) {
    for (const int threads : {1, 2, 5}) {
      const auto pool = make_thread_pool(threads);
      set_default_executor(pool.get());
      CacheLayer layer{.num_kv_heads = heads, .head_dim = width, .dtype = DType::bf16, .store = store};
      KvCache cache({.layers = {layer}});
      Sequence s = cache.start();
      cache.reserve(s, rows);
      cache.append(0, s, x, x);
      cache.commit(s);
      set_default_executor(nullptr);
      const KeyValueView view = cache.view(0, s);
      for (const KeyValueRun& run : view.runs) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t r = 0; r < run.count * width; ++r) {
            const std::int64_t row = r / width, d = r % width;
            const bfloat16 wanted(x.data<float>()[(h * rows + run.position + row) * width + d]);
            const auto at = [&](const std::byte* from, std::int64_t head_stride, std::int64_t row_stride) {
              return reinterpret_cast<const bfloat16*>(from)[h * head_stride + row * row_stride + d].bits;
            };
            ASSERT_EQ(at(run.key, run.key_head_stride, view.key_row_stride), wanted.bits);
            ASSERT_EQ(at(run.value, run.value_head_stride, view.value_row_stride), wanted.bits);
          }
        }
      }
    }
  }
}

TEST(KvCache, DroppedPagesGiveTheirMemoryBack) {
  KvCache cache({.layers = {layer_of(Paged{4})}});
  Sequence s = cache.start();
  for (int n = 0; n < 5; ++n) add(cache, s, 2, static_cast<float>(n));
  const Sequence fork = cache.fork(s);
  const std::int64_t page = cache.bytes().used / 3;
  const PositionRange backwards[] = {{4, 9}, {8, 10}}, beyond[] = {{4, 11}}, most[] = {{1, 9}};
  expect_refused([&] { cache.drop(s, backwards); }, "ranges[1]", "ascending positions from 9");
  expect_refused([&] { cache.drop(s, beyond); }, "ranges[0]", "the length of the sequence, 10");
  EXPECT_EQ(cache.bytes(s).used, 3 * page);
  cache.drop(s, most);
  EXPECT_EQ(cache.bytes(s).used, 2 * page);
  EXPECT_EQ(firsts(cache.view(0, s)), (std::vector<float>{0, 0, 1, 1, 4, 4}));
  EXPECT_EQ(cache.view(0, s).runs.back().position, 8);
  EXPECT_EQ(firsts(cache.view(0, fork)).size(), 10u);
  expect_refused([&] { cache.truncate(s, 7); }, "length", "behind all that were dropped");
  cache.truncate(s, 8);
  add(cache, s, 1, 7.0f);
  EXPECT_EQ(firsts(cache.view(0, s)), (std::vector<float>{0, 0, 1, 1, 7}));
}

TEST(KvCache, RowsOfAViewStayWhateverIsDoneToTheSequence) {
  for (const CacheStore& store :
       std::vector<CacheStore>{Paged{4}, Contiguous{.capacity = 2}, Ring{.window = 8, .slack = 8}}) {
    KvCache cache({.layers = {layer_of(store)}});
    Sequence s = cache.start();
    add(cache, s, 6, 1.0f);
    const KeyValueView view = cache.view(0, s);
    cache.truncate(s, 2);
    add(cache, s, 7, 2.0f);
    EXPECT_EQ(firsts(view), std::vector<float>(6, 1.0f));
    EXPECT_EQ(firsts(cache.view(0, s)), (std::vector<float>{1, 1, 2, 2, 2, 2, 2, 2, 2}));
    cache.release(s);
    EXPECT_EQ(firsts(view), std::vector<float>(6, 1.0f));
  }
}

// Rows 4 to 7 of a ring of 8 slots stay where a fork, a view or a checkpoint made between reserve and append
// holds them.
TEST(KvCache, ARingOverwritesNoRowsThatWereTakenBehindReserve) {
  const std::vector<float> before{1, 1, 1, 1, 2, 2, 2, 2}, after{2, 2, 2, 2, 3, 3, 3, 3};
  const auto with = [&](std::int64_t blocks, const std::function<void(KvCache&, Sequence&)>& take) {
    const CacheLayer layer = layer_of(Ring{.window = 4, .slack = 4});
    const std::int64_t block = 2 * heads * 8 * dim * 4;
    KvCache cache({.layers = {layer}, .limit_bytes = blocks * block});
    Sequence s = cache.start();
    add(cache, s, 4, 1.0f);
    add(cache, s, 4, 2.0f);
    cache.reserve(s, 4);
    take(cache, s);
  };
  const auto write = [](KvCache& cache, Sequence& s) {
    cache.append(0, s, rows_of(4, 3.0f), rows_of(4, 3.0f));
  };
  with(2, [&](KvCache& cache, Sequence& s) {
    Sequence fork = cache.fork(s);
    write(cache, s);
    EXPECT_EQ(firsts(cache.view(0, s)), after);
    EXPECT_EQ(firsts(cache.view(0, fork)), before);
    cache.truncate(fork, 4);
    EXPECT_EQ(firsts(cache.view(0, fork)), std::vector<float>(4, 1.0f));
  });
  with(2, [&](KvCache& cache, Sequence& s) {
    const KeyValueView view = cache.view(0, s);
    write(cache, s);
    EXPECT_EQ(firsts(view), before);
    EXPECT_EQ(firsts(cache.view(0, s)), after);
  });
  with(2, [&](KvCache& cache, Sequence& s) {
    cache.checkpoint(s);
    write(cache, s);
    cache.commit(s);
    add(cache, s, 4, 4.0f);
    cache.truncate(s, 8);  // too far for the ring, so the checkpoint's rows
    EXPECT_EQ(firsts(cache.view(0, s)), before);
  });
  with(1, [&](KvCache& cache, Sequence& s) {
    const Sequence fork = cache.fork(s);
    EXPECT_THROW(write(cache, s), CacheFull);
    EXPECT_EQ(cache.pending(0, s), 0);
    EXPECT_EQ(firsts(cache.view(0, s)), before);
    EXPECT_EQ(firsts(cache.view(0, fork)), before);
  });
  with(1, [&](KvCache& cache, Sequence& s) {
    write(cache, s);
    EXPECT_EQ(firsts(cache.view(0, s)), after);
  });
  // Sinks stay, so that the first rows behind a full window have slots of their own.
  const CacheLayer layer = layer_of(Ring{.window = 4, .sinks = 4, .slack = 4});
  KvCache cache({.layers = {layer}, .limit_bytes = 2 * heads * 12 * dim * 4});
  Sequence s = cache.start();
  add(cache, s, 4, 1.0f);
  add(cache, s, 4, 2.0f);
  cache.reserve(s, 4);
  const Sequence fork = cache.fork(s);
  write(cache, s);
  EXPECT_EQ(firsts(cache.view(0, fork)), before);
  EXPECT_EQ(firsts(cache.view(0, s)).size(), 12u);
}

TEST(KvCache, AViewOutlivesTheCache) {
  KeyValueView view;
  {
    KvCache cache({.layers = {layer_of(Paged{4})}, .prefix_bytes = 1 << 20});
    const std::vector<std::int32_t> ids{1, 2, 3, 4, 5};
    Sequence s = cache.start(ids);
    add(cache, s, 5, 3.0f, ids);
    view = cache.view(0, s);
  }
  EXPECT_EQ(firsts(view), std::vector<float>(5, 3.0f));
}

TEST(KvCache, AFullCacheChangesNothingAndPrefixesGiveWay) {
  const std::int64_t page = 2 * heads * 4 * dim * 4;
  KvCache cache({.layers = {layer_of(Paged{4})}, .limit_bytes = 4 * page, .prefix_bytes = 2 * page});
  std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8};
  Sequence s = cache.start(ids);
  add(cache, s, 8, 1.0f, ids);
  cache.release(s);
  EXPECT_EQ(cache.bytes().prefixes, 2 * page);
  EXPECT_EQ(cache.find_prefix(ids), 4) << "one id remains to be computed";
  Sequence t = cache.start();
  EXPECT_THROW(cache.reserve(t, 17), CacheFull);
  EXPECT_EQ(cache.length(t), 0);
  add(cache, t, 16, 2.0f);
  EXPECT_EQ(cache.bytes().prefixes, 0) << "prefixes go before a caller is refused";
  EXPECT_EQ(cache.find_prefix(ids), 0);
  EXPECT_EQ(cache.bytes().used, 4 * page);
  try {
    cache.reserve(t, 1);
    ADD_FAILURE() << "the limit does not hold";
  } catch (const CacheFull& error) {
    EXPECT_EQ(error.needed(), page);
    EXPECT_EQ(error.limit(), 4 * page);
  }
  EXPECT_EQ(firsts(cache.view(0, t)), std::vector<float>(16, 2.0f));
}

TEST(KvCache, OfAPrefixTheLastPagesGoFirst) {
  const std::int64_t page = 2 * heads * 4 * dim * 4;
  KvCache cache({.layers = {layer_of(Paged{4})}, .limit_bytes = 4 * page, .prefix_bytes = 2 * page});
  std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  Sequence s = cache.start();
  add(cache, s, 13, 1.0f, ids);
  cache.release(s);
  EXPECT_EQ(cache.find_prefix(ids), 8);
  Sequence large = cache.start();
  EXPECT_THROW(cache.reserve(large, 17), CacheFull);
  EXPECT_EQ(cache.find_prefix(ids), 8) << "nothing has changed";
}

TEST(KvCache, ViewsStayWhenAPathOfDraftsIsKept) {
  KvCache cache({.layers = {layer_of(Paged{4})}});
  Sequence s = cache.start();
  add(cache, s, 3, 1.0f);
  cache.reserve(s, 4);
  for (const float value : {2.0f, 3.0f, 4.0f, 5.0f}) cache.append(0, s, rows_of(1, value), rows_of(1, value));
  const KeyValueView drafts = cache.view(0, s);
  const std::vector<std::int64_t> path{1, 3};
  cache.keep(s, path);
  EXPECT_EQ(firsts(drafts), (std::vector<float>{1, 1, 1, 2, 3, 4, 5}));
  EXPECT_EQ(firsts(cache.view(0, s)), (std::vector<float>{1, 1, 1, 3, 5}));
}

TEST(KvCache, PrefixesAreSharedBySaltAndByContent) {
  KvCache cache({.layers = {layer_of(Paged{2})}});
  const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 6}, other{1, 2, 9, 4, 5, 6};
  Sequence s = cache.start(ids, 7);
  add(cache, s, 6, 1.0f, ids);
  EXPECT_EQ(cache.find_prefix(ids, 7), 4);
  EXPECT_EQ(cache.find_prefix(other, 7), 2);
  EXPECT_EQ(cache.find_prefix(ids, 8), 0);
  EXPECT_EQ(cache.find_prefix(ids), 0);
  const Sequence t = cache.start(ids, 7);
  EXPECT_EQ(cache.length(t), 4);
  EXPECT_EQ(cache.bytes(t).shared, cache.bytes(t).used);
  EXPECT_EQ(cache.view(0, t).runs[0].key, cache.view(0, s).runs[0].key) << "pages are the same memory";
  cache.release(s);
  EXPECT_EQ(cache.find_prefix(ids, 7), 4) << "the page that t holds, and no more";
}

TEST(KvCache, APageThatCanBeFoundIsNeverWritten) {
  KvCache cache({.layers = {layer_of(Paged{4})}});
  const std::vector<std::int32_t> ids{1, 2, 3, 4, 5}, others{7, 8};
  Sequence s = cache.start(ids);
  add(cache, s, 5, 1.0f, ids);
  cache.truncate(s, 2);
  cache.reserve(s, 2);
  cache.append(0, s, rows_of(2, 9.0f), rows_of(2, 9.0f));
  const Sequence early = cache.start(ids);
  EXPECT_EQ(firsts(cache.view(0, early)),
            std::vector<float>(static_cast<std::size_t>(cache.length(early)), 1.0f));
  add(cache, s, 2, 2.0f, others);
  const Sequence found = cache.start(ids);
  EXPECT_EQ(firsts(cache.view(0, found)),
            std::vector<float>(static_cast<std::size_t>(cache.length(found)), 1.0f));
  EXPECT_EQ(cache.find_prefix(std::vector<std::int32_t>{1, 2, 7, 8, 9}), 4);
}

TEST(KvCache, AForkCostsAPageAtMostWhateverItsLength) {
  KvCache cache({.layers = {layer_of(Paged{16})}});
  Sequence s = cache.start();
  add(cache, s, 1000, 1.0f);
  const std::int64_t before = cache.bytes().used;
  Sequence t = cache.fork(s);
  EXPECT_EQ(cache.bytes().used, before);
  add(cache, t, 1, 2.0f);
  EXPECT_EQ(cache.bytes().used - before, 16 * cache.bytes_per_row());
  EXPECT_EQ(firsts(cache.view(0, s)), std::vector<float>(1000, 1.0f));
}

// ThreadSanitizer watches this one.
TEST(KvCache, ThreadsUseSequencesThatShareRows) {
  KvCache cache({.layers = {layer_of(Paged{4})}, .limit_bytes = 1 << 20, .prefix_bytes = 1 << 12});
  std::vector<std::int32_t> ids(40);
  for (std::size_t n = 0; n < ids.size(); ++n) ids[n] = static_cast<std::int32_t>(n);
  Sequence common = cache.start(ids);
  add(cache, common, 40, 1.0f, ids);
  std::vector<Sequence> forks;
  for (int n = 0; n < 4; ++n) forks.push_back(cache.fork(common));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      Sequence& own = forks[static_cast<std::size_t>(n)];
      for (int round = 0; round < 200; ++round) {
        add(cache, own, 3, static_cast<float>(n + 2));
        Sequence copy = cache.fork(own);
        add(cache, copy, 2, 9.0f);
        const Sequence found = cache.start(ids);
        const std::vector<float> rows = firsts(cache.view(0, own));
        if (rows.front() != 1.0f || rows.back() != static_cast<float>(n + 2)) ++wrong;
        cache.truncate(own, 38 + round % 3);
      }
      cache.release(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  forks.clear();
  cache.release(common);
  EXPECT_EQ(cache.bytes().used, cache.bytes().prefixes);
}

}  // namespace
}  // namespace fovea

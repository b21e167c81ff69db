// Calls on a cache that are refused, the memory that they need, and rows that a cache does not have.
#include <functional>
#include <numeric>

#include "cache/expect_refused.h"
#include "plan/cached_rows.h"

namespace fovea {
namespace {

using namespace cached;  // NOLINT(google-build-using-namespace): helpers of this test alone

TEST(Cached, RefusesWhatDoesNotFit) {
  const Sizes s;
  const AttentionPlan plan = plan_of(s, {.mask = Causal{}}, DType::f32, 2, 4, 64);
  const Rows rows(s, 40, DType::f32, 1);
  KvCache cache = cache_of(s, DType::f32, Paged{16}),
          ring = cache_of(s, DType::f32, Ring{.window = 8, .slack = 8}),
          half = cache_of(s, DType::bf16, Paged{16});
  Sequence a = cache.start(), b = ring.start(), c = half.start();
  add(cache, a, rows, 0, 40);
  for (std::int64_t n = 0; n < 40; n += 8) add(ring, b, rows, n, n + 8);
  const Rows bf16(s, 3, DType::bf16, 1);
  add(half, c, bf16, 0, 3);
  const std::vector<KeyValueView> one{cache.view(0, a)}, dropped{ring.view(0, b)}, other{half.view(0, c)};
  const Tensor query = Tensor::normal({1, s.num_query_heads, 2, s.head_dim}, 3),
               two = Tensor::normal({2, s.num_query_heads, 2, s.head_dim}, 3);
  Tensor output(DType::f32, {1, s.num_query_heads, 2, s.value_dim}),
      outputs(DType::f32, {2, s.num_query_heads, 2, s.value_dim});
  const std::vector<std::int64_t> starts{0, 2};
  expect_refused([&] { attend(plan, {.query = two, .cache = one}, {.output = outputs}); }, "cache",
                 "each of the 2 entries");
  expect_refused([&] { attend(plan, {.query = query, .key = rows.key, .cache = one}, {.output = output}); },
                 "key", "nothing beside cache");
  expect_refused(
      [&] { attend(plan, {.query = query, .key_starts = starts, .cache = one}, {.output = output}); },
      "key_starts", "none beside cache");
  expect_refused([&] { attend(plan, {.query = query, .cache = other}, {.output = output}); },
                 "cache[0].dtype", "bf16");
  expect_refused([&] { attend(plan, {.query = query, .cache = dropped}, {.output = output}); }, "cache[0]",
                 "a view without position 0, which the query at position 38 sees");
  const AttentionPlan windowed = plan_of(s, {.mask = SlidingWindow{7} & Causal{}}, DType::f32, 2, 4, 64),
                      narrow = plan_of(s, {.mask = Causal{}}, DType::f32, 1, 4, 39),
                      wide = plan_of({.num_query_heads = 4, .num_kv_heads = 4}, {.mask = Causal{}},
                                     DType::f32, 1, 4, 64);
  EXPECT_NO_THROW(attend(windowed, {.query = query, .cache = dropped}, {.output = output}));
  expect_refused([&] { attend(narrow, {.query = query, .cache = one}, {.output = output}); },
                 "cache[0].length", "39");
  expect_refused([&] { attend(wide, {.query = query, .cache = one}, {.output = output}); },
                 "cache[0].num_kv_heads", "4");
  Tensor gradient(DType::f32, query.shape());
  expect_refused(
      [&] {
        attend_backward(plan, {.query = query, .cache = one},
                        {.output = output, .log_sum_exp = output, .d_output = output}, {.query = gradient});
      },
      "cache", "gradients are those of key and value as tensors");
}

// A call for the output and the weights runs two kernels, one of which reads the rows in place if it runs
// alone.
TEST(Cached, ItsWorkspaceIsEnoughForWeightsToo) {
  const Sizes s{.num_query_heads = 32, .num_kv_heads = 1, .head_dim = 128, .value_dim = 128};
  const std::int64_t length = 600;
  const AttentionPlan plan = plan_of(s, {.mask = Causal{}}, DType::f32, 1, 1, length);
  const Rows rows(s, length, DType::f32, 5);
  KvCache cache = cache_of(s, DType::f32, Paged{16});
  Sequence sequence = cache.start();
  add(cache, sequence, rows, 0, length);
  const std::vector<KeyValueView> views{cache.view(0, sequence)};
  const Tensor query = Tensor::normal({1, s.num_query_heads, 1, s.head_dim}, 9);
  Tensor output(DType::f32, query.shape()), weights(DType::f32, {1, s.num_query_heads, 1, length});
  const std::size_t bytes = workspace_bytes(plan, 1);
  const std::size_t guard = 1 << 20;
  std::vector<std::byte> memory(bytes + guard + 64);
  auto* begin =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::fill(begin + bytes, memory.data() + memory.size(), std::byte{0x5a});
  attend(plan, {.query = query, .cache = views}, {.output = output, .weights = weights},
         {.executor = &serial_executor(), .workspace = {begin, bytes}});
  EXPECT_TRUE(std::all_of(begin + bytes, memory.data() + memory.size(),
                          [](std::byte b) { return b == std::byte{0x5a}; }));
  const Result want = run(plan, {.query = query, .key = rows.key, .value = rows.value});
  expect_near(output, want.output, DType::f32, "output");
}

TEST(Cached, AViewThatLacksAllRowsGivesZerosWhereTheMaskHidesThem) {
  const Sizes s;
  const AttentionPlan plan = plan_of(s, {.mask = SlidingWindow{10} & Causal{}}, DType::f32, 1, 100, 64);
  KeyValueView view;
  view.length = 64;
  view.num_kv_heads = s.num_kv_heads;
  view.head_dim = view.key_row_stride = s.head_dim;
  view.value_dim = view.value_row_stride = s.value_dim;
  const Tensor query = Tensor::normal({1, s.num_query_heads, 100, s.head_dim}, 3);
  const Result got = run(plan, {.query = query, .query_offset = 1000, .cache = {&view, 1}});
  for (std::int64_t n = 0; n < got.output.count(); ++n) ASSERT_EQ(number(got.output, n), 0.0);
}

TEST(Cached, ASequenceWithoutRowsGivesZeros) {
  const Sizes s;
  const AttentionPlan plan = plan_of(s, {.mask = Causal{}}, DType::f32, 1, 4, 64);
  KvCache cache = cache_of(s, DType::f32, Paged{16});
  const Sequence empty = cache.start();
  const std::vector<KeyValueView> views{cache.view(0, empty)};
  const Tensor query = Tensor::normal({1, s.num_query_heads, 2, s.head_dim}, 3);
  const Result got = run(plan, {.query = query, .query_offset = 0, .cache = views});
  for (std::int64_t n = 0; n < got.output.count(); ++n) EXPECT_EQ(number(got.output, n), 0.0);
  EXPECT_TRUE(std::isinf(number(got.log_sum_exp, 0)));
}

}  // namespace
}  // namespace fovea

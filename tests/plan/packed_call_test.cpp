// Packed calls: refusals by name, empty entries and batches, weights alone, a score without keys, and
// cancellation.
#include <gtest/gtest.h>

#include <cstring>

#include "fovea/attention/masks.h"
#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
#include "fovea/mechanisms/latent.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

using Starts = std::vector<std::int64_t>;

constexpr AttentionShape shape{.batch = 3,
                               .num_query_heads = 2,
                               .num_kv_heads = 1,
                               .query_len = 4,
                               .key_len = 6,
                               .head_dim = 8,
                               .value_dim = 4};

// Tensors of a packed call with these numbers of rows.
struct Rows {
  Tensor query, key, value, output, sums;
  Rows(std::int64_t queries, std::int64_t keys, std::int64_t batch = 1)
      : query(random_tensor(DType::f32, {batch, 2, queries, 8}, 1)),
        key(random_tensor(DType::f32, {batch, 1, keys, 8}, 2)),
        value(random_tensor(DType::f32, {batch, 1, keys, 4}, 3)),
        output(unwritten(DType::f32, {batch, 2, queries, 4})),
        sums(unwritten(DType::f32, {batch, 2, queries})) {}
  AttentionInputs inputs(const Starts& queries, const Starts& keys) const {
    return {.query = query, .key = key, .value = value, .query_starts = queries, .key_starts = keys};
  }
};

TEST(PackedCalls, RefuseMalformedStartsByName) {
  const AttentionPlan plan = make_plan({}, shape);
  const auto refused = [&](const Rows& rows, const Starts& queries, const Starts& keys,
                           const char* argument) {
    const AttentionInputs in = rows.inputs(queries, keys);
    expect_refused([&] { attend(plan, in, {.output = rows.output}); }, "attend", argument);
    expect_refused(
        [&] {
          attend_backward(plan, in, rows.output, rows.sums, rows.output, {.value = rows.value.clone()});
        },
        "attend_backward", argument);
  };
  const Rows rows(5, 9);
  refused(rows, {0, 2, 5}, {}, "key_starts");  // the other list is missing
  refused(rows, {}, {0, 4, 9}, "query_starts");
  refused(rows, {0, 2, 5}, {0, 4, 6, 9}, "key_starts");             // counts differ
  refused(rows, {0, 2, 3, 4, 5}, {0, 2, 4, 6, 9}, "query_starts");  // more entries than the plan's batch
  refused(rows, {1, 2, 5}, {0, 4, 9}, "query_starts");              // not from 0
  refused(rows, {0, 2, 5}, {-1, 4, 9}, "key_starts");
  refused(rows, {0, 6, 5}, {0, 4, 9}, "query_starts");  // not ascending
  refused(rows, {0, 2, 5}, {0, 10, 9}, "key_starts");
  refused(rows, {0, 2, 4}, {0, 4, 9}, "query_starts");  // the last is not the number of rows
  refused(rows, {0, 2, 5}, {0, 4, 10}, "key_starts");
  refused(rows, {0}, {0}, "query_starts");              // rows, but no entry
  refused(rows, {0, 5, 5}, {0, 4, 9}, "query_starts");  // longer than the plan's query_len
  refused(rows, {0, 2, 5}, {0, 2, 9}, "key_starts");
  const std::int64_t far = std::numeric_limits<std::int64_t>::max();
  refused(rows, {0, far, 5}, {0, 4, 9}, "query_starts");
  refused(rows, {0, 2, 5}, {0, 4, far}, "key_starts");
  refused(Rows(5, 9, 2), {0, 2, 5}, {0, 4, 9}, "query");  // a batch of two
}

TEST(PackedCalls, RefuseInputsThatDoNotFitTheEntries) {
  const Rows rows(5, 9);
  const AttentionInputs in = rows.inputs({}, {});
  const Starts queries{0, 2, 5}, keys{0, 4, 9};
  const auto refused = [&](const AttentionSpec& spec, const char* argument, auto&& change,
                           AttentionOutputs outputs) {
    AttentionInputs call = in;
    call.query_starts = queries;
    call.key_starts = keys;
    change(call);
    expect_refused([&] { attend(make_plan(spec, shape), call, outputs); }, "attend", argument);
  };
  const Starts offsets{1, 2, 3}, long_lengths{5, 5};
  const Tensor bias = random_tensor(DType::f32, {2, 1, 4, 5}, 4),
               weights = unwritten(DType::f32, {1, 2, 1, 5});
  const Starts row{4};
  refused({}, "query_offsets", [&](AttentionInputs& c) { c.query_offsets = offsets; },
          {.output = rows.output});
  // The number of keys of each entry limits its length.
  refused({.mask = KeyLengths{}}, "key_lengths", [&](AttentionInputs& c) { c.key_lengths = long_lengths; },
          {.output = rows.output});
  // Axes of arguments are the number of entries and the rows of the longest: [2, heads, 3, 5].
  refused({.mods = {DenseBias{}}}, "mods[0].bias",
          [&](AttentionInputs& c) { c.arguments.set("mods[0].bias", bias); }, {.output = rows.output});
  refused({}, "weight_rows", [](AttentionInputs&) {},
          {.output = rows.output, .weights = weights, .weight_rows = row});
  refused({}, "output", [](AttentionInputs&) {}, {.output = Tensor(DType::f32, {2, 2, 3, 4})});
  refused({}, "log_sum_exp", [](AttentionInputs&) {},
          {.output = rows.output, .log_sum_exp = Tensor(DType::f32, {2, 2, 3})});
  refused({}, "weights", [](AttentionInputs&) {},
          {.output = rows.output, .weights = Tensor(DType::f32, {1, 2, 5, 6})});
}

TEST(PackedCalls, WithoutRowsWriteNothing) {
  const AttentionPlan plan = make_plan({}, shape);
  const auto same = [](const Tensor& t, double value) {
    for (std::int64_t i = 0; i < t.count(); ++i) ASSERT_EQ(element(t, i), value);
  };
  const auto call = [&](const Rows& rows, const Starts& queries, const Starts& keys) {
    const AttentionInputs in = rows.inputs(queries, keys);
    attend(plan, in, {.output = rows.output, .log_sum_exp = rows.sums});
    const Tensor dq = unwritten_like(rows.query), dk = unwritten_like(rows.key),
                 dv = unwritten_like(rows.value);
    attend_backward(plan, in, rows.output, rows.sums, rows.output, {dq, dk, dv});
    same(rows.output, 0);
    same(rows.sums, -std::numeric_limits<double>::infinity());
    for (const Tensor& t : {dq, dk, dv}) same(t, 0);
  };
  call(Rows(0, 0), {0}, {0});              // no entries
  call(Rows(0, 0), {0, 0, 0}, {0, 0, 0});  // of no rows
  call(Rows(0, 5), {0, 0, 0}, {0, 5, 5});  // no queries
  call(Rows(5, 0), {0, 2, 5}, {0, 0, 0});  // no keys
  call(Rows(4, 5), {0, 0, 4}, {0, 5, 5});  // one entry without queries, one without keys
}

// Pointers have weights and no values. Location's keys are rows of an argument.
TEST(PackedCalls, GiveWeightsAlone) {
  AttentionShape pointers = shape;
  pointers.value_dim = AttentionShape::no_values;
  const Rows rows(5, 9);
  const Starts queries{0, 2, 5}, keys{0, 4, 9};
  const Tensor places = random_tensor(DType::f32, {7, 8}, 5);
  for (const Score& score : {Score(ScaledDot{}), Score(Location{})}) {
    const bool keyless = definition(score).key_rows >= 0;
    const AttentionPlan plan = make_plan({.score = score, .mask = Causal{}}, pointers);
    const auto run = [&](const ConstTensorView& query, const ConstTensorView& key, const Starts& q,
                         const Starts& k, const TensorView& weights, const ConstTensorView& place) {
      AttentionInputs in{.query = query, .query_starts = q, .key_starts = k};
      if (!keyless) in.key = key;
      if (keyless) in.arguments.set("score.W", place);
      attend(plan, in, {.output = {}, .weights = weights});
    };
    const Tensor all = unwritten(DType::f32, {1, 2, 5, 5});
    run(rows.query, rows.key, queries, keys, all, places);
    const ConstTensorView query = rows.query, key = rows.key, place = places;
    for (std::size_t e = 0; e < 2; ++e) {
      const std::int64_t q = queries[e + 1] - queries[e], k = keys[e + 1] - keys[e];
      const Tensor one = unwritten(DType::f32, {1, 2, q, k});
      run(query.slice(2, queries[e], q), key.slice(2, keys[e], k), {}, {}, one, place.slice(0, 0, k));
      for (std::int64_t i = 0; i < 2 * q * 5; ++i) {
        const std::int64_t h = i / 5 / q, r = i / 5 % q, j = i % 5;
        ASSERT_EQ(element(all, (h * 5 + queries[e] + r) * 5 + j),
                  j < k ? element(one, (h * q + r) * k + j) : 0)
            << e << " " << h << " " << r << " " << j;
      }
    }
  }
}

// A NaN in one entry stays in this entry, whichever entries shared a thread's memory before.
TEST(PackedCalls, KeepEntriesApart) {
  const Starts queries{0, 4, 5, 9}, keys{0, 6, 12, 18};
  const Rows rows(9, 18);
  const AttentionInputs in = rows.inputs(queries, keys);
  const AttentionPlan plan = make_plan({.mask = Causal{}}, shape);
  attend(plan, in, {.output = rows.output, .log_sum_exp = rows.sums});
  const Tensor clean = rows.output.clone();
  for (const Tensor& t : {rows.key, rows.value}) {
    for (std::int64_t i = 6 * t.size(3); i < 12 * t.size(3); ++i) set_element(t, i, NAN);
  }
  for (Executor* executor : {&serial_executor(), &default_executor()}) {
    attend(plan, in, {.output = rows.output}, {.executor = executor});
    for (std::int64_t i = 0; i < clean.count(); ++i) {
      const bool poisoned = i / 4 % 9 == 4;
      ASSERT_EQ(std::isnan(element(rows.output, i)), poisoned) << i;
      if (!poisoned) ASSERT_EQ(element(rows.output, i), element(clean, i)) << i;
    }
  }
}

// An executor that stops after a given number of checks. At no number does a call hang, or later calls give
// other results.
TEST(PackedCalls, CanBeCancelled) {
  const Starts starts{0, 300, 301, 310, 330, 360};
  const AttentionShape large{.batch = 5, .query_len = 300, .key_len = 300, .head_dim = 16, .value_dim = 16};
  const Tensor x = random_tensor(DType::f32, {1, 1, 360, 16}, 1), d = random_tensor(DType::f32, x.shape(), 2),
               output = unwritten_like(x), sums = unwritten(DType::f32, {1, 1, 360}), dx = unwritten_like(x);
  const AttentionPlan plan = make_plan({.mask = Causal{}}, large);
  const AttentionInputs in{.query = x, .key = x, .value = x, .query_starts = starts, .key_starts = starts};
  const auto call = [&](Executor& executor) {
    attend(plan, in, {.output = output, .log_sum_exp = sums}, {.executor = &executor});
    attend_backward(plan, in, output, sums, d, {.query = dx}, {.executor = &executor});
  };
  const auto pool = make_thread_pool(2);
  call(*pool);
  const Tensor want = dx.clone();
  for (Executor* executor : {&serial_executor(), pool.get()}) {
    bool stopped = true;
    for (int most = 0; stopped; most += 7) {
      std::atomic<int> asked{0};
      CancellableExecutor cancellable(*executor, [&] { return asked++ >= most; });
      try {
        call(cancellable);
        stopped = false;
      } catch (const Cancelled&) {
      }
    }
    ASSERT_EQ(std::memcmp(dx.raw(), want.raw(), want.bytes()), 0);
  }
}

TEST(PackedCalls, OfLatentAttentionAreRefused) {
  const LatentPlan plan =
      make_latent_plan({}, {.query_len = 2, .key_len = 2, .content_dim = 4, .latent_dim = 4, .value_dim = 4},
                       LatentExecution::absorbed);
  const Starts starts{0, 2};
  const Tensor query = random_tensor(DType::f32, {1, 1, 2, 4}, 1),
               cache = random_tensor(DType::f32, {1, 2, 4}, 2),
               matrix = random_tensor(DType::f32, {1, 4, 4}, 3), output(DType::f32, {1, 1, 2, 4});
  LatentInputs in{.query_content = query, .cache = cache, .W_UK = matrix, .W_UV = matrix};
  in.attention.query_starts = in.attention.key_starts = starts;
  expect_refused([&] { attend_latent(plan, in, output); }, "attend_latent", "attention.query_starts");
}

}  // namespace
}  // namespace fovea::testing

// Plans and calls in general: capacities, the text of explain, and refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "fovea/attention/masks.h"
#include "fovea/plan/attention.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

Tensor random(Shape shape, std::uint64_t seed) {
  return random_tensor(DType::f32, shape, seed);
}

// By default values are as wide as queries: weights alone must be requested.
TEST(Plan, ValuesAreAsWideAsQueriesUnlessTold) {
  const AttentionShape left_out{.query_len = 2, .key_len = 3, .head_dim = 5};
  EXPECT_EQ(make_plan({}, left_out).shape().value_dim, 5);
  AttentionShape told = left_out;
  told.value_dim = 7;
  EXPECT_EQ(make_plan({}, told).shape().value_dim, 7);
  told.value_dim = AttentionShape::no_values;
  EXPECT_EQ(make_plan({}, told).shape().value_dim, 0);
  told.value_dim = -2;
  EXPECT_THROW(make_plan({}, told), InvalidArgument);
}

TEST(Plan, CapacityServesSmallerCalls) {
  const AttentionPlan plan = make_plan(
      {.mask = Causal{}}, {.batch = 3, .query_len = 64, .key_len = 128, .head_dim = 8, .value_dim = 8});
  for (const std::int64_t keys : {1, 5, 128}) {
    const Tensor q = random({2, 1, 1, 8}, 1), k = random({2, 1, keys, 8}, 2), v = random({2, 1, keys, 8}, 3),
                 out(DType::f32, {2, 1, 1, 8});
    attend(plan, q, k, v, out);
    const Tensor want(DType::f32, {2, 1, 1, 8});
    attend(make_plan({.mask = Causal{}},
                     {.batch = 2, .query_len = 1, .key_len = keys, .head_dim = 8, .value_dim = 8}),
           q, k, v, want);
    expect_same_bits({out}, {want});
  }
  const Tensor q = random({4, 1, 1, 8}, 1), k = random({4, 1, 2, 8}, 2), out(DType::f32, {4, 1, 1, 8});
  EXPECT_THROW(attend(plan, q, k, k, out), InvalidArgument);
}

TEST(Plan, RefusesInvalidArguments) {
  const AttentionShape good{.query_len = 4, .key_len = 4, .head_dim = 8, .value_dim = 8};
  const auto refused = [](const AttentionSpec& spec, const AttentionShape& shape, const PlanOptions& options,
                          const std::string& argument) {
    try {
      make_plan(spec, shape, options);
      ADD_FAILURE() << "accepted: " << argument;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.argument().find(argument), std::string::npos) << error.what();
      EXPECT_FALSE(error.expected().empty());
      EXPECT_FALSE(error.got().empty());
    }
  };
  AttentionShape bad = good;
  bad.num_query_heads = 3;
  bad.num_kv_heads = 2;
  refused({}, bad, {}, "num_kv_heads");
  bad = good;
  bad.head_dim = 0;
  refused({}, bad, {}, "head_dim");
  bad = good;
  bad.key_dim = 5;
  refused({}, bad, {}, "key_dim");
  refused({.score = Additive{}}, good, {}, "hidden");
  refused({.mask = SlidingWindow{-1, 0}}, good, {}, "mask");
  refused({.mask = KeyLengths{{1, 2}}}, good, {}, "mask");
  refused({.mask = Predicate("by-head", {.heads = good.num_query_heads + 1, .key_len = good.key_len},
                             std::vector<KeySpans>())},
          good, {}, "mask");
  refused({.dropout = {1.0}}, good, {}, "dropout");
  refused({.scale = 1e39}, good, {}, "scale");
  bad = good;
  bad.batch = bad.query_len = std::int64_t{1} << 30;
  refused({}, bad, {}, "shape");
  refused({}, good, {.kernel = "avx1024"}, "kernel");
  ::setenv("FOVEA_ISA", "sse9", 1);
  refused({}, good, {}, "FOVEA_ISA");
  ::setenv("FOVEA_ISA", "reference", 1);
  EXPECT_EQ(make_plan({}, good).kernel(), "reference");
  ::unsetenv("FOVEA_ISA");
  EXPECT_NE(explain(make_plan({.mask = Causal{}}, good)).find("causal"), std::string::npos);
}

TEST(Attention, OfOneCallTakesAllInputs) {
  const Tensor q = Tensor::normal({2, 1, 3, 4}, 1), k = Tensor::normal({2, 1, 5, 4}, 2),
               v = Tensor::normal({2, 1, 5, 4}, 3);
  const std::int64_t lengths[] = {5, 2};
  const AttentionInputs inputs{.query = q, .key = k, .value = v, .key_lengths = lengths};
  const Tensor all = attention({.mask = KeyLengths{}}, inputs),
               second = attention(ConstTensorView(q).slice(0, 1, 1),
                                  ConstTensorView(k).slice(0, 1, 1).slice(2, 0, 2),
                                  ConstTensorView(v).slice(0, 1, 1).slice(2, 0, 2));
  for (std::int64_t i = 0; i < second.count(); ++i)
    EXPECT_NEAR(all.data<float>()[second.count() + i], second.data<float>()[i], 1e-6);
  // Lengths that no mask reads are a mistake.
  try {
    attention({.mask = Causal{}}, inputs);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "key_lengths");
  }
  EXPECT_THROW(attention({}, {.query = q, .key = k}), InvalidArgument);
  // Errors of the plan and of the call name the function that was called.
  const Tensor heads = Tensor::normal({2, 3, 5, 4}, 4);
  expect_refused([&] { attention(q, heads, heads); }, "attention", "shape.num_kv_heads");
  expect_refused([&] { attention(q, k, heads); }, "attention", "value");
}

struct Shares {
  std::int64_t skipped = 0, partial = 0, full = 0;  // per cent
};

Shares shares_of(const AttentionPlan& plan, std::optional<std::int64_t> offset = std::nullopt) {
  const std::string text = explain(plan, offset);
  Shares s;
  EXPECT_EQ(std::sscanf(text.c_str() + text.find("keys: ", text.find("tiles of")),
                        "keys: %ld %% skipped, %ld %% partial, %ld %% full", &s.skipped, &s.partial, &s.full),
            3)
      << text;
  return s;
}

// The shares that explain prints, compared with each tile classified separately.
TEST(Plan, ExplainCountsTheTiles) {
  const AttentionShape shape{.batch = 2,
                             .num_query_heads = 4,
                             .num_kv_heads = 2,
                             .query_len = 500,
                             .key_len = 700,
                             .head_dim = 8,
                             .value_dim = 8};
  const Predicate by_head("by-head", {.heads = 4, .query_end = 800, .key_len = 700},
                          [](const Site& at) { return at.key < 200 * at.head && at.key <= at.query; });
  for (const Mask& mask : {Mask(Everything{}), Mask(Causal{}), Causal{} & SlidingWindow{.lookback = 100},
                           (Causal{} & SlidingWindow{.lookback = 60}) | GlobalTokens{0, 5, 300},
                           Mask(KeyLengths{{130, 700}}), ~Mask(Everything{}), by_head | GlobalTokens{3}}) {
    const AttentionPlan plan = make_plan({.mask = mask}, shape);
    for (const std::int64_t offset : {200, 0, -30}) {
      std::int64_t count[3] = {};
      for (std::int64_t unit = 0; unit < shape.batch * shape.num_query_heads; ++unit) {
        for (std::int64_t row = offset; row < offset + 500; row += 48) {
          const QueryBlock block{unit / 4, unit % 4, row, std::min(row + 48, offset + 500), 700};
          const BlockSpans spans = mask.node().spans(block);
          for (std::int64_t key = 0; key < 700; key += 128)
            ++count[static_cast<int>(classify(spans, key, std::min<std::int64_t>(key + 128, 700)))];
        }
      }
      const std::int64_t total = count[0] + count[1] + count[2];
      const Shares s = offset == 200 ? shares_of(plan) : shares_of(plan, offset);
      EXPECT_EQ(s.skipped, (100 * count[0] + total / 2) / total) << to_string(mask) << " " << offset;
      EXPECT_EQ(s.partial, (100 * count[1] + total / 2) / total) << to_string(mask) << " " << offset;
      EXPECT_EQ(s.full, (100 * count[2] + total / 2) / total) << to_string(mask) << " " << offset;
    }
  }
}

// If only some blocks are examined, they are a fair sample, even for batches whose entries are all alike.
TEST(Plan, ExplainSamplesFairly) {
  const auto shares = [](std::int64_t batch) {
    return shares_of(
        make_plan({.mask = Causal{}},
                  {.batch = batch, .query_len = 480, .key_len = 480, .head_dim = 8, .value_dim = 8}));
  };
  const Shares one = shares(1);
  for (const std::int64_t batch : {100, 409, 410, 411, 4095, 4096, 8192, 100000}) {
    const Shares many = shares(batch);
    EXPECT_NEAR(static_cast<double>(many.skipped), static_cast<double>(one.skipped), 1.0) << batch;
    EXPECT_NEAR(static_cast<double>(many.full), static_cast<double>(one.full), 1.0) << batch;
  }
  // Heads too: every fourth head sees all keys, the others none.
  const Predicate fourth("fourth", {.heads = 8, .query_end = 48, .key_len = 48},
                         [](const Site& at) { return at.head % 4 == 0; });
  const Shares some = shares_of(make_plan({.mask = fourth}, {.batch = 1000,
                                                             .num_query_heads = 8,
                                                             .num_kv_heads = 8,
                                                             .query_len = 48,
                                                             .key_len = 48,
                                                             .head_dim = 8,
                                                             .value_dim = 8}));
  EXPECT_NEAR(static_cast<double>(some.full), 25.0, 1.0);
  EXPECT_NEAR(static_cast<double>(some.skipped), 75.0, 1.0);
}

TEST(Call, RefusesInvalidArguments) {
  const AttentionPlan plan = make_plan({}, {.query_len = 4, .key_len = 4, .head_dim = 8, .value_dim = 8});
  const Tensor x = random({1, 1, 4, 8}, 1), out(DType::f32, {1, 1, 4, 8}), wide(DType::f64, {1, 1, 4, 8});
  EXPECT_THROW(attend(plan, x, x, x, x), InvalidArgument);       // output over input
  EXPECT_THROW(attend(plan, wide, x, x, out), InvalidArgument);  // dtype
  EXPECT_THROW(attend(plan, x, x, x, Tensor(DType::f32, {1, 1, 4, 7})), InvalidArgument);
  EXPECT_THROW(attend(plan, ConstTensorView(), x, x, out), InvalidArgument);
  std::vector<std::byte> small(8);
  EXPECT_THROW(
      attend(plan, AttentionInputs{.query = x, .key = x, .value = x}, {.output = out}, {.workspace = small}),
      InvalidArgument);
  const std::int64_t strides[] = {32, 32, 1, 4};
  EXPECT_THROW(attend(plan, ConstTensorView(x.raw(), DType::f32, {1, 1, 4, 8}, strides), x, x, out),
               InvalidArgument);
  // One element would be written by two rows; a result overlaps another result; a result overlaps a
  // parameter.
  const std::int64_t folded[] = {16, 16, 4, 1};
  EXPECT_THROW(attend(plan, x, x, x, TensorView(out.raw(), DType::f32, {1, 1, 4, 8}, folded)),
               InvalidArgument);
  const AttentionInputs in{.query = x, .key = x, .value = x};
  EXPECT_THROW(attend(plan, in, {.output = out, .log_sum_exp = TensorView(out.raw(), DType::f32, {1, 1, 4})}),
               InvalidArgument);
  const AttentionPlan bilinear = make_plan({.score = Bilinear{}}, plan.shape());
  const Tensor W = random({8, 8}, 2);
  AttentionInputs with_parameter = in;
  with_parameter.arguments.set("score.W", W);
  EXPECT_NO_THROW(attend(bilinear, with_parameter, {.output = out}));
  EXPECT_THROW(attend(bilinear, with_parameter, {.output = TensorView(W.raw(), DType::f32, {1, 1, 4, 8})}),
               InvalidArgument);
}

}  // namespace
}  // namespace fovea::testing

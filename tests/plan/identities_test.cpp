// Identities that hold whatever the implementation (mechanisms: permutations, prefixes, merging, shifts,
// uniform averages).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "plan/cases.h"

namespace fovea::testing {
namespace {

struct Out {
  Tensor output, log_sum_exp, weights;
};

Out run(const AttentionSpec& spec, const Tensor& q, const Tensor& k, const Tensor& v,
        AttentionInputs extra = {}, std::vector<std::int64_t> heads = {}) {
  const AttentionShape shape{.batch = q.size(0),
                             .num_query_heads = q.size(1),
                             .num_kv_heads = k.size(1),
                             .query_len = q.size(2),
                             .key_len = k.size(2),
                             .head_dim = q.size(3),
                             .value_dim = v.size(3),
                             .key_dim = k.size(3),
                             .hidden = extra.parameters.v ? extra.parameters.v.count() : 0};
  const std::int64_t slots = heads.empty() ? q.size(1) : static_cast<std::int64_t>(heads.size());
  Out out{Tensor(DType::f32, {q.size(0), q.size(1), q.size(2), v.size(3)}),
          Tensor(DType::f32, {q.size(0), q.size(1), q.size(2)}),
          Tensor(DType::f32, {q.size(0), slots, q.size(2), k.size(2)})};
  extra.query = q;
  extra.key = k;
  extra.value = v;
  attend(
      make_plan(spec, shape), extra,
      {.output = out.output, .log_sum_exp = out.log_sum_exp, .weights = out.weights, .weight_heads = heads});
  return out;
}

Tensor random(Shape shape, std::uint64_t seed) {
  return random_tensor(DType::f32, shape, seed);
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.count(), b.count());
  for (std::int64_t i = 0; i < a.count(); ++i) ASSERT_NEAR(element(a, i), element(b, i), tolerance) << i;
}

constexpr double tight = 3e-5;  // 16 · eps · length 97, rounded up

// A copy of [1, H, L, D] with rows taken in another order.
Tensor permuted(const Tensor& x, const std::vector<std::int64_t>& order) {
  Tensor y(DType::f32, x.shape());
  const std::int64_t rows = x.size(2), dim = x.size(3);
  for (std::int64_t h = 0; h < x.size(1); ++h) {
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(y.data<float>() + (h * rows + r) * dim, x.data<float>() + (h * rows + order[r]) * dim,
                  4 * dim);
  }
  return y;
}

TEST(Identity, OrderOfKeysDoesNotMatterOrderOfQueriesCarriesOver) {
  const Tensor q = random({1, 2, 50, 8}, 1), k = random({1, 2, 50, 8}, 2), v = random({1, 2, 50, 8}, 3);
  std::vector<std::int64_t> order(50);
  for (std::int64_t i = 0; i < 50; ++i) order[i] = (i * 7 + 3) % 50;
  const Tensor plain = run({}, q, k, v).output;
  expect_near(run({}, q, permuted(k, order), permuted(v, order)).output, plain, tight);
  expect_near(run({}, permuted(q, order), k, v).output, permuted(plain, order), 0.0);
}

TEST(Identity, CausalPrefixIsBitIdentical) {
  const Tensor q = random({1, 1, 97, 16}, 1), k = random({1, 1, 97, 16}, 2), v = random({1, 1, 97, 16}, 3);
  const Tensor before = run({.mask = Causal{}}, q, k, v).output;
  for (std::int64_t i = 60 * 16; i < 97 * 16; ++i) k.data<float>()[i] = v.data<float>()[i] = 9.0f;
  const Tensor after = run({.mask = Causal{}}, q, k, v).output;
  EXPECT_EQ(std::memcmp(before.raw(), after.raw(), 60 * 16 * 4), 0);
  EXPECT_NE(std::memcmp(before.raw(), after.raw(), before.bytes()), 0);
}

TEST(Identity, PartsMergeByLogSumExp) {
  const Tensor q = random({1, 1, 20, 8}, 1), k = random({1, 1, 97, 8}, 2), v = random({1, 1, 97, 8}, 3);
  const Out whole = run({}, q, k, v);
  const Out a = run({.mask = KeyLengths{{40}}}, q, k, v), b = run({.mask = ~Mask(KeyLengths{{40}})}, q, k, v);
  for (std::int64_t r = 0; r < 20; ++r) {
    const double la = element(a.log_sum_exp, r), lb = element(b.log_sum_exp, r),
                 l = std::log(std::exp(la) + std::exp(lb));
    EXPECT_NEAR(l, element(whole.log_sum_exp, r), tight);
    for (std::int64_t d = 0; d < 8; ++d) {
      EXPECT_NEAR(
          std::exp(la - l) * element(a.output, r * 8 + d) + std::exp(lb - l) * element(b.output, r * 8 + d),
          element(whole.output, r * 8 + d), tight);
    }
  }
}

TEST(Identity, ShiftsOfValuesAndKeys) {
  const Tensor q = random({1, 1, 20, 8}, 1), k = random({1, 1, 60, 8}, 2), v = random({1, 1, 60, 8}, 3);
  const Tensor plain = run({}, q, k, v).output, shifted_v = v.clone(), shifted_k = k.clone();
  for (std::int64_t i = 0; i < v.count(); ++i) shifted_v.data<float>()[i] += 3.0f;
  for (std::int64_t i = 0; i < k.count(); ++i)
    shifted_k.data<float>()[i] += 0.5f;  // adds q·c to every score of a row
  const Tensor by_v = run({}, q, k, shifted_v).output;
  for (std::int64_t i = 0; i < plain.count(); ++i)
    EXPECT_NEAR(element(by_v, i), element(plain, i) + 3.0, 4 * tight);
  expect_near(run({}, q, shifted_k, v).output, plain, tight);
}

TEST(Identity, GroupedHeadsAreRepeatedKeys) {
  const Tensor q = random({1, 4, 30, 8}, 1), k = random({1, 2, 40, 8}, 2), v = random({1, 2, 40, 8}, 3);
  Tensor k4(DType::f32, {1, 4, 40, 8}), v4(DType::f32, {1, 4, 40, 8});
  for (std::int64_t h = 0; h < 4; ++h) {
    std::memcpy(k4.data<float>() + h * 320, k.data<float>() + h / 2 * 320, 1280);
    std::memcpy(v4.data<float>() + h * 320, v.data<float>() + h / 2 * 320, 1280);
  }
  expect_near(run({}, q, k, v).output, run({}, q, k4, v4).output, 0.0);
}

TEST(Identity, AdditiveWithoutVectorIsTheMean) {
  const Tensor q = random({1, 1, 9, 8}, 1), k = random({1, 1, 60, 8}, 2), v = random({1, 1, 60, 5}, 3),
               zero = Tensor::zeros(DType::f32, {8});
  AttentionInputs extra;
  extra.parameters.v = zero;
  const Tensor out = run({.score = Additive{}}, q, k, v, extra).output;
  for (std::int64_t d = 0; d < 5; ++d) {
    double mean = 0.0;
    for (std::int64_t j = 0; j < 60; ++j) mean += element(v, j * 5 + d) / 60;
    for (std::int64_t r = 0; r < 9; ++r) EXPECT_NEAR(element(out, r * 5 + d), mean, tight);
  }
}

TEST(Identity, ASinkTakesItsShare) {
  const Tensor q = random({2, 3, 40, 16}, 1), k = random({2, 3, 60, 16}, 2), v = random({2, 3, 60, 8}, 3);
  const Out plain = run({.mask = Causal{}}, q, k, v);
  for (const double sink : {-1e4, -1.0, 0.5, 8.0, 1e4}) {
    Tensor sinks(DType::f32, {3});
    sinks.fill(sink);
    AttentionInputs in;
    in.sink = sinks;
    const Out with = run({.mask = Causal{}, .normalizer = SoftmaxWithSink{}}, q, k, v, in);
    expect_near(with.log_sum_exp, plain.log_sum_exp, 0.0);  // the sink is left out of it
    for (std::int64_t row = 0; row < plain.log_sum_exp.count(); ++row) {
      const double share = 1.0 / (1.0 + std::exp(sink - element(plain.log_sum_exp, row)));
      for (std::int64_t d = 0; d < 8; ++d)
        ASSERT_NEAR(element(with.output, row * 8 + d), share * element(plain.output, row * 8 + d), tight);
      for (std::int64_t j = 0; j < 60; ++j)
        ASSERT_NEAR(element(with.weights, row * 60 + j), share * element(plain.weights, row * 60 + j), tight);
    }
  }
}

TEST(Identity, SigmoidPartsAddUp) {
  const Tensor q = random({1, 2, 30, 16}, 1), k = random({1, 2, 90, 16}, 2), v = random({1, 2, 90, 8}, 3);
  const auto part = [&](std::int64_t first, std::int64_t last) {
    Mask mask = SlidingWindow{.lookback = SlidingWindow::unlimited, .lookahead = SlidingWindow::unlimited};
    mask = ~Mask(KeyLengths{{first}}) & KeyLengths{{last}};
    return run({.mask = mask, .normalizer = Sigmoid{-0.5}}, q, k, v);
  };
  const Out whole = part(0, 90), a = part(0, 37), b = part(37, 90);
  for (std::int64_t i = 0; i < whole.output.count(); ++i)
    ASSERT_NEAR(element(whole.output, i), element(a.output, i) + element(b.output, i), tight);
}

// W = UᵀV gives the low-rank score; a concat matrix cut in two gives the additive one.
TEST(Identity, LowRankAndConcat) {
  const Tensor q = random({1, 2, 20, 6}, 1), k = random({1, 2, 30, 7}, 2), v = random({1, 2, 30, 8}, 3);
  const Tensor V = random({3, 6}, 4), U = random({3, 7}, 5);
  Tensor W = Tensor::zeros(DType::f32, {7, 6});
  for (std::int64_t i = 0; i < 7; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      double sum = 0.0;
      for (std::int64_t r = 0; r < 3; ++r) sum += element(U, r * 7 + i) * element(V, r * 6 + j);
      set_element(W, i * 6 + j, sum);
    }
  }
  const auto output = [&](const AttentionSpec& spec, const ScoreParameters& parameters, std::int64_t hidden) {
    Tensor out(DType::f32, {1, 2, 20, 8});
    AttentionInputs in{.query = q, .key = k, .value = v, .parameters = parameters};
    attend(make_plan(spec, {.num_query_heads = 2,
                            .num_kv_heads = 2,
                            .query_len = 20,
                            .key_len = 30,
                            .head_dim = 6,
                            .value_dim = 8,
                            .key_dim = 7,
                            .hidden = hidden}),
           in, {.output = out});
    return out;
  };
  expect_near(output({.score = LowRankBilinear{}}, {.W = V, .U = U, .v = {}, .b = {}}, 3),
              output({.score = Bilinear{}}, {.W = W, .U = {}, .v = {}, .b = {}}, 0), tight);
  const Tensor joint = random({5, 13}, 6), vector = random({5}, 7);
  const ScoreParameters cut = concat_parameters(joint, vector, 6);
  const Tensor left = Tensor::copy_of(cut.W), right = Tensor::copy_of(cut.U);
  expect_near(output({.score = Additive{}}, cut, 5),
              output({.score = Additive{}}, {.W = left, .U = right, .v = vector, .b = {}}, 5), 0.0);
  EXPECT_EQ(element(left, 6), element(joint, 13));
  EXPECT_EQ(element(right, 7), element(joint, 13 + 6));
  EXPECT_THROW(concat_parameters(joint, vector, 14), InvalidArgument);
}

// mechanisms 6, 9, 11: a bias of log n is a key repeated n times, a cap far away is none, a slope over
// distance is one over keys.
TEST(Identity, Mods) {
  const Tensor q = random({1, 2, 20, 8}, 1), k = random({1, 2, 30, 8}, 2), v = random({1, 2, 30, 8}, 3);
  const Out plain = run({}, q, k, v);
  expect_near(run({.mods = {SoftCap{1e4}}}, q, k, v).output, plain.output, tight);
  const auto with = [&](Mods mods, const Tensor& argument, const Tensor& keys, const Tensor& values) {
    const ConstTensorView views[] = {argument};
    AttentionInputs in;
    in.mod_arguments = views;
    return run({.mods = std::move(mods)}, q, keys, values, in);
  };
  // Keys 3 and 17, three times and twice.
  std::vector<std::int64_t> order(30);
  std::iota(order.begin(), order.end(), 0);
  Tensor logs = Tensor::zeros(DType::f32, {1, 1, 1, 30});
  set_element(logs, 3, std::log(3.0));
  set_element(logs, 17, std::log(2.0));
  for (const std::int64_t again : {3, 3, 17}) order.push_back(again);
  const auto repeated = [&](const Tensor& x) {
    Tensor y(DType::f32, {1, 2, 33, 8});
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::size_t r = 0; r < order.size(); ++r)
        std::memcpy(y.data<float>() + (h * 33 + static_cast<std::int64_t>(r)) * 8,
                    x.data<float>() + (h * 30 + order[r]) * 8, 32);
    }
    return y;
  };
  expect_near(with({DenseBias{}}, logs, k, v).output, run({}, q, repeated(k), repeated(v)).output, tight);
  // -m(i - j) = -m·i + m·j, and a row's softmax does not see -m·i.
  Tensor slopes(DType::f32, {1, 2, 1, 1}), ramp(DType::f32, {1, 2, 1, 30});
  for (std::int64_t h = 0; h < 2; ++h) {
    set_element(slopes, h, 0.25 * static_cast<double>(h + 1));
    for (std::int64_t j = 0; j < 30; ++j)
      set_element(ramp, h * 30 + j, 0.25 * static_cast<double>((h + 1) * j));
  }
  expect_near(with({AlibiBias{}}, slopes, k, v).output, with({DenseBias{}}, ramp, k, v).output, tight);
}

TEST(Identity, WindowsAtTheirEnds) {
  const Tensor q = random({1, 1, 60, 8}, 1), k = random({1, 1, 60, 8}, 2), v = random({1, 1, 60, 8}, 3);
  expect_near(run({.mask = SlidingWindow{60, 60}}, q, k, v).output, run({}, q, k, v).output, 0.0);
  expect_near(run({.mask = SlidingWindow{0, 0}}, q, k, v).output, v, 1e-6);
}

TEST(Weights, RowsSumToOneAndChosenHeadsAreTheirs) {
  const Tensor q = random({2, 4, 60, 8}, 1), k = random({2, 2, 70, 8}, 2), v = random({2, 2, 70, 8}, 3);
  const Out all = run({.mask = Causal{}}, q, k, v), some = run({.mask = Causal{}}, q, k, v, {}, {3, 1, 3});
  for (std::int64_t row = 0; row < 2 * 4 * 60; ++row) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < 70; ++j) sum += element(all.weights, row * 70 + j);
    EXPECT_NEAR(sum, 1.0, tight);
  }
  const std::int64_t block = 60 * 70 * 4, chosen[] = {3, 1, 3};
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t s = 0; s < 3; ++s)
      EXPECT_EQ(std::memcmp(some.weights.raw() + (b * 3 + s) * block,
                            all.weights.raw() + (b * 4 + chosen[s]) * block, block),
                0);
  }
}

TEST(Dropout, TheMeanOfManyIsThePlainOutput) {
  const Tensor q = random({1, 1, 3, 8}, 1), k = random({1, 1, 40, 8}, 2), v = random({1, 1, 40, 4}, 3);
  const Tensor plain = run({}, q, k, v).output;
  std::vector<double> sum(12), square(12);
  constexpr int trials = 3000;
  for (int seed = 0; seed < trials; ++seed) {
    AttentionInputs extra;
    extra.dropout_seed = static_cast<std::uint64_t>(seed);
    const Tensor out = run({.dropout = {0.5}}, q, k, v, extra).output;
    for (std::int64_t i = 0; i < 12; ++i) {
      sum[i] += element(out, i);
      square[i] += element(out, i) * element(out, i);
    }
  }
  for (std::int64_t i = 0; i < 12; ++i) {
    const double mean = sum[i] / trials, deviation = std::sqrt((square[i] / trials - mean * mean) / trials);
    EXPECT_NEAR(mean, element(plain, i), 5 * deviation);
  }
}

TEST(Plan, CapacityServesSmallerCalls) {
  const AttentionPlan plan = make_plan(
      {.mask = Causal{}}, {.batch = 3, .query_len = 64, .key_len = 128, .head_dim = 8, .value_dim = 8});
  for (const std::int64_t keys : {1, 5, 128}) {
    const Tensor q = random({2, 1, 1, 8}, 1), k = random({2, 1, keys, 8}, 2), v = random({2, 1, keys, 8}, 3),
                 out(DType::f32, {2, 1, 1, 8});
    attend(plan, q, k, v, out);
    expect_near(out, run({.mask = Causal{}}, q, k, v).output, 0.0);
  }
  const Tensor q = random({4, 1, 1, 8}, 1), k = random({4, 1, 2, 8}, 2), out(DType::f32, {4, 1, 1, 8});
  EXPECT_THROW(attend(plan, q, k, k, out), InvalidArgument);
}

TEST(Plan, RefusesAtTheDoor) {
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

// The shares that explain prints, against every tile classified alone.
TEST(Plan, ExplainCountsTheTiles) {
  const AttentionShape shape{.batch = 2, .query_len = 500, .key_len = 700, .head_dim = 8, .value_dim = 8};
  for (const Mask& mask : {Mask(Everything{}), Mask(Causal{}), Causal{} & SlidingWindow{.lookback = 100},
                           (Causal{} & SlidingWindow{.lookback = 60}) | GlobalTokens{0, 5, 300},
                           Mask(KeyLengths{{130, 700}}), ~Mask(Everything{})}) {
    const AttentionPlan plan = make_plan({.mask = mask}, shape);
    for (const std::int64_t offset : {200, 0, -30}) {
      std::int64_t count[3] = {};
      for (std::int64_t b = 0; b < shape.batch; ++b) {
        for (std::int64_t row = offset; row < offset + 500; row += 48) {
          const QueryBlock block{b, row, std::min(row + 48, offset + 500), 700, {}};
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

// Where only some blocks are looked at, they are a fair sample: batches of one sentence all look alike.
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
}

TEST(Call, RefusesWhatDoesNotFit) {
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
  // One element would be written by two rows; a result over another; a result over a parameter.
  const std::int64_t folded[] = {16, 16, 4, 1};
  EXPECT_THROW(attend(plan, x, x, x, TensorView(out.raw(), DType::f32, {1, 1, 4, 8}, folded)),
               InvalidArgument);
  const AttentionInputs in{.query = x, .key = x, .value = x};
  EXPECT_THROW(attend(plan, in, {.output = out, .log_sum_exp = TensorView(out.raw(), DType::f32, {1, 1, 4})}),
               InvalidArgument);
  const AttentionPlan bilinear = make_plan({.score = Bilinear{}}, plan.shape());
  const Tensor W = random({8, 8}, 2);
  AttentionInputs with_parameter = in;
  with_parameter.parameters.W = W;
  EXPECT_NO_THROW(attend(bilinear, with_parameter, {.output = out}));
  EXPECT_THROW(attend(bilinear, with_parameter, {.output = TensorView(W.raw(), DType::f32, {1, 1, 4, 8})}),
               InvalidArgument);
}

}  // namespace
}  // namespace fovea::testing

// Attention as an operation: gradients against central differences, arguments, offsets, packed batches,
// plans.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/central_differences.h"
#include "fovea/attention/make_mod.h"
#include "fovea/autograd/ops.h"
#include "fovea/autograd/plan_cache.h"

namespace fovea::autograd {
namespace {

TEST(Gradient, Attention) {
  const auto sized = [](std::int64_t length, std::int64_t width, std::uint64_t seed) {
    return parameter({2, length, width}, seed);
  };
  const std::vector<std::int64_t> lengths{5, 3};
  AttentionCall call{
      .spec = {.mask = KeyLengths{}}, .num_query_heads = 2, .num_kv_heads = 1, .key_lengths = lengths};
  check({sized(3, 8, 1), sized(5, 4, 2), sized(5, 6, 3)},
        [=](const auto& v) { return attention(call, v[0], v[1], v[2]); });
  check({sized(3, 4, 1), sized(5, 6, 2), sized(5, 6, 3), parameter({6, 4}, 4)}, [=](const auto& v) {
    AttentionCall c{.spec = {.score = Bilinear{}, .mask = KeyLengths{}}, .key_lengths = lengths};
    c.arguments = {{"score.W", v[3]}};
    return attention(c, v[0], v[1], v[2]);
  });
  check({sized(3, 4, 1), sized(5, 4, 2), sized(5, 6, 3), parameter({4}, 4)}, [=](const auto& v) {
    AttentionCall c{.spec = {.score = Additive{}, .mask = KeyLengths{}}, .key_lengths = lengths};
    c.arguments = {{"score.v", v[3]}};
    return attention(c, v[0], v[1], v[2]);
  });
  check({sized(6, 4, 1), sized(6, 4, 2), sized(6, 4, 3)}, [](const auto& v) {
    return attention({.spec = {.mask = Causal{}, .dropout = {0.3}}, .dropout_seed = 8}, v[0], v[1], v[2]);
  });
}

// Every kind of argument gets its gradient: arguments of mods (built-in, a table, a user's lambda) and of a
// normaliser.
TEST(Gradient, AttentionArguments) {
  const auto sized = [](std::int64_t width, std::uint64_t seed) { return parameter({2, 5, width}, seed); };
  const auto with = [&](const AttentionSpec& spec, const char* name, const Shape& shape) {
    SCOPED_TRACE(name);
    check({sized(4, 1), sized(4, 2), sized(6, 3), parameter(shape, 4)}, [=](const auto& v) {
      const AttentionCall call{
          .spec = spec, .num_query_heads = 2, .num_kv_heads = 2, .arguments = {{name, v[3]}}};
      return attention(call, v[0], v[1], v[2]);
    });
  };
  const Mod own = make_mod("own", {"rate"}, [](auto score, Site at, auto rate) {
    return score - rate * elementwise::log(1.0 + elementwise::abs(at.query - at.key));
  });
  with({.mods = {AlibiBias{}}, .mask = Causal{}}, "mods[0].slope", {1, 2, 1, 1});
  with({.mods = {RelativeBias{8, 20}}}, "mods[0].table", {1, 2, 1, 8});
  with({.mods = {SoftCap{3}, own}}, "mods[1].rate", {1, 2, 1, 1});
  with({.normalizer = SoftmaxWithSink{}}, "normalizer.sink", {2});
  with({.mask = Causal{}, .normalizer = ScalableSoftmax{}}, "normalizer.scale", {2});
}

// A score that reads no keys: the rows of an argument stand in their place.
TEST(Gradient, AttentionByLocation) {
  const auto call_of = [](const Var& rows) {
    return AttentionCall{.spec = {.score = Location{}, .mask = Causal{}},
                         .num_query_heads = 2,
                         .num_kv_heads = 2,
                         .query_offset = 2,
                         .arguments = {{"score.W", rows}}};
  };
  check({parameter({2, 3, 8}, 1), parameter({2, 5, 6}, 2), parameter({7, 4}, 3)},
        [&](const auto& v) { return attention(call_of(v[2]), v[0], Var(), v[1]); });
  check({parameter({2, 3, 8}, 1), parameter({5, 4}, 3)},
        [&](const auto& v) { return attention_weights(call_of(v[1]), v[0], Var()); });
  const Var x = Tensor::zeros(DType::f32, {2, 3, 8});
  EXPECT_THROW(attention(call_of(Tensor::zeros(DType::f32, {7, 4})), x, x, x), InvalidArgument);
  EXPECT_THROW(attention({}, x, Var(), x), InvalidArgument);
  EXPECT_THROW(attention_weights({}, x, Var()), InvalidArgument);
}

TEST(Gradient, AnArgumentThatTheSpecDoesNotHaveIsRefused) {
  const Tensor x = Tensor::zeros(DType::f32, {1, 2, 4}), slope = Tensor::zeros(DType::f32, {1, 1, 1, 1});
  const AttentionCall unknown{.spec = {}, .arguments = {{"mods[0].slope", slope}}},
      missing{.spec = {.mods = {AlibiBias{}}}};
  EXPECT_THROW(attention(unknown, x, x, x), InvalidArgument);
  EXPECT_THROW(attention(missing, x, x, x), InvalidArgument);
}

// Softmax weights sum to 1, so a constant added to their derivative must change nothing. `weigh` draws
// derivatives that are not constant.
TEST(Gradient, AttentionWeights) {
  const std::vector<std::int64_t> lengths{5, 3};
  const auto sized = [](std::int64_t length, std::int64_t width, std::uint64_t seed) {
    return parameter({2, length, width}, seed);
  };
  check({sized(3, 8, 1), sized(5, 4, 2)}, [=](const auto& v) {
    return attention_weights(
        {.spec = {.mask = KeyLengths{}}, .num_query_heads = 2, .num_kv_heads = 1, .key_lengths = lengths},
        v[0], v[1]);
  });
  check({sized(3, 4, 1), sized(5, 4, 2), parameter({4}, 3)}, [](const auto& v) {
    AttentionCall call{.spec = {.score = Additive{}}};
    call.arguments = {{"score.v", v[2]}};
    return attention_weights(call, v[0], v[1]);
  });
  EXPECT_THROW(attention_weights({.spec = {.dropout = {0.5}}}, Tensor::zeros(DType::f32, {1, 1, 2}),
                                 Tensor::zeros(DType::f32, {1, 1, 2})),
               InvalidArgument);
}

TEST(AttentionWeights, TimesTheValuesAreTheOutput) {
  const Tensor q = parameter({2, 3, 8}, 1).value, k = parameter({2, 6, 8}, 2).value,
               v = parameter({2, 6, 8}, 3).value;
  const AttentionCall call{
      .spec = {.mask = Causal{}}, .num_query_heads = 2, .num_kv_heads = 2, .query_offset = 2};
  const Tensor weights = attention_weights(call, q, k).value(), output = attention(call, q, k, v).value();
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 3; ++i) {
        for (std::int64_t d = 0; d < 4; ++d) {
          double sum = 0.0;
          for (std::int64_t j = 0; j < 6; ++j)
            sum += weights.view().at<float>({b, h, i, j}) * v.view().at<float>({b, j, h * 4 + d});
          EXPECT_NEAR(sum, output.view().at<float>({b, i, h * 4 + d}), 1e-5);
        }
      }
    }
  }
}

// The caller's list no longer exists when the backward pass runs.
TEST(Gradient, AttentionWithOffsetsByEntry) {
  const auto sized = [](std::int64_t length, std::uint64_t seed) { return parameter({2, length, 8}, seed); };
  check({sized(2, 1), sized(6, 2), sized(6, 3)}, [](const auto& v) {
    const std::vector<std::int64_t> offsets{4, 1};
    return attention(
        {.spec = {.mask = Causal{}}, .num_query_heads = 2, .num_kv_heads = 2, .query_offsets = offsets}, v[0],
        v[1], v[2]);
  });
}

TEST(Attention, OffsetsByEntryEqualCallsOfEachEntryAlone) {
  const Tensor q = parameter({3, 2, 8}, 1).value, k = parameter({3, 9, 8}, 2).value;
  const std::vector<std::int64_t> offsets{7, 0, 3};
  const RopeTable table({.rotary_dim = 4}, 9, DType::f32);
  const AttentionSpec spec{.mods = {SoftCap{2}}, .mask = Causal{}, .dropout = {0.5}};
  const auto run = [&](std::optional<std::int64_t> offset, std::span<const std::int64_t> list) {
    const Var turned = list.empty() ? rotate(q, table, 2, *offset) : rotate(q, table, 2, list);
    return attention({.spec = spec,
                      .num_query_heads = 2,
                      .num_kv_heads = 2,
                      .query_offset = offset,
                      .query_offsets = list,
                      .dropout_seed = 5},
                     turned, k, k)
        .value();
  };
  const Tensor together = run({}, offsets);
  for (std::int64_t b = 0; b < 3; ++b) {
    const Tensor alone = run(offsets[static_cast<std::size_t>(b)], {});
    for (std::int64_t i = b * 16; i < (b + 1) * 16; ++i)
      EXPECT_EQ(together.data<float>()[i], alone.data<float>()[i]) << b;
  }
  EXPECT_THROW(run(1, offsets), InvalidArgument);  // both
  EXPECT_THROW(rotate(q, table, 2, std::span(offsets).first(2)), InvalidArgument);
}

// As in the engine: the last query stands at the last key.
TEST(Attention, WithoutAnOffsetQueriesAndKeysEndTogether) {
  const Tensor q = parameter({1, 2, 8}, 1).value, k = parameter({1, 9, 8}, 2).value;
  AttentionCall call{.spec = {.mask = Causal{}}, .num_query_heads = 2, .num_kv_heads = 2};
  const auto run = [&] { return attention(call, q, k, k).value(); };
  const Tensor absent = run();
  call.query_offset = 7;
  const Tensor given = run();
  for (std::int64_t i = 0; i < given.count(); ++i) EXPECT_EQ(absent.data<float>()[i], given.data<float>()[i]);
}

// A loop over calls of one shape plans once, whatever mods and mask it writes down in each step. Backward
// does not need the cache.
TEST(Attention, KeepsThePlansOfALoop) {
  const Tensor q = parameter({2, 1, 8}, 1).value, k = parameter({2, 9, 8}, 2).value;
  PlanCache plans;
  const auto run = [&](PlanCache* kept, const Tensor& keys) {
    AttentionCall call{.spec = {.score = Dot{}, .mods = {SoftCap{30.0}}, .mask = KeyLengths{}},
                       .num_query_heads = 2,
                       .num_kv_heads = 2};
    const std::vector<std::int64_t> lengths{9, 4};
    call.key_lengths = lengths;
    call.plans = kept;
    return attention(call, q, keys, keys).value();
  };
  const Tensor alone = run(nullptr, k);
  for (int step = 0; step < 5; ++step) {
    const Tensor kept = run(&plans, k);
    for (std::int64_t i = 0; i < kept.count(); ++i) EXPECT_EQ(kept.data<float>()[i], alone.data<float>()[i]);
  }
  EXPECT_EQ(plans.made(), 1);
  run(&plans, parameter({2, 10, 8}, 2).value);
  EXPECT_EQ(plans.made(), 2);
}

// Specs that differ in one part need plans of their own; copies of a mod are one mod.
TEST(Attention, KeepsAPlanForEachSpec) {
  PlanCache plans;
  const Mod shift = make_mod("shift", [](auto score, Site) { return score + 1.0f; });
  const AttentionShape shape{.query_len = 4, .key_len = 4, .head_dim = 8};
  const AttentionSpec specs[] = {
      {.score = Dot{}, .mods = {shift}}, {.score = ScaledDot{}, .mods = {shift}}, {.score = Dot{}}};
  for (const AttentionSpec& spec : specs) {
    const AttentionPlan plan = plans.of(spec, shape);
    EXPECT_EQ(plan.spec().score, spec.score);
    EXPECT_EQ(plan.spec().mods.size(), spec.mods.size());
  }
  EXPECT_EQ(plans.made(), 3);
  plans.of({.score = Dot{}, .mods = {Mod(shift)}}, shape);
  EXPECT_EQ(plans.made(), 3);
  plans.of(specs[2], shape, {.kernel = "reference"});
  EXPECT_EQ(plans.made(), 4);
  EXPECT_EQ(plans.of(specs[2], shape, {.kernel = "reference"}).kernel(), "reference");
}

// The second value would replace the first one, and the gradient of the first would hold anything.
TEST(Attention, RefusesAnArgumentThatIsGivenTwice) {
  const Tensor q = parameter({1, 3, 8}, 1).value, slope = parameter({1, 2, 1, 1}, 2).value;
  const AttentionCall call{.spec = {.mods = {AlibiBias{}}},
                           .num_query_heads = 2,
                           .num_kv_heads = 2,
                           .arguments = {{"mods[0].slope", slope}, {"mods[0].slope", slope}}};
  try {
    attention(call, q, q, q);
    FAIL() << "it was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("'mods[0].slope' twice"), std::string::npos) << error.what();
  }
}

// The caller's lists no longer exist when the backward pass runs. Slopes are shared by entries.
TEST(Gradient, AttentionOfAPackedBatch) {
  const auto sized = [](std::int64_t length, std::uint64_t seed) { return parameter({1, length, 8}, seed); };
  const auto call = [](const auto& v, const auto& run) {
    const std::vector<std::int64_t> queries{0, 2, 2, 5}, keys{0, 6, 8, 11}, offsets{4, 0, 0};
    AttentionCall packed{.spec = {.mods = {AlibiBias{}}, .mask = Causal{}},
                         .num_query_heads = 2,
                         .num_kv_heads = 2,
                         .query_offsets = offsets,
                         .query_starts = queries,
                         .key_starts = keys};
    packed.arguments = {{"mods[0].slope", v.back()}};
    return run(packed);
  };
  check({sized(5, 1), sized(11, 2), sized(11, 3), parameter({1, 2, 1, 1}, 4)}, [&](const auto& v) {
    return call(v, [&](const AttentionCall& packed) { return attention(packed, v[0], v[1], v[2]); });
  });
  check({sized(5, 1), sized(11, 2), parameter({1, 2, 1, 1}, 4)}, [&](const auto& v) {
    return call(v, [&](const AttentionCall& packed) { return attention_weights(packed, v[0], v[1]); });
  });
  const RopeTable table({.rotary_dim = 4}, 8, DType::f32);
  check({sized(5, 1)}, [&](const auto& v) {
    const std::vector<std::int64_t> starts{0, 2, 2, 5}, first{3, 0, 1};
    return rotate_packed(v[0], table, 2, starts, first);
  });
}

TEST(Attention, EntriesOfAPackedBatchEqualCallsOfEachEntryAlone) {
  const Tensor q = parameter({1, 5, 8}, 1).value, k = parameter({1, 9, 8}, 2).value;
  const std::vector<std::int64_t> queries{0, 2, 5}, keys{0, 3, 9}, first{1, 4};
  const RopeTable table({.rotary_dim = 4}, 9, DType::f32);
  const AttentionSpec spec{.mods = {SoftCap{2}}, .mask = Causal{}};
  Tensor weights;
  const Tensor together = attention({.spec = spec,
                                     .num_query_heads = 2,
                                     .num_kv_heads = 2,
                                     .query_offsets = first,
                                     .query_starts = queries,
                                     .key_starts = keys,
                                     .weights = &weights},
                                    rotate_packed(q, table, 2, queries, first), k, k)
                              .value();
  EXPECT_EQ(weights.shape(), (Shape{1, 2, 5, 6}));
  for (std::size_t e = 0; e < 2; ++e) {
    const auto rows = [e](const Tensor& t, const std::vector<std::int64_t>& starts) {
      return slice(t, 1, starts[e], starts[e + 1] - starts[e]);
    };
    const Var own = rows(k, keys);
    const Tensor alone =
        attention({.spec = spec, .num_query_heads = 2, .num_kv_heads = 2, .query_offset = first[e]},
                  rotate(rows(q, queries), table, 2, first[e]), own, own)
            .value();
    for (std::int64_t i = 0; i < alone.count(); ++i)
      EXPECT_EQ(together.data<float>()[queries[e] * 8 + i], alone.data<float>()[i]) << e;
  }
  const auto refused = [&](const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& at) {
    EXPECT_THROW(rotate_packed(q, table, 2, starts, at), InvalidArgument);
  };
  refused({0, 2}, {0});
  refused({1, 5}, {0});
  refused({0, 6, 5}, {0, 0});
  refused({0, 2, 5}, {0});
  refused({}, {});
  const AttentionCall one{.spec = spec, .num_query_heads = 2, .num_kv_heads = 2, .query_starts = queries};
  EXPECT_THROW(attention(one, q, k, k), InvalidArgument);
}

}  // namespace
}  // namespace fovea::autograd

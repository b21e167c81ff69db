#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fovea/nn/attention.h"
#include "fovea/nn/block_attention.h"
#include "fovea/nn/layers.h"
#include "fovea/nn/optimizer.h"
#include "nn/kept_rows.h"

namespace fovea::nn {
namespace {

TEST(Adam, FirstStepsByHand) {
  ParameterSet set(1);
  Parameter& p = set.constant("p", {1}, 1.0f);
  Adam adam(set, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8});
  double m = 0.0, v = 0.0, x = 1.0;
  for (int t = 1; t <= 5; ++t) {
    const double g = 0.3 * t - 0.7;
    p.gradient.data<float>()[0] = static_cast<float>(g);
    EXPECT_NEAR(adam.step(0.1), std::abs(g), 1e-6);
    m = 0.9 * m + 0.1 * g;
    v = 0.99 * v + 0.01 * g * g;
    x -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8);
    EXPECT_NEAR(p.value.data<float>()[0], x, 1e-5);
    EXPECT_EQ(p.gradient.data<float>()[0], 0.0f);
  }
}

TEST(Adam, ClipsTheGlobalNormAndStopsAtNan) {
  ParameterSet set(1);
  Parameter &a = set.constant("a", {2}, 0.0f), &b = set.constant("b", {1}, 0.0f);
  Adam adam(set, {.beta1 = 0.0, .beta2 = 0.0, .clip_norm = 1.0});
  a.gradient.data<float>()[0] = 3.0f;
  b.gradient.data<float>()[0] = 4.0f;
  EXPECT_NEAR(adam.step(0.0), 5.0, 1e-6);
  EXPECT_NEAR(adam.first_moments()[0].data<float>()[0], 0.6, 1e-6);
  EXPECT_NEAR(adam.first_moments()[1].data<float>()[0], 0.8, 1e-6);
  b.gradient.data<float>()[0] = std::nanf("");
  EXPECT_FALSE(std::isfinite(adam.step(1.0)));
  EXPECT_EQ(adam.first_bad_gradient(), "b");
  EXPECT_EQ(b.value.data<float>()[0], 0.0f);
}

TEST(Schedule, WarmsUpThenFallsWithTheRoot) {
  const Schedule schedule = InverseSquareRoot{.peak = 0.5, .warmup = 100};
  EXPECT_NEAR(learning_rate(schedule, 50), 0.25, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 100), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 400), 0.25, 1e-12);
  EXPECT_EQ(learning_rate(Constant{0.1}, 7), 0.1);
}

TEST(Schedule, WarmsUpThenFallsAsHalfACosine) {
  const Schedule schedule = WarmupCosine{.peak = 0.4, .warmup = 100, .updates = 300};
  EXPECT_NEAR(learning_rate(schedule, 25), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 100), 0.4, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 200), 0.2, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 300), 0.0, 1e-12);
  EXPECT_EQ(learning_rate(schedule, 500), learning_rate(schedule, 300));
  EXPECT_THROW(learning_rate(WarmupCosine{}, 1), InvalidArgument);
}

TEST(ParameterSet, ValuesFollowSeedAndNameAlone) {
  ParameterSet one(5), other(5), different(6);
  one.xavier("a", {4, 4});
  const Tensor b = one.xavier("b", {4, 4}).value, same = other.xavier("b", {4, 4}).value,
               not_same = different.xavier("b", {4, 4}).value;
  for (int i = 0; i < 16; ++i) EXPECT_EQ(b.data<float>()[i], same.data<float>()[i]);
  EXPECT_NE(b.data<float>()[0], not_same.data<float>()[0]);
  EXPECT_THROW(one.constant("a", {1}, 0.0f), InvalidArgument);
  EXPECT_THROW(one.at("c"), InvalidArgument);
}

// Inference reads the packed copies, training the values; an update drops the copies.
TEST(ParameterSet, PackedWeightsServeInferenceUntilAnUpdate) {
  ParameterSet set(3);
  const Linear layer(set, "l", 5, 40);
  const RnnLayer cell(set, "c", autograd::Cell::lstm, 5, 7);
  const Tensor x = set.normal("x", {3, 5}, 1.0f).value, state = set.normal("s", {3, 14}, 1.0f).value;
  const auto outputs = [&](autograd::Tape* tape) {
    Context context{.tape = tape};
    std::vector<float> all;
    for (const Var& y : {layer(context, x), cell.step(context, x, state)})
      all.insert(all.end(), y.value().data<float>(), y.value().data<float>() + y.value().count());
    return all;
  };
  autograd::Tape tape;
  const auto before = outputs(nullptr), recorded = outputs(&tape);
  EXPECT_EQ(layer.weight->packed, nullptr);
  set.pack();
  ASSERT_NE(layer.weight->packed, nullptr);
  EXPECT_EQ(layer.weight->packed->bytes(), 2 * 5 * 32 * 4);  // 40 rows are two panels
  EXPECT_EQ(layer.bias->packed, nullptr);
  const auto packed = outputs(nullptr);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(packed[i], before[i], 13 * 0x1p-24 * 8.0);  // sums of at most 13 terms of size 8 in all
  EXPECT_EQ(outputs(&tape), recorded);
  layer.weight->value.fill(0.0);
  EXPECT_EQ(outputs(nullptr), packed);  // as documented: packed again, or not seen
  set.unpack();
  EXPECT_NE(outputs(nullptr), packed);
  set.pack();
  Adam adam(set, {});
  layer.weight->gradient.fill(1.0);
  adam.step(0.1, 1.0);
  EXPECT_EQ(layer.weight->packed, nullptr);
  EXPECT_NE(outputs(nullptr)[0], layer.bias->value.data<float>()[0]);
}

// Keys kept from step to step give the same as one causal call over the whole sequence.
TEST(MultiHeadAttention, StepsOverKeptKeysEqualTheCausalCall) {
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "x", 12, {.num_query_heads = 3});
  const Tensor input = set.normal("input", {2, 70, 12}, 1.0f).value;
  Context context;
  const Tensor whole = layer(context, Var(input), Var(input), {.mask = Causal{}}).value();
  KeptRows kept(layer, 2);
  for (std::int64_t t = 0; t < 70; ++t) {
    const Var row = autograd::slice(Var(input), 1, t, 1);
    kept.append(context, row);
    const Tensor step = layer.attend_cached(context, row, kept.views(), {.mask = Everything{}}).value();
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t d = 0; d < 12; ++d)
        ASSERT_NEAR(step.data<float>()[b * 12 + d], whole.data<float>()[(b * 70 + t) * 12 + d], 1e-5);
    }
  }
  EXPECT_THROW(MultiHeadAttention(set, "y", 10, {.num_query_heads = 3}), InvalidArgument);
}

// Queries, keys and values start as one matrix by Xavier, of 3 · 64 rows, whose bound is 1/√2 of that of 64
// rows. 4,096 uniform draws reach 0.99 of their bound, except with a chance of e^-41.
TEST(MultiHeadAttention, QueriesKeysAndValuesStartAsOneMatrix) {
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "x", 64, {.num_query_heads = 4});
  const BlockAttention blocks(set, "y", 64, {.num_heads = 4, .block = 8, .kept = 2});
  const auto largest = [&](const std::string& name) {
    const Tensor& value = set.at(name).value;
    float found = 0.0f;
    for (std::int64_t i = 0; i < value.count(); ++i)
      found = std::max(found, std::abs(value.data<float>()[i]));
    return found;
  };
  const float together = std::sqrt(6.0f / (3 * 64 + 64)), alone = std::sqrt(6.0f / (64 + 64));
  for (const std::string name : {"x", "y"}) {
    for (const char* projection : {".q_proj.weight", ".k_proj.weight", ".v_proj.weight"}) {
      EXPECT_LE(largest(name + projection), together * 1.000001f) << name << projection;
      EXPECT_GE(largest(name + projection), together * 0.99f) << name << projection;
    }
    EXPECT_LE(largest(name + ".out_proj.weight"), alone) << name;
    EXPECT_GE(largest(name + ".out_proj.weight"), alone * 0.99f) << name;
  }
}

TEST(MultiHeadAttention, StartKeysAsQueriesCopiesTheProjection) {
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "x", 12, {.num_query_heads = 3});
  const Tensor query = layer.query().weight->value.clone();
  start_keys_as_queries(set);
  for (std::int64_t i = 0; i < query.count(); ++i) {
    EXPECT_EQ(layer.query().weight->value.data<float>()[i], query.data<float>()[i]);
    EXPECT_EQ(layer.key().weight->value.data<float>()[i], query.data<float>()[i]);
  }
  EXPECT_NE(layer.value().weight->value.data<float>()[0], query.data<float>()[0]);
  ParameterSet unequal(3);  // queries and keys of different widths
  unequal.xavier("y.q_proj.weight", {8, 64});
  unequal.xavier("y.k_proj.weight", {8, 4});
  EXPECT_THROW(start_keys_as_queries(unequal), InvalidArgument);
}

// One row that attends to itself comes out nearly unchanged. Queries and keys are not touched.
TEST(MultiHeadAttention, StartValuesAsIdentityReturnsNearlyTheRow) {
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "x", 64, {.num_query_heads = 4});
  const Tensor query = layer.query().weight->value.clone();
  const Tensor row = set.normal("row", {1, 1, 64}, 1.0f).value;
  const auto cosine = [&] {
    Context context;
    const Tensor out = layer(context, row, row, {}).value();
    double product = 0.0, in_norm = 0.0, out_norm = 0.0;
    for (std::int64_t i = 0; i < 64; ++i) {
      const double in = row.data<float>()[i], of = out.data<float>()[i];
      product += in * of, in_norm += in * in, out_norm += of * of;
    }
    return product / std::sqrt(in_norm * out_norm);
  };
  EXPECT_LT(std::abs(cosine()), 0.5);
  start_values_as_identity(set);
  EXPECT_GT(cosine(), 0.8);
  for (std::int64_t i = 0; i < query.count(); ++i)
    EXPECT_EQ(layer.query().weight->value.data<float>()[i], query.data<float>()[i]);
}

}  // namespace
}  // namespace fovea::nn

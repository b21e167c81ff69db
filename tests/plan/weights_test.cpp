// Weights as a result: of chosen heads and rows, without output, and losses of them (pointer networks), on
// random calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/draws.h"

namespace fovea::testing {
namespace {

// Over several tiles of keys, whose scores exceed the first tile's maximum by a little and by much.
TEST(Weights, RowsSumToOneHoweverScoresRise) {
  const AttentionShape shape{.query_len = 60, .key_len = 600, .head_dim = 16, .value_dim = 3};
  for (const double size : {1.0, 6.0, 100.0}) {
    for (const KernelInfo& info : instruction_sets()) {
      if (!info.available) continue;
      const Tensor q = random_tensor(DType::f32, {1, 1, 60, 16}, 1),
                   k = random_tensor(DType::f32, {1, 1, 600, 16}, 2),
                   v = random_tensor(DType::f32, {1, 1, 600, 3}, 3), weights(DType::f32, {1, 1, 60, 600}),
                   output(DType::f32, {1, 1, 60, 3});
      attend(make_plan({.scale = size}, shape, {.kernel = info.isa}), {.query = q, .key = k, .value = v},
             {.output = output, .weights = weights});
      for (std::int64_t r = 0; r < 60; ++r) {
        double sum = 0;
        for (std::int64_t j = 0; j < 600; ++j) {
          sum += element(weights, r * 600 + j);
          EXPECT_LE(element(weights, r * 600 + j), 1.0 + 0x1p-22) << info.isa;
        }
        EXPECT_NEAR(sum, 1.0, 1e-5) << info.isa << " row " << r << ", scale " << size;
      }
    }
  }
}

// Heads or rows of a call, in random order, some of them twice.
std::vector<std::int64_t> chosen(const Draw& draw, std::int64_t count) {
  std::vector<std::int64_t> list;
  for (std::int64_t n = 1 + draw.below(4); n > 0; --n) list.push_back(draw.below(count));
  return list;
}

struct Choice {
  std::vector<std::int64_t> heads, rows;
  explicit Choice(const Draw& draw) : heads(chosen(draw, draw.heads)), rows(chosen(draw, draw.query_len)) {}
  Tensor of(const Tensor& weights) const { return taken(taken(weights, 1, heads), 2, rows); }
  Tensor room(const Draw& draw) const {
    return unwritten(draw.dtype, {draw.batch, static_cast<std::int64_t>(heads.size()),
                                  static_cast<std::int64_t>(rows.size()), draw.key_len});
  }
};

TEST(Weights, OfChosenHeadsAndRowsAreThoseOfAll) {
  const Normalizer normalizers[] = {Softmax{},    Sigmoid{},    Sparsemax{},   Entmax{1.3},
                                    HardArgmax{}, HardSample{}, GumbelSample{}};
  for_draws(30, [&](const Draw& draw) {
    const AttentionSpec spec{.mods = {SoftCap{2}},
                             .mask = draw.mask,
                             .normalizer = normalizers[draw.below(7)],
                             .weight_mods = draw.below(2) ? Mods{SoftCap{0.5}} : Mods{}};
    const AttentionInputs in = draw.inputs();
    const Forward all = draw.forward(spec, in);
    const Choice choice(draw);
    const Tensor some = choice.room(draw), alone = choice.room(draw),
                 heads_alone = unwritten(draw.dtype, taken(all.weights, 1, choice.heads).shape()),
                 output = unwritten_like(all.output), lse = unwritten_like(all.log_sum_exp);
    const AttentionPlan plan = draw.plan(spec, in);
    attend(plan, in,
           {.output = output,
            .log_sum_exp = lse,
            .weights = some,
            .weight_heads = choice.heads,
            .weight_rows = choice.rows});
    attend(plan, in,
           {.output = {}, .weights = alone, .weight_heads = choice.heads, .weight_rows = choice.rows});
    attend(plan, in, {.output = {}, .weights = heads_alone, .weight_heads = choice.heads});
    // Not the same bits: whole-row kernels sum in another order.
    expect_near(some, choice.of(all.weights), draw.tolerance(), "with the output");
    expect_near(alone, choice.of(all.weights), draw.tolerance(), "alone");
    expect_near(heads_alone, taken(all.weights, 1, choice.heads), draw.tolerance(), "of heads alone");
    expect_near(output, all.output, draw.tolerance(), "output");
    expect_near(lse, all.log_sum_exp, draw.tolerance(), "log_sum_exp");
  });
}

// Weights alone read neither values nor the queries of other heads and rows, nor the keys of other heads.
// These may hold NaN.
TEST(Weights, AloneReadNothingElse) {
  for_draws(30, [](const Draw& draw) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const AttentionSpec spec{.mask = draw.mask,
                             .normalizer = draw.below(2) ? Normalizer(Softmax{}) : Normalizer(Entmax{})};
    const Choice choice(draw);
    AttentionInputs in = draw.inputs();
    const Tensor want = choice.of(draw.forward(spec, in).weights), got = choice.room(draw);
    const auto is_in = [](const std::vector<std::int64_t>& list, std::int64_t n) {
      return std::find(list.begin(), list.end(), n) != list.end();
    };
    const Tensor query = draw.query.clone(), key = draw.key.clone(), value = unwritten_like(draw.value);
    for (std::int64_t i = 0; i < query.count(); ++i) {
      const std::int64_t row = i / draw.head_dim;
      if (!is_in(choice.rows, row % draw.query_len) ||
          !is_in(choice.heads, row / draw.query_len % draw.heads))
        set_element(query, i, nan);
    }
    std::vector<std::int64_t> groups;
    for (const std::int64_t h : choice.heads) groups.push_back(h / (draw.heads / draw.kv_heads));
    for (std::int64_t i = 0; i < key.count(); ++i) {
      if (!is_in(groups, i / draw.head_dim / draw.key_len % draw.kv_heads)) set_element(key, i, nan);
    }
    in.query = query;
    in.key = key;
    in.value = value;
    attend(draw.plan(spec, in), in,
           {.output = {}, .weights = got, .weight_heads = choice.heads, .weight_rows = choice.rows});
    expect_near(got, want, draw.tolerance(), "weights");
  });
}

// A pointer network (Vinyals et al. 2015, arXiv 1506.03134) has no values. The loss -Σ ln P_gold has the
// derivative P - onehot by the scores.
TEST(Weights, PointersLearnByTheirLogarithm) {
  for_draws(30, [](const Draw& draw) {
    const AttentionSpec spec{.score = Dot{}, .scale = 0.5, .mask = draw.mask};
    AttentionInputs in = draw.inputs();
    const Tensor full = draw.forward(spec, in).weights, pointers = unwritten_like(full),
                 lse = unwritten(draw.dtype, {draw.batch, draw.heads, draw.query_len});
    in.value = {};
    const AttentionPlan plan = draw.plan(spec, in);
    attend(plan, in, {.output = {}, .log_sum_exp = lse, .weights = pointers});
    expect_near(pointers, full, draw.tolerance(), "weights");
    const Tensor d_weights = Tensor::zeros(draw.dtype, pointers.shape()),
                 d_query = unwritten_like(draw.query), d_key = unwritten_like(draw.key);
    // dS is 0 in a row that sees nothing and so has no gold key.
    std::vector<double> d_scores(static_cast<std::size_t>(pointers.count()));
    draw.each_row([&](std::int64_t b, auto h, std::int64_t r, std::int64_t row) {
      std::vector<std::int64_t> keys;
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        if (draw.visible(b, h, r, j)) keys.push_back(row * draw.key_len + j);
      }
      if (keys.empty()) return;
      const std::int64_t gold =
          keys[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(keys.size())))];
      set_element(d_weights, gold, -1.0 / element(pointers, gold));
      for (const std::int64_t at : keys)
        d_scores[static_cast<std::size_t>(at)] = element(pointers, at) - (at == gold ? 1.0 : 0.0);
    });
    AttentionLoss loss;
    loss.d_weights = d_weights;
    attend_backward(plan, in, loss, {.query = d_query, .key = d_key});
    const Tensor want_query = Tensor::zeros(draw.dtype, d_query.shape()),
                 want_key = Tensor::zeros(draw.dtype, d_key.shape());
    draw.each_row([&](std::int64_t b, std::int64_t h, auto, std::int64_t row) {
      const std::int64_t kv = b * draw.kv_heads + h / (draw.heads / draw.kv_heads);
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        const double d = 0.5 * d_scores[static_cast<std::size_t>(row * draw.key_len + j)];
        for (std::int64_t e = 0; e < draw.head_dim; ++e) {
          const std::int64_t q = row * draw.head_dim + e, k = (kv * draw.key_len + j) * draw.head_dim + e;
          set_element(want_query, q, element(want_query, q) + d * element(draw.key, k));
          set_element(want_key, k, element(want_key, k) + d * element(draw.query, q));
        }
      }
    });
    // The product of P and 1 / P is 1 within two roundings. Gradients sum over the queries of a group.
    const double tolerance = draw.tolerance() * static_cast<double>(1 + draw.query_len * draw.heads);
    expect_near(d_query, want_query, tolerance, "d_query");
    expect_near(d_key, want_key, tolerance, "d_key");
  });
}

// A loss of chosen weights equals a loss of all weights whose other derivatives are 0.
TEST(Weights, LossesOfChosenWeights) {
  const Normalizer normalizers[] = {Softmax{}, Sigmoid{}, Entmax{1.5}};
  for_draws(30, [&](const Draw& draw) {
    const AttentionSpec spec{.mask = draw.mask, .normalizer = normalizers[draw.below(3)]};
    const Choice choice(draw);
    const AttentionInputs in = draw.inputs();
    const Tensor d_chosen = draw.tensor(choice.room(draw).shape()),
                 d_all = given_back(given_back(d_chosen, 2, choice.rows, draw.query_len), 1, choice.heads,
                                    draw.heads);
    const AttentionPlan plan = draw.plan(spec, in);
    const auto gradients = [&](const Tensor& d_weights, const Choice* of) {
      const std::vector<Tensor> g{unwritten_like(draw.query), unwritten_like(draw.key),
                                  unwritten_like(draw.value)};
      AttentionLoss loss;
      loss.d_weights = d_weights;
      if (of) {
        loss.weight_heads = of->heads;
        loss.weight_rows = of->rows;
      }
      attend_backward(plan, in, loss, {.query = g[0], .key = g[1], .value = g[2]});
      return g;
    };
    const auto got = gradients(d_chosen, &choice), want = gradients(d_all, nullptr);
    for (std::size_t n = 0; n < 3; ++n)
      expect_near(got[n], want[n], 4 * draw.gradient_tolerance(), std::to_string(n));
    expect_near(got[2], Tensor::zeros(draw.dtype, draw.value.shape()), 0.0, "d_value");
  });
}

}  // namespace
}  // namespace fovea::testing

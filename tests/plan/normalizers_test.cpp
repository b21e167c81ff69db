// Properties of normalisers that hold for every implementation, on random calls: sinks, shifts, rows without
// keys, saturation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fovea/attention/expression.h"
#include "plan/draws.h"

namespace fovea::testing {
namespace {

// A sink takes its share of every row.
TEST(Normalizer, ASinkTakesItsShare) {
  for_draws(30, [](const Draw& draw) {
    const AttentionInputs plain = draw.inputs();
    AttentionInputs in = plain;
    const Forward want = draw.forward({.mask = draw.mask}, plain);
    for (const double at : {-1e30, -1.0, 0.5, 8.0, 1e4}) {
      Tensor sink = draw.tensor({draw.heads});
      for (std::int64_t h = 0; h < draw.heads; ++h) set_element(sink, h, at + element(sink, h));
      in.arguments.set("normalizer.sink", sink);
      const Forward got = draw.forward({.mask = draw.mask, .normalizer = SoftmaxWithSink{}}, in);
      // The log-sum-exp excludes the sink.
      expect_near(got.log_sum_exp, want.log_sum_exp, draw.tolerance(), "log_sum_exp");
      draw.each_row([&](auto, std::int64_t h, auto, std::int64_t row) {
        const double share = 1.0 / (1.0 + std::exp(element(sink, h) - element(want.log_sum_exp, row)));
        const auto shared = [&](const Tensor& x, const Tensor& of, std::int64_t width) {
          for (std::int64_t i = row * width; i < (row + 1) * width; ++i)
            ASSERT_NEAR(element(x, i), share * element(of, i), draw.tolerance()) << at << " " << i;
        };
        shared(got.output, want.output, draw.value_dim);
        shared(got.weights, want.weights, draw.key_len);
      });
    }
  });
}

// A sink equals one more key whose score is the sink and whose value is 0. The gradients are equal too.
TEST(Normalizer, ASinkIsAKeyOfValueZero) {
  for_draws(30, [](const Draw& draw) {
    const std::int64_t K = draw.key_len, H = draw.heads;
    const Tensor sink = draw.tensor({H}), bias = Tensor::zeros(draw.dtype, {1, H, 1, K + 1});
    for (std::int64_t h = 0; h < H; ++h) set_element(bias, h * (K + 1) + K, element(sink, h));
    std::vector<std::int64_t> first(static_cast<std::size_t>(K));
    for (std::int64_t j = 0; j < K; ++j) first[static_cast<std::size_t>(j)] = j;
    const Tensor key = given_back(draw.key, 2, first, K + 1), value = given_back(draw.value, 2, first, K + 1);
    AttentionInputs in = draw.inputs(), longer = in;
    in.arguments.set("normalizer.sink", sink);
    longer.key = key;
    longer.value = value;
    longer.arguments = {{"mods[0].bias", bias}};
    const AttentionSpec spec{.mask = draw.mask, .normalizer = SoftmaxWithSink{}},
        with_key{.mods = {DenseBias{}},
                 .mask = draw.mask_of(K + 1, [&](auto b, auto h, auto row, std::int64_t j) {
                   return j == K || draw.visible(b, h, row, j);
                 })};
    const Forward got = draw.forward(spec, in), want = draw.forward(with_key, longer);
    expect_near(got.output, want.output, draw.tolerance(), "output");
    expect_near(got.weights, taken(want.weights, 3, first), draw.tolerance(), "weights");
    const Backward d_got = draw.backward(spec, in, got, draw.d_output),
                   d_want = draw.backward(with_key, longer, want, draw.d_output);
    const double tolerance = draw.gradient_tolerance();
    expect_near(d_got.query, d_want.query, tolerance, "d_query");
    expect_near(d_got.key, taken(d_want.key, 2, first), tolerance, "d_key");
    expect_near(d_got.value, taken(d_want.value, 2, first), tolerance, "d_value");
    for (std::int64_t h = 0; h < H; ++h)
      ASSERT_NEAR(element(d_got["normalizer.sink"], h), element(d_want["mods[0].bias"], h * (K + 1) + K),
                  tolerance * static_cast<double>(draw.batch * draw.query_len));
  });
}

// With a dot score it is a softmax whose queries are multiplied by c·ln n, where n is counted here site by
// site. d_c follows from the gradient of the multiplied queries.
TEST(Normalizer, AScalableSoftmaxIsASoftmaxOfMultipliedQueries) {
  for_draws(30, [](const Draw& draw) {
    const std::int64_t K = draw.key_len, H = draw.heads, dim = draw.query.size(3);
    const Tensor scale = draw.tensor({H}), query = draw.query.clone(),
                 counts(DType::f64, {draw.batch, H, draw.query_len});
    draw.each_row([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t row) {
      std::int64_t seen = 0;
      for (std::int64_t j = 0; j < K; ++j) seen += draw.visible(b, h, i, j) ? 1 : 0;
      set_element(counts, row, seen > 0 ? std::log(static_cast<double>(seen)) : 0.0);
      for (std::int64_t d = 0; d < dim; ++d)
        set_element(query, row * dim + d,
                    element(scale, h) * element(counts, row) * element(query, row * dim + d));
    });
    AttentionInputs in = draw.inputs(), multiplied = in;
    in.arguments.set("normalizer.scale", scale);
    multiplied.query = query;
    const AttentionSpec spec{.mask = draw.mask, .normalizer = ScalableSoftmax{}}, plain{.mask = draw.mask};
    const Forward got = draw.forward(spec, in), want = draw.forward(plain, multiplied);
    expect_near(got.output, want.output, draw.tolerance(), "output");
    expect_near(got.weights, want.weights, draw.tolerance(), "weights");
    expect_near(got.log_sum_exp, want.log_sum_exp, 4 * draw.tolerance(), "log_sum_exp");
    const Backward d_got = draw.backward(spec, in, got, draw.d_output),
                   d_want = draw.backward(plain, multiplied, want, draw.d_output);
    const double tolerance = 8 * draw.gradient_tolerance();  // c·ln n is up to 8
    expect_near(d_got.key, d_want.key, tolerance, "d_key");
    expect_near(d_got.value, d_want.value, tolerance, "d_value");
    std::vector<double> d_scale(static_cast<std::size_t>(H));
    draw.each_row([&](auto, std::int64_t h, auto, std::int64_t row) {
      for (std::int64_t d = 0; d < dim; ++d) {
        const double by_query = element(d_want.query, row * dim + d);
        d_scale[static_cast<std::size_t>(h)] +=
            by_query * element(counts, row) * element(draw.query, row * dim + d);
        ASSERT_NEAR(element(d_got.query, row * dim + d), element(scale, h) * element(counts, row) * by_query,
                    tolerance);
      }
    });
    for (std::int64_t h = 0; h < H; ++h)
      ASSERT_NEAR(element(d_got["normalizer.scale"], h), d_scale[static_cast<std::size_t>(h)],
                  tolerance * static_cast<double>(draw.batch * draw.query_len));
  });
}

// A normaliser with weight mods, and whether the resulting weights of a row sum to 1.
struct Weighting {
  Normalizer normalizer;
  Mods weight_mods = {};
  bool sums_to_one = true;
};
const Weighting weightings[] = {{Softmax{}},
                                {ScalableSoftmax{}},
                                {Sparsemax{}},
                                {Entmax{1.5}},
                                {Entmax{1.3}},
                                {HardArgmax{}},
                                {HardSample{}},
                                {GumbelSample{}},
                                {SoftmaxWithSink{}, {}, false},
                                {Sigmoid{}, {}, false},
                                {LinearChain{}, {}, false},
                                {Softmax{}, {LocalGaussian{2}}, false}};

// The inputs that the normaliser needs beside query, key and value.
struct WeightingInputs {
  Tensor sink, scale, transitions, center, advantage;
  WeightingInputs(const Draw& draw, const Weighting& weighting, AttentionInputs& in)
      : sink(draw.tensor({draw.heads})),
        scale(draw.tensor({draw.heads})),
        transitions(draw.tensor({2, 2})),
        center(draw.tensor({1, draw.heads, 1, 1})),
        advantage(draw.tensor({draw.batch, draw.heads, draw.query_len})) {
    if (std::holds_alternative<SoftmaxWithSink>(weighting.normalizer))
      in.arguments.set("normalizer.sink", sink);
    if (std::holds_alternative<ScalableSoftmax>(weighting.normalizer))
      in.arguments.set("normalizer.scale", scale);
    if (std::holds_alternative<LinearChain>(weighting.normalizer))
      in.arguments.set("normalizer.transitions", transitions);
    if (!weighting.weight_mods.empty()) in.arguments.set("weight_mods[0].center", center);
  }
};

// V + c gives O + c·(sum of the row's weights). The sum is 1 exactly for the normalisers that say so.
TEST(Normalizer, ShiftsOfValues) {
  for (const Weighting& weighting : weightings) {
    SCOPED_TRACE(to_string(weighting.normalizer));
    double farthest = 0.0;  // the largest distance of a sum from 1
    for_draws(30, [&](const Draw& draw) {
      AttentionInputs in = draw.inputs();
      const WeightingInputs more(draw, weighting, in);
      const AttentionSpec spec{
          .mask = draw.mask, .normalizer = weighting.normalizer, .weight_mods = weighting.weight_mods};
      const Forward plain = draw.forward(spec, in);
      const Tensor value = shifted(draw.value, 3.0);
      in.value = value;
      const Forward got = draw.forward(spec, in);
      draw.each_row([&](std::int64_t b, auto h, std::int64_t r, std::int64_t row) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < draw.key_len; ++j) sum += element(plain.weights, row * draw.key_len + j);
        if (draw.seen(b, h, r) > 0) farthest = std::max(farthest, std::abs(sum - 1.0));
        if (weighting.sums_to_one) {
          ASSERT_NEAR(sum, draw.seen(b, h, r) > 0 ? 1.0 : 0.0, 10 * draw.tolerance()) << row;
        }
        for (std::int64_t i = row * draw.value_dim; i < (row + 1) * draw.value_dim; ++i)
          ASSERT_NEAR(element(got.output, i), element(plain.output, i) + 3.0 * sum,
                      10 * draw.tolerance() * (1 + sum))
              << row;
      });
    });
    if (!weighting.sums_to_one) {
      EXPECT_GT(farthest, 0.1);
    }
  }
}

// K + const adds one number to all scores of a row if scores are products.
TEST(Normalizer, ShiftsOfKeys) {
  struct Spec {
    Score score;
    Mods mods;
    Normalizer normalizer;
    bool stays = true;
  };
  const Spec specs[] = {{ScaledDot{}, {}, Softmax{}},
                        {Dot{}, {AlibiBias{}}, Sparsemax{}},
                        {Bilinear{}, {}, Entmax{1.5}},
                        {LowRankBilinear{}, {}, Softmax{}},
                        {ScaledDot{}, {SoftCap{1}}, Softmax{}, false},
                        {Additive{}, {}, Softmax{}, false},
                        {ScaledDot{}, {}, Sigmoid{}, false},
                        {ScaledDot{}, {}, SoftmaxWithSink{}, false}};
  for (const Spec& s : specs) {
    SCOPED_TRACE(s.score.index());
    double farthest = 0.0;
    for_draws(20, [&](const Draw& draw) {
      constexpr std::int64_t hidden = 4;
      const std::int64_t D = draw.head_dim;
      const Tensor slope = draw.tensor({1, draw.heads, 1, 1}), sink = draw.tensor({draw.heads}),
                   square = draw.tensor({D, D}), W = draw.tensor({hidden, D}), U = draw.tensor({hidden, D}),
                   v = draw.tensor({hidden}), c = draw.tensor({D});
      for (std::int64_t h = 0; h < draw.heads; ++h) set_element(slope, h, 0.02 * element(slope, h));
      AttentionInputs in = draw.inputs();
      if (!s.mods.empty() && to_string(s.mods[0]) == "alibi") in.arguments.set("mods[0].slope", slope);
      if (std::holds_alternative<Bilinear>(s.score)) in.arguments.set("score.W", square);
      if (std::holds_alternative<LowRankBilinear>(s.score) || std::holds_alternative<Additive>(s.score))
        in.arguments = {{"score.W", W}, {"score.U", U}};
      if (std::holds_alternative<Additive>(s.score)) in.arguments.set("score.v", v);
      if (std::holds_alternative<SoftmaxWithSink>(s.normalizer)) in.arguments.set("normalizer.sink", sink);
      const AttentionSpec spec{
          .score = s.score, .mods = s.mods, .mask = draw.mask, .normalizer = s.normalizer};
      const Forward plain = draw.forward(spec, in);
      const Tensor key = draw.key.clone();
      for (std::int64_t i = 0; i < key.count(); ++i) set_element(key, i, element(key, i) + element(c, i % D));
      in.key = key;
      const Forward got = draw.forward(spec, in);
      // Scores of a bilinear form sum head_dim² products.
      if (s.stays)
        expect_near(got.output, plain.output, draw.tolerance() * static_cast<double>(1 + D), "output");
      farthest = std::max(farthest, distance_of(got.output, plain.output));
    });
    if (!s.stays) {
      EXPECT_GT(farthest, 0.01);
    }
  }
}

// For every normaliser, rows without a key give 0, -inf and no gradient, and do not affect other
// rows. Keys are hidden by the mask, or by scores of -inf.
TEST(Normalizer, RowsWithoutKeys) {
  for (const Weighting& weighting : weightings) {
    SCOPED_TRACE(to_string(weighting.normalizer));
    for_draws(20, [&](const Draw& draw) {
      // The reference's chain takes the cube of the keys for a row.
      if (std::holds_alternative<LinearChain>(weighting.normalizer) && draw.key_len > 20) return;
      std::vector<bool> blind;
      for (std::int64_t r = 0; r < draw.query_len; ++r) blind.push_back(draw.below(3) == 0);
      const Tensor bias = Tensor::zeros(draw.dtype, {1, 1, draw.query_len, 1}),
                   d_output = draw.d_output.clone();
      const bool by_scores = draw.below(2) == 1;
      draw.each_row([&](auto, auto, std::int64_t r, std::int64_t row) {
        if (!blind[static_cast<std::size_t>(r)]) return;
        if (by_scores) set_element(bias, r, minus_infinity);
        for (std::int64_t d = 0; d < draw.value_dim; ++d)
          set_element(d_output, row * draw.value_dim + d, 0.0);
      });
      AttentionInputs in = draw.inputs(), free = in;
      const WeightingInputs more(draw, weighting, in);
      free = in;
      const Tensor zero = Tensor::zeros(draw.dtype, bias.shape());
      in.arguments.set("mods[0].bias", bias);
      free.arguments.set("mods[0].bias", zero);
      AttentionSpec spec{.mods = {DenseBias{}},
                         .mask = draw.mask,
                         .normalizer = weighting.normalizer,
                         .weight_mods = weighting.weight_mods},
          plain = spec;
      if (!by_scores) {
        spec.mask = draw.mask_of(draw.key_len, [&](auto b, auto h, std::int64_t row, auto j) {
          return !blind[static_cast<std::size_t>(row)] && draw.visible(b, h, row, j);
        });
      }
      const Forward got = draw.forward(spec, in), want = draw.forward(plain, free);
      Tensor advantage = more.advantage.clone();
      draw.each_row([&](auto, auto, std::int64_t r, std::int64_t row) {
        if (blind[static_cast<std::size_t>(r)]) set_element(advantage, row, 0.0);
      });
      const Backward d_got = draw.backward(spec, in, got, draw.d_output, more.advantage),
                     d_want = draw.backward(plain, free, want, d_output, advantage);
      const auto rows = [&](const Tensor& x, const Tensor& of, double nothing, double tolerance) {
        if (!x) return;
        const std::int64_t width = x.count() / (draw.batch * draw.heads * draw.query_len);
        for (std::int64_t i = 0; i < x.count(); ++i) {
          const bool hidden = blind[static_cast<std::size_t>(i / width % draw.query_len)];
          if (hidden || element(of, i) == element(x, i)) {
            ASSERT_EQ(element(x, i), hidden ? nothing : element(of, i)) << i;
          } else
            ASSERT_NEAR(element(x, i), element(of, i), tolerance) << i;
        }
      };
      rows(got.output, want.output, 0.0, draw.tolerance());
      rows(got.weights, want.weights, 0.0, draw.tolerance());
      rows(got.log_sum_exp, want.log_sum_exp, minus_infinity, draw.tolerance());
      const double tolerance = draw.gradient_tolerance();
      rows(d_got.query, d_want.query, 0.0, tolerance);
      if (d_got.key) expect_near(d_got.key, d_want.key, tolerance, "d_key");
      expect_near(d_got.value, d_want.value, tolerance, "d_value");
    });
  }
}

// Products of d numbers of variance 1 have variance d, and their softmax is nearly constant in
// the scores.
TEST(Normalizer, UnscaledProductsSaturateIt) {
  constexpr std::int64_t Q = 200, K = 64;
  double scaled = 0.0, last = 10.0;
  for (const std::int64_t d : {16, 64, 256, 1024}) {
    const Tensor query = random_tensor(DType::f32, {1, 1, Q, d}, 1),
                 key = random_tensor(DType::f32, {1, 1, K, d}, 2),
                 value = random_tensor(DType::f32, {1, 1, K, 8}, 3),
                 d_output = random_tensor(DType::f32, {1, 1, Q, 8}, 4), output = unwritten_like(d_output),
                 lse(DType::f32, {1, 1, Q}), bias = Tensor::zeros(DType::f32, {1, 1, Q, K});
    for (const Tensor& x : {query, key}) {
      for (std::int64_t i = 0; i < x.count(); ++i) set_element(x, i, std::sqrt(3.0) * element(x, i));
    }
    const AttentionInputs in{
        .query = query, .key = key, .value = value, .arguments = {{"mods[0].bias", bias}}};
    // Of the median row, because a few rows have two best keys.
    const auto norm = [&](const Score& score) {
      const AttentionPlan plan = make_plan({.score = score, .mods = {DenseBias{}}},
                                           {.query_len = Q, .key_len = K, .head_dim = d, .value_dim = 8});
      attend(plan, in, {.output = output, .log_sum_exp = lse});
      const Tensor d_scores = unwritten_like(bias);
      attend_backward(plan, in, output, lse, d_output, {.arguments = {{"mods[0].bias", d_scores}}});
      std::vector<double> norms(Q);
      for (std::int64_t i = 0; i < Q * K; ++i)
        norms[static_cast<std::size_t>(i / K)] += element(d_scores, i) * element(d_scores, i);
      std::nth_element(norms.begin(), norms.begin() + Q / 2, norms.end());
      return std::sqrt(norms[Q / 2]);
    };
    const double of_scaled = norm(ScaledDot{}), of_plain = norm(Dot{});
    if (d == 16) scaled = of_scaled;
    EXPECT_NEAR(of_scaled, scaled, 0.3 * scaled) << d;
    EXPECT_LT(of_plain, last) << d;
    last = of_plain;
  }
  EXPECT_LT(last, 1e-2 * scaled);
}

}  // namespace
}  // namespace fovea::testing

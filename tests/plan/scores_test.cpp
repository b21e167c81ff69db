// Scores against each other and against plain loops: location, coverage, low-rank, concat, bilinear, local-p.
#include <gtest/gtest.h>

#include <cmath>

#include "fovea/mechanisms/local.h"
#include "plan/draws.h"

namespace fovea::testing {
namespace {

// Row j of W is key j for every head and batch entry. Its gradient is the sum over these.
TEST(Score, LocationIsAProductWithTheRowsOfW) {
  for_draws(30, [](const Draw& draw) {
    const Tensor W = draw.tensor({draw.key_len + 2, draw.head_dim});
    const std::vector<std::int64_t> entries(static_cast<std::size_t>(draw.batch)),
        heads(static_cast<std::size_t>(draw.kv_heads));  // all 0
    std::vector<std::int64_t> rows;
    for (std::int64_t j = 0; j < draw.key_len; ++j) rows.push_back(j);
    const Tensor one = taken(W, 0, rows).reshape({1, 1, draw.key_len, draw.head_dim}),
                 key = taken(taken(one, 1, heads), 0, entries);
    AttentionInputs location = draw.inputs(), dot = location;
    location.key = {};
    location.arguments.set("score.W", W);
    dot.key = key;
    const Normalizer normalizer = draw.below(2) ? Normalizer(Softmax{}) : Normalizer(Sparsemax{});
    const AttentionSpec by_place{.score = Location{}, .mask = draw.mask, .normalizer = normalizer},
        by_product{.score = Dot{}, .mask = draw.mask, .normalizer = normalizer};
    const Forward got = draw.forward(by_place, location), want = draw.forward(by_product, dot);
    expect_near(got, want, draw.tolerance());
    const Backward d_got = draw.backward(by_place, location, got, draw.d_output),
                   d_want = draw.backward(by_product, dot, want, draw.d_output);
    const double tolerance = draw.gradient_tolerance();
    expect_near(d_got.query, d_want.query, tolerance, "d_query");
    expect_near(d_got.value, d_want.value, tolerance, "d_value");
    const Tensor sum = given_back(given_back(d_want.key, 0, entries, 1), 1, heads, 1);
    expect_near(d_got["score.W"],
                given_back(sum.reshape({draw.key_len, draw.head_dim}), 0, rows, draw.key_len + 2),
                tolerance * static_cast<double>(draw.batch * draw.kv_heads), "d_W");
  });
}

TEST(Score, CoverageWithoutItsVectorIsAdditive) {
  for_draws(30, [](const Draw& draw) {
    constexpr std::int64_t hidden = 5;
    const Tensor W = draw.tensor({hidden, draw.head_dim}), U = draw.tensor({hidden, draw.head_dim}),
                 v = draw.tensor({hidden}), b = draw.tensor({hidden}),
                 w = Tensor::zeros(draw.dtype, {hidden});
    AttentionInputs additive = draw.inputs();
    additive.arguments = {{"score.W", W}, {"score.U", U}, {"score.v", v}, {"score.b", b}};
    AttentionInputs coverage = additive;
    coverage.arguments.set("score.w", w);
    const AttentionSpec spec{.score = Additive{}, .mask = draw.mask},
        covered{.score = Coverage{}, .mask = draw.mask};
    const Forward got = draw.forward(covered, coverage), want = draw.forward(spec, additive);
    expect_near(got, want, draw.tolerance());
    const Backward d_got = draw.backward(covered, coverage, got, draw.d_output),
                   d_want = draw.backward(spec, additive, want, draw.d_output);
    const double tolerance = draw.gradient_tolerance() * hidden;
    expect_near(d_got.query, d_want.query, tolerance, "d_query");
    expect_near(d_got.key, d_want.key, tolerance, "d_key");
    expect_near(d_got.value, d_want.value, tolerance, "d_value");
    const double of_all = tolerance * static_cast<double>(draw.batch * draw.heads * draw.query_len);
    expect_near(d_got["score.W"], d_want["score.W"], of_all, "d_W");
    expect_near(d_got["score.U"], d_want["score.U"], of_all, "d_U");
    expect_near(d_got["score.v"], d_want["score.v"], of_all, "d_v");
    expect_near(d_got["score.b"], d_want["score.b"], of_all, "d_b");
  });
}

// See et al. 2017, eq. 11, row after row: the weights of earlier rows are added up.
TEST(Score, CoverageIsItsDefinition) {
  for_draws(20, [](const Draw& draw) {
    if (draw.key_len > 12 || draw.query_len > 12) return;
    const std::int64_t D = draw.head_dim, K = draw.key_len;
    const Tensor v = draw.tensor({D}), w = draw.tensor({D});
    for (std::int64_t d = 0; d < D; ++d) set_element(w, d, 3 * element(w, d));
    AttentionInputs in = draw.inputs();
    in.arguments = {{"score.v", v}, {"score.w", w}};
    const Forward got = draw.forward({.score = Coverage{}, .mask = draw.mask}, in);
    std::vector<double> seen;
    draw.each_row([&](std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t row) {
      if (r == 0) seen.assign(static_cast<std::size_t>(K), 0.0);
      const std::int64_t kv = b * draw.kv_heads + h / (draw.heads / draw.kv_heads);
      std::vector<double> scores(static_cast<std::size_t>(K), minus_infinity);
      for (std::int64_t j = 0; j < K; ++j) {
        if (!draw.visible(b, h, r, j)) continue;
        double& score = scores[static_cast<std::size_t>(j)] = 0.0;
        for (std::int64_t d = 0; d < D; ++d)
          score += element(v, d) *
                   std::tanh(element(draw.query, row * D + d) + element(draw.key, (kv * K + j) * D + d) +
                             element(w, d) * seen[static_cast<std::size_t>(j)]);
      }
      const std::vector<double> weights = softmax(scores);
      for (std::int64_t j = 0; j < K; ++j) {
        seen[static_cast<std::size_t>(j)] += weights[static_cast<std::size_t>(j)];
        // The errors of a row enter all later rows, multiplied by w.
        ASSERT_NEAR(element(got.weights, row * K + j), weights[static_cast<std::size_t>(j)],
                    draw.tolerance() * static_cast<double>(D * (r + 1)))
            << row << " " << j;
      }
    });
  });
}

// W = UᵀV gives the low-rank score; a concat matrix cut in two gives the additive one.
TEST(Score, LowRankAndConcat) {
  for_draws(20, [](const Draw& draw) {
    constexpr std::int64_t rank = 3;
    const std::int64_t D = draw.head_dim, E = D + 2;
    const Tensor key = draw.tensor({draw.batch, draw.kv_heads, draw.key_len, E}), V = draw.tensor({rank, D}),
                 U = draw.tensor({rank, E}), W = Tensor::zeros(draw.dtype, {E, D});
    for (std::int64_t i = 0; i < E * D; ++i) {
      double sum = 0.0;
      for (std::int64_t r = 0; r < rank; ++r) sum += element(U, r * E + i / D) * element(V, r * D + i % D);
      set_element(W, i, sum);
    }
    AttentionInputs in = draw.inputs();
    in.key = key;
    const auto with = [&](const Score& score, const Arguments& arguments) {
      in.arguments = arguments;
      return draw.forward({.score = score, .scale = 1 / static_cast<double>(D), .mask = draw.mask}, in);
    };
    expect_near(with(LowRankBilinear{}, {{"score.W", V}, {"score.U", U}}), with(Bilinear{}, {{"score.W", W}}),
                4 * draw.tolerance());
    const Tensor joint = draw.tensor({5, D + E}), vector = draw.tensor({5});
    const Arguments cut = concat_arguments(joint, vector, D);
    const Tensor left = Tensor::copy_of(cut["score.W"]), right = Tensor::copy_of(cut["score.U"]);
    expect_near(with(Additive{}, cut),
                with(Additive{}, {{"score.W", left}, {"score.U", right}, {"score.v", vector}}), 0.0);
    EXPECT_EQ(element(left, D), element(joint, D + E));
    EXPECT_EQ(element(right, E), element(joint, D + E + D));
    EXPECT_THROW(concat_arguments(joint, vector, D + E + 1), InvalidArgument);
  });
}

// Liu et al. 2022, eq. 2, and Henry et al. 2020 with root mean squares: plain loops in double.
TEST(Score, NormalizedScoresAreTheirDefinitions) {
  for_draws(30, [](const Draw& draw) {
    const std::int64_t D = draw.head_dim, K = draw.key_len;
    const Tensor temperature = draw.tensor({draw.heads}), query_gain = draw.tensor({D}),
                 key_gain = draw.tensor({D});
    // From below the smallest temperature to above it.
    for (std::int64_t h = 0; h < draw.heads; ++h)
      set_element(temperature, h, h == 0 ? 0.005 : 1.5 + element(temperature, h));
    AttentionInputs cosine = draw.inputs(), normed = draw.inputs();
    cosine.arguments = {{"score.temperature", temperature}};
    normed.arguments = {{"score.query_gain", query_gain}, {"score.key_gain", key_gain}};
    // A sigmoid's weights reveal each score. The temperature of head 0 makes the scores a hundred times as
    // large.
    const AttentionSpec spec{.score = Cosine{}, .mask = draw.mask, .normalizer = Sigmoid{}},
        norm_spec{.score = QkNorm{}, .mask = draw.mask, .normalizer = Sigmoid{}};
    const Forward of_cosine = draw.forward(spec, cosine), of_norm = draw.forward(norm_spec, normed);
    draw.each_row([&](std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t row) {
      const std::int64_t kv = b * draw.kv_heads + h / (draw.heads / draw.kv_heads);
      for (std::int64_t j = 0; j < K; ++j) {
        if (!draw.visible(b, h, r, j)) continue;
        double qq = 0.0, kk = 0.0, qk = 0.0, gained = 0.0;
        for (std::int64_t d = 0; d < D; ++d) {
          const double q = element(draw.query, row * D + d), k = element(draw.key, (kv * K + j) * D + d);
          qq += q * q, kk += k * k, qk += q * k;
          gained += element(query_gain, d) * q * element(key_gain, d) * k;
        }
        const double n = static_cast<double>(D), divisor = std::max(element(temperature, h), 0.01),
                     by_cosine = qk / std::sqrt(qq * kk) / divisor,
                     by_norm = gained / std::sqrt((qq / n + 1e-6) * (kk / n + 1e-6)) / std::sqrt(n);
        ASSERT_NEAR(element(of_cosine.weights, row * K + j), 1 / (1 + std::exp(-by_cosine)),
                    100 * draw.tolerance());
        ASSERT_NEAR(element(of_norm.weights, row * K + j), 1 / (1 + std::exp(-by_norm)), draw.tolerance());
      }
    });
  });
}

// Exchanging q and k changes the score, unless W is symmetric. A sigmoid's weights reveal each
// score.
TEST(Score, BilinearIsNotSymmetric) {
  for_draws(20, [](const Draw& draw) {
    const std::int64_t D = draw.head_dim, n = draw.key_len;
    if (D < 2) return;
    const Tensor W = draw.tensor({D, D}), symmetric(draw.dtype, {D, D}), x = draw.tensor({1, 1, n, D}),
                 y = draw.tensor({1, 1, n, D});
    for (std::int64_t i = 0; i < D * D; ++i)
      set_element(symmetric, i, 0.5 * (element(W, i) + element(W, i % D * D + i / D)));
    const auto weights = [&](const Tensor& query, const Tensor& key, const Tensor& matrix) {
      AttentionInputs in{.query = query, .key = key, .value = key};
      in.arguments.set("score.W", matrix);
      return draw.forward({.score = Bilinear{}, .normalizer = Sigmoid{}}, in).weights;
    };
    const auto transposed = [n](const Tensor& x) {
      const Tensor t = unwritten_like(x);
      for (std::int64_t i = 0; i < n * n; ++i) set_element(t, i, element(x, i % n * n + i / n));
      return t;
    };
    expect_near(weights(x, y, symmetric), transposed(weights(y, x, symmetric)),
                draw.tolerance() * static_cast<double>(D), "symmetric");
    EXPECT_GT(distance_of(weights(x, y, W), transposed(weights(y, x, W))), 1e-3);
    EXPECT_GT(distance_of(weights(x, y, W), weights(y, x, W)), 1e-3);
  });
}

// Luong et al. 2015, section 3.2: softmax over |j - p| <= D, times a Gaussian around p without another
// normalisation.
struct LocalExample {
  static constexpr std::int64_t hidden = 3;
  const Draw& draw;
  Tensor W, v;
  explicit LocalExample(const Draw& d) : draw(d), W(d.tensor({hidden, d.head_dim})), v(d.tensor({hidden})) {}
  LocalInputs center_inputs() const { return {.query = draw.query, .W = W, .v = v, .key_len = draw.key_len}; }
  AttentionSpec spec(double reach) const {
    return {.mods = {LocalWindow{reach}}, .mask = draw.mask, .weight_mods = {LocalGaussian{reach / 2}}};
  }
};

TEST(Score, LocalIsItsDefinition) {
  for_draws(30, [](const Draw& draw) {
    const double reach = 1.0 + static_cast<double>(draw.below(4));
    const LocalExample e(draw);
    const Tensor centers = local_centers(e.center_inputs());
    AttentionInputs in = draw.inputs();
    in.arguments = {{"mods[0].center", centers}, {"weight_mods[0].center", centers}};
    const Forward got = draw.forward(e.spec(reach), in);
    const std::vector<double> scores = products(draw, 1 / std::sqrt(static_cast<double>(draw.head_dim)));
    draw.each_row([&](std::int64_t b, auto h, std::int64_t r, std::int64_t row) {
      const double p = element(centers, row);
      std::vector<double> local;
      for (std::int64_t j = 0; j < draw.key_len; ++j)
        local.push_back(draw.visible(b, h, r, j) && std::abs(static_cast<double>(j) - p) <= reach
                            ? scores[static_cast<std::size_t>(row * draw.key_len + j)]
                            : minus_infinity);
      const std::vector<double> soft = softmax(local);
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        const double away = static_cast<double>(j) - p,
                     want = soft[static_cast<std::size_t>(j)] * std::exp(-2 * away * away / (reach * reach));
        ASSERT_NEAR(element(got.weights, row * draw.key_len + j), want, draw.tolerance()) << row << " " << j;
      }
    });
  });
}

// The derivatives by query (through the scores and through the center), W and v.
TEST(Score, LocalGradientsAreDerivatives) {
  for_draws(12, [](const Draw& draw) {
    if (draw.dtype != DType::f64 || draw.key_len > 20) return;
    const LocalExample e(draw);
    const AttentionSpec spec = e.spec(3.0);
    AttentionInputs in = draw.inputs();
    Tensor centers;
    Forward result;
    const auto loss = [&] {
      centers = local_centers(e.center_inputs());
      in.arguments = {{"mods[0].center", centers}, {"weight_mods[0].center", centers}};
      result = draw.forward(spec, in);
      return inner_product(result.output, draw.d_output);
    };
    loss();
    const Backward d = draw.backward(spec, in, result, draw.d_output);
    const Tensor d_query = unwritten_like(draw.query), dW = unwritten_like(e.W), dv = unwritten_like(e.v);
    expect_near(d["mods[0].center"], Tensor::zeros(DType::f64, centers.shape()), 0.0,
                "a window's edge has none");
    local_centers_backward(e.center_inputs(), d["weight_mods[0].center"],
                           {.query = d_query, .W = dW, .v = dv});
    for (std::int64_t i = 0; i < d_query.count(); ++i)
      set_element(d_query, i, element(d_query, i) + element(d.query, i));
    expect_derivatives(loss, {{"query", draw.query, d_query}, {"W", e.W, dW}, {"v", e.v, dv}}, 12);
  });
}

// A NaN stays NaN, whatever the minimum instruction of an ISA does with it.
TEST(Score, TanhKeepsNaN) {
  for (const KernelInfo& info : instruction_sets()) {
    if (!info.available) continue;
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor query = random_tensor(dtype, {1, 1, 6, 20}, 1),
                   key = random_tensor(dtype, {1, 1, 30, 20}, 2), v = random_tensor(dtype, {20}, 3),
                   output(dtype, {1, 1, 6, 20});
      set_element(query, 2 * 20 + 7, std::nan(""));
      AttentionInputs in{.query = query, .key = key, .value = key};
      in.arguments.set("score.v", v);
      attend(make_plan({.score = Additive{}},
                       {.query_len = 6, .key_len = 30, .head_dim = 20, .value_dim = 20, .hidden = 20},
                       {.dtype = dtype, .kernel = info.isa}),
             in, {.output = output});
      for (std::int64_t i = 0; i < output.count(); ++i)
        ASSERT_EQ(std::isnan(element(output, i)), i / 20 == 2) << info.isa << " " << i;
    }
  }
}

}  // namespace
}  // namespace fovea::testing

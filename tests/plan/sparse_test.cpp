// Weights of only a few keys, on random calls: the limit of low temperatures, Sparsemax and Entmax.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/draws.h"

namespace fovea::testing {
namespace {

// At a low temperature t the weights are those of the argmax: 1 for the best key, or equal shares if several
// are best. The error is e^(-gap/t), where gap is the distance to the next best score. Scores are whole
// numbers, so that they are exact and often equal.
TEST(Sparse, TemperatureTowardsZeroIsTheArgmax) {
  std::int64_t ties = 0;
  for_draws(30, [&](const Draw& draw) {
    for (const Tensor& x : {draw.query, draw.key}) {
      for (std::int64_t i = 0; i < x.count(); ++i) set_element(x, i, std::round(2 * element(x, i)));
    }
    const AttentionInputs in = draw.inputs();
    const Forward hard = draw.forward({.score = Dot{}, .mask = draw.mask, .normalizer = HardArgmax{}}, in),
                  cold = draw.forward({.score = Dot{}, .mods = {Temperature{0x1p-6}}, .mask = draw.mask}, in);
    const std::vector<double> scores = products(draw, 1.0);
    draw.each_row([&](std::int64_t b, auto h, std::int64_t r, std::int64_t row) {
      double best = minus_infinity;
      std::int64_t count = 0;
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        const double s = draw.visible(b, h, r, j) ? scores[static_cast<std::size_t>(row * draw.key_len + j)]
                                                  : minus_infinity;
        if (s > best) count = 0;
        if (s >= best && s > minus_infinity) ++count;
        best = std::max(best, s);
      }
      ties += count > 1 ? 1 : 0;
      ASSERT_EQ(element(hard.log_sum_exp, row), best);
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        const std::int64_t at = row * draw.key_len + j;
        const bool wins = draw.visible(b, h, r, j) && scores[static_cast<std::size_t>(at)] == best;
        ASSERT_NEAR(element(hard.weights, at), wins ? 1.0 / static_cast<double>(count) : 0.0, 1e-7) << at;
      }
    });
    // Gaps are at least 1: e^-64 a key.
    expect_near(cold.weights, hard.weights, draw.tolerance(), "weights");
    expect_near(cold.output, hard.output, draw.tolerance(), "output");
  });
  EXPECT_GT(ties, 100);
}

// A head whose "sparsity" a makes 1.01 + 0.99 sigmoid(a) the alpha of an Entmax has its weights.
TEST(Sparse, AdaptiveEntmaxIsEntmaxOfEachHeadsAlpha) {
  for_draws(20, [](const Draw& draw) {
    const auto heads = static_cast<int>(draw.heads);
    const double alphas[] = {1.5, 1.2, 1.8, 1.35};
    Tensor sparsity(draw.dtype == DType::f64 ? DType::f64 : DType::f32, {heads});
    for (int h = 0; h < heads; ++h) set_element(sparsity, h, -std::log(0.99 / (alphas[h % 4] - 1.01) - 1.0));
    AttentionInputs in = draw.inputs();
    in.arguments = {{"normalizer.sparsity", sparsity}};
    const Forward all = draw.forward({.mask = draw.mask, .normalizer = AdaptiveEntmax{}}, in);
    in.arguments = {};
    for (int n = 0; n < 4; ++n) {
      const Forward one = draw.forward({.mask = draw.mask, .normalizer = Entmax{alphas[n]}}, in);
      // The rounding of a moves alpha, and a score's error is multiplied by at most 1 / (alpha - 1).
      const double tolerance = 8 * draw.tolerance() / (alphas[n] - 1.0) * static_cast<double>(draw.head_dim);
      draw.each_row([&](std::int64_t, auto h, std::int64_t, std::int64_t row) {
        if (h % 4 != n) return;
        for (std::int64_t j = 0; j < draw.key_len; ++j) {
          const std::int64_t at = row * draw.key_len + j;
          ASSERT_NEAR(element(all.weights, at), element(one.weights, at), tolerance) << at;
        }
      });
    }
  });
}

// Weights do not change if all scores of a row are shifted. The threshold moves by (alpha - 1)·shift. alpha
// = 2 is Sparsemax. Scores 1 / (alpha - 1) below the best have a weight of exactly 0.
TEST(Sparse, EntmaxIsShiftInvariantAndSparse) {
  for_draws(30, [](const Draw& draw) {
    const double alphas[] = {2.0, 1.5, 1.2, 1.8};
    const double alpha = alphas[draw.below(4)];
    constexpr double scale = 4.0;
    const Tensor shifts = draw.tensor({draw.batch, draw.heads, draw.query_len, 1});
    AttentionInputs in = draw.inputs();
    const AttentionSpec plain{.score = Dot{}, .scale = scale, .mask = draw.mask, .normalizer = Entmax{alpha}};
    const Forward want = draw.forward(plain, in);
    AttentionSpec biased = plain;
    biased.mods = {DenseBias{}};
    in.arguments = {{"mods[0].bias", shifts}};
    const Forward got = draw.forward(biased, in);
    in.arguments = {};
    // Errors of scores up to scale·head_dim, times the slope of a weight: 1, and at most 1 / (alpha - 1).
    const double tolerance = scale * draw.tolerance() / (alpha - 1) * static_cast<double>(draw.head_dim);
    expect_near(got.output, want.output, tolerance, "output");
    expect_near(got.weights, want.weights, tolerance, "weights");
    const std::vector<double> scores = products(draw, scale);
    draw.each_row([&](std::int64_t b, auto h, std::int64_t r, std::int64_t row) {
      double best = minus_infinity, sum = 0.0;
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        if (draw.visible(b, h, r, j))
          best = std::max(best, scores[static_cast<std::size_t>(row * draw.key_len + j)]);
      }
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        const std::int64_t at = row * draw.key_len + j;
        const double w = element(want.weights, at);
        ASSERT_GE(w, 0.0);
        if (!draw.visible(b, h, r, j) ||
            (alpha - 1) * (best - scores[static_cast<std::size_t>(at)]) > 1 + tolerance)
          ASSERT_EQ(w, 0.0) << at;
        sum += w;
      }
      if (best == minus_infinity) return;
      ASSERT_NEAR(sum, 1.0, tolerance) << row;
      ASSERT_NEAR(element(got.log_sum_exp, row),
                  element(want.log_sum_exp, row) + (alpha - 1) * element(shifts, row), tolerance)
          << row;
    });
    const auto by = [&](const Normalizer& normalizer) {
      return draw.forward({.score = Dot{}, .scale = scale, .mask = draw.mask, .normalizer = normalizer}, in);
    };
    expect_near(by(Entmax{2.0}), by(Sparsemax{}), 0.0);
  });
}

// The limit alpha → 1. With e = alpha - 1 and x_j = s_j - mu <= 0, a weight is (1 + e·x)^(1/e).
// Its logarithm lies between x - e·x² / 2(1 + e·x) and x. The largest weight is at least 1/n, so |x| is at
// most R = max s - min s + ln n. Weights of Entmax and Softmax thus differ by a factor within e^±(e·R² / 2(1
// - e·R)).
TEST(Sparse, EntmaxTendsToSoftmax) {
  constexpr double e = 0.01;
  for_draws(30, [](const Draw& draw) {
    const AttentionInputs in = draw.inputs();
    const Forward sparse = draw.forward({.mask = draw.mask, .normalizer = Entmax{1 + e}}, in),
                  soft = draw.forward({.mask = draw.mask}, in);
    const std::vector<double> scores = products(draw, 1 / std::sqrt(static_cast<double>(draw.head_dim)));
    draw.each_row([&](std::int64_t b, auto h, std::int64_t r, std::int64_t row) {
      if (draw.seen(b, h, r) == 0) return;
      double best = minus_infinity, worst = -minus_infinity;
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        if (!draw.visible(b, h, r, j)) continue;
        best = std::max(best, scores[static_cast<std::size_t>(row * draw.key_len + j)]);
        worst = std::min(worst, scores[static_cast<std::size_t>(row * draw.key_len + j)]);
      }
      const double R = best - worst + std::log(static_cast<double>(draw.seen(b, h, r))),
                   factor = std::exp(e * R * R / (2 * (1 - e * R))), rounding = draw.tolerance() / e;
      for (std::int64_t at = row * draw.key_len; at < (row + 1) * draw.key_len; ++at) {
        const double got = element(sparse.weights, at), want = element(soft.weights, at);
        ASSERT_LE(got, want * factor + rounding) << at;
        ASSERT_GE(got, want / factor - rounding) << at;
      }
    });
  });
}

}  // namespace
}  // namespace fovea::testing

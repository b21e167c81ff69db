// The linear chain of structured attention, on random calls: a sum over all assignments, the limit of the
// sigmoid, and weights as the gradient of ln Z.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/draws.h"

namespace fovea::testing {
namespace {

// Sums over all 2^n assignments of a chain with these potentials.
struct Enumeration {
  double log_z = minus_infinity;
  std::vector<double> marginals;

  Enumeration(const std::vector<double>& potentials, const std::vector<double>& transitions)
      : marginals(potentials.size()) {
    const std::size_t n = potentials.size();
    if (n == 0) return;
    double z = 0.0;
    for (std::size_t assignment = 0; assignment < std::size_t{1} << n; ++assignment) {
      const auto bit = [&](std::size_t j) { return assignment >> j & 1; };
      double energy = 0.0;
      for (std::size_t j = 0; j < n; ++j) {
        if (bit(j)) energy += potentials[j];
        if (j > 0) energy += transitions[2 * bit(j - 1) + bit(j)];
      }
      z += std::exp(energy);
      for (std::size_t j = 0; j < n; ++j) marginals[j] += bit(j) ? std::exp(energy) : 0.0;
    }
    for (double& p : marginals) p /= z;
    log_z = std::log(z);
  }
};

// Keys that a row does not see, by the mask or by a score of -inf, are not part of its chain: the keys on
// their two sides are neighbours.
TEST(Chain, IsTheSumOverAllAssignments) {
  std::int64_t gaps = 0;
  for_draws(60, [&](const Draw& draw) {
    if (draw.key_len > 12) return;
    const bool each_head = draw.below(2) == 1;
    const Tensor transitions = each_head ? draw.tensor({draw.heads, 2, 2}) : draw.tensor({2, 2}),
                 bias = Tensor::zeros(draw.dtype, {draw.batch, 1, draw.query_len, draw.key_len});
    for (std::int64_t i = 0; i < bias.count(); ++i)
      set_element(bias, i, draw.below(5) == 0 ? minus_infinity : 0.0);
    AttentionInputs in = draw.inputs();
    in.arguments.set("normalizer.transitions", transitions);
    in.arguments.set("mods[0].bias", bias);
    const Forward got = draw.forward(
        {.score = Dot{}, .scale = 0.5, .mods = {DenseBias{}}, .mask = draw.mask, .normalizer = LinearChain{}},
        in);
    const std::vector<double> scores = products(draw, 0.5);
    draw.each_row([&](std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t row) {
      std::vector<std::int64_t> keys;
      std::vector<double> potentials, ways;
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        const bool hidden =
            element(bias, (b * draw.query_len + r) * draw.key_len + j) < 0.0 || !draw.visible(b, h, r, j);
        if (hidden) continue;
        gaps += !keys.empty() && keys.back() + 1 < j ? 1 : 0;
        keys.push_back(j);
        potentials.push_back(scores[static_cast<std::size_t>(row * draw.key_len + j)]);
      }
      for (std::int64_t n = 0; n < 4; ++n) ways.push_back(element(transitions, (each_head ? 4 * h : 0) + n));
      const Enumeration want(potentials, ways);
      const double lse = element(got.log_sum_exp, row);
      if (lse != want.log_z) {
        ASSERT_NEAR(lse, want.log_z, draw.tolerance()) << row;
      }
      std::vector<double> output(static_cast<std::size_t>(draw.value_dim));
      std::size_t next = 0;
      for (std::int64_t j = 0; j < draw.key_len; ++j) {
        const bool there = next < keys.size() && keys[next] == j;
        const double p = there ? want.marginals[next++] : 0.0;
        ASSERT_NEAR(element(got.weights, row * draw.key_len + j), p, draw.tolerance()) << row << " " << j;
        const std::int64_t kv = b * draw.kv_heads + h / (draw.heads / draw.kv_heads);
        for (std::int64_t d = 0; d < draw.value_dim; ++d)
          output[static_cast<std::size_t>(d)] +=
              p * element(draw.value, (kv * draw.key_len + j) * draw.value_dim + d);
      }
      for (std::int64_t d = 0; d < draw.value_dim; ++d)
        ASSERT_NEAR(element(got.output, row * draw.value_dim + d), output[static_cast<std::size_t>(d)],
                    draw.tolerance());
    });
  });
  EXPECT_GT(gaps, 100);
}

// Without transitions the variables are independent; forward and backward.
TEST(Chain, WithoutTransitionsIsTheSigmoid) {
  for_draws(30, [](const Draw& draw) {
    // The chain's reference takes the cube of the keys for a row.
    if (draw.kernel == "reference" && draw.key_len > 20) return;
    const Tensor zero = Tensor::zeros(draw.dtype, {2, 2});
    const AttentionInputs plain = draw.inputs();
    AttentionInputs in = plain;
    in.arguments.set("normalizer.transitions", zero);
    const AttentionSpec chain{.mask = draw.mask, .normalizer = LinearChain{}},
        sigmoid{.mask = draw.mask, .normalizer = Sigmoid{}};
    const Forward got = draw.forward(chain, in), want = draw.forward(sigmoid, plain);
    // Sums of up to key_len terms of order 1; the weights do not sum to 1.
    const auto keys = static_cast<double>(draw.key_len);
    expect_near(got.output, want.output, keys * draw.tolerance(), "output");
    expect_near(got.weights, want.weights, keys * draw.tolerance(), "weights");
    const Backward d_got = draw.backward(chain, in, got, draw.d_output),
                   d_want = draw.backward(sigmoid, plain, want, draw.d_output);
    const double tolerance = keys * draw.gradient_tolerance();
    expect_near(d_got.query, d_want.query, tolerance, "d_query");
    expect_near(d_got.key, d_want.key, tolerance, "d_key");
    expect_near(d_got.value, d_want.value, tolerance, "d_value");
  });
}

// p(z_j = 1) = d ln Z / d s_j, and likewise for the transitions, whose gradient is a sum of covariances. The
// case table tests those; here only ln Z, by central differences.
TEST(Chain, WeightsAreTheGradientOfLogZ) {
  for_draws(40, [](const Draw& draw) {
    if (draw.dtype != DType::f64) return;
    const Tensor transitions = draw.tensor({2, 2}),
                 bias = draw.tensor({draw.batch, draw.heads, draw.query_len, draw.key_len});
    AttentionInputs in = draw.inputs();
    in.arguments.set("normalizer.transitions", transitions);
    in.arguments.set("mods[0].bias", bias);
    const AttentionSpec spec{.mods = {DenseBias{}}, .mask = draw.mask, .normalizer = LinearChain{}};
    const Forward got = draw.forward(spec, in);
    for (int trial = 0; trial < 5; ++trial) {
      const std::int64_t at = draw.below(bias.count()), row = at / draw.key_len;
      const double x = element(bias, at), h = 1e-5;
      set_element(bias, at, x + h);
      const double up = element(draw.forward(spec, in).log_sum_exp, row);
      set_element(bias, at, x - h);
      const double down = element(draw.forward(spec, in).log_sum_exp, row);
      set_element(bias, at, x);
      // ln Z is of order key_len: rounding gives eps·key_len / h, the difference h².
      const double want = up == down ? 0.0 : (up - down) / (2 * h);  // both are -inf
      ASSERT_NEAR(element(got.weights, at), want, 1e-8) << at;
    }
  });
}

}  // namespace
}  // namespace fovea::testing

// Ops whose products multiply bf16 operands: their values and gradients, with tolerances from the rounding.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "autograd/bf16_products.h"
#include "autograd/central_differences.h"
#include "autograd/drawn.h"
#include "fovea/attention/masks.h"
#include "fovea/autograd/ops.h"
#include "fovea/autograd/row_groups.h"
#include "fovea/core/dtype.h"

namespace fovea::autograd {
namespace {

// An operand is off by 2^-8 of itself at most, so a product by 2^-7.
constexpr double rounding = 0x1p-7, epsilon = 0x1p-24;

// Σ a[i, k]·b[k, j] of rounded numbers, and Σ |a·b|.
struct Sum {
  double sum = 0.0, size = 0.0;
  void add(float a, float b) {
    sum += rounded_to_bf16(a) * rounded_to_bf16(b);
    size += std::abs(rounded_to_bf16(a) * rounded_to_bf16(b));
  }
  // Of `count` terms in f32.
  void expect(float found, std::int64_t count) const {
    ASSERT_NEAR(found, sum, static_cast<double>(count + 1) * epsilon * size);
  }
};

TEST(Bf16Gradient, OfALinearLayerIsThatOfRoundedOperands) {
  constexpr std::int64_t rows = 37, in = 45, out = 29;
  Parameter x{"x", drawn({rows, in}, 1), {}}, weight{"w", drawn({out, in}, 2), {}},
      bias{"b", drawn({out}, 3), {}};
  const Tensor d = drawn({rows, out}, 4);
  Tape tape(Operands::bf16);
  const Var y = linear(tape.use(x), tape.use(weight), tape.use(bias));
  const auto at = [](const Tensor& t, std::int64_t r, std::int64_t c) {
    return t.data<float>()[r * t.size(1) + c];
  };
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t n = 0; n < out; ++n) {
      const float b = bias.value.data<float>()[n];
      Sum sum{b, std::abs(b)};
      for (std::int64_t k = 0; k < in; ++k) sum.add(at(x.value, r, k), at(weight.value, n, k));
      sum.expect(at(y.value(), r, n), in + 1);
    }
  }
  tape.backward(sum(multiply(y, Var(d))));
  for (std::int64_t k = 0; k < in; ++k) {
    for (std::int64_t r = 0; r < rows; ++r) {
      Sum sum;
      for (std::int64_t n = 0; n < out; ++n) sum.add(at(d, r, n), at(weight.value, n, k));
      sum.expect(at(x.gradient, r, k), out);
    }
    for (std::int64_t n = 0; n < out; ++n) {
      Sum sum;
      for (std::int64_t r = 0; r < rows; ++r) sum.add(at(d, r, n), at(x.value, r, k));
      sum.expect(at(weight.gradient, n, k), rows);
    }
  }
  // The bias meets no product: its gradient is summed in f32.
  for (std::int64_t n = 0; n < out; ++n) {
    double sum = 0.0, size = 0.0;
    for (std::int64_t r = 0; r < rows; ++r) {
      sum += at(d, r, n);
      size += std::abs(at(d, r, n));
    }
    EXPECT_NEAR(bias.gradient.data<float>()[n], sum, static_cast<double>(rows) * epsilon * size);
  }
}

struct Learned {
  double loss = 0.0;
  Parameter x, weight, bias;
};

Learned cross_entropy(Operands operands, std::int64_t rows, std::int64_t dim, std::int64_t classes) {
  Learned l{0.0,
            {"x", drawn({rows, dim}, 1), {}},
            {"w", drawn({classes, dim}, 2), {}},
            {"b", drawn({classes}, 3), {}}};
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 7 % classes));
  Tape tape(operands);
  const Var loss = linear_cross_entropy(tape.use(l.x), tape.use(l.weight), tape.use(l.bias), targets, 0.1f,
                                        {.scale = 1.0f}, nullptr);
  l.loss = loss.value().data<float>()[0];
  tape.backward(loss);
  return l;
}

// Logits are off by δ = 2^-7·Σ|x·w| at most, so a loss by 2 δ, and a probability by the factor e^(2 δ).
// A gradient of the logits, p - t, is then off by p·(e^(2 δ) - 1), and its products with x or w by 2^-7 more.
TEST(Bf16Gradient, OfTheLossWithItsOutputLayerIsNearThatOfF32) {
  constexpr std::int64_t rows = 300, dim = 24, classes = 70;  // more rows than a piece of the loss has
  const Learned exact = cross_entropy(Operands::f32, rows, dim, classes),
                coarse = cross_entropy(Operands::bf16, rows, dim, classes);
  const float *x = exact.x.value.data<float>(), *w = exact.weight.value.data<float>(),
              *b = exact.bias.value.data<float>();
  double loss_bound = 0.0;
  std::vector<double> dx_bound(rows * dim), dw_bound(classes * dim);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<double> p(classes);
    double delta = 0.0, total = 0.0;
    for (std::int64_t c = 0; c < classes; ++c) {
      double logit = b[c], size = 0.0;
      for (std::int64_t k = 0; k < dim; ++k) {
        logit += static_cast<double>(x[r * dim + k]) * w[c * dim + k];
        size += std::abs(static_cast<double>(x[r * dim + k]) * w[c * dim + k]);
      }
      delta = std::max(delta, rounding * size);
      total += p[c] = std::exp(logit);
    }
    loss_bound += 2.0 * delta;
    for (std::int64_t c = 0; c < classes; ++c) {
      p[c] /= total;
      const double target = (c == r * 7 % classes ? 0.9 : 0.0) + 0.1 / classes;
      const double off = p[c] * std::expm1(2.0 * delta) + rounding * (std::abs(p[c] - target) + p[c] * delta);
      for (std::int64_t k = 0; k < dim; ++k) {
        dx_bound[r * dim + k] += off * std::abs(w[c * dim + k]);
        dw_bound[c * dim + k] += off * std::abs(x[r * dim + k]);
      }
    }
  }
  constexpr double f32_noise = 1e-5;  // of both sides' sums of some hundred terms of size 1
  EXPECT_NEAR(coarse.loss, exact.loss, loss_bound);
  EXPECT_NE(coarse.loss, exact.loss);
  for (std::int64_t i = 0; i < rows * dim; ++i)
    ASSERT_NEAR(coarse.x.gradient.data<float>()[i], exact.x.gradient.data<float>()[i],
                dx_bound[i] + f32_noise);
  for (std::int64_t i = 0; i < classes * dim; ++i)
    ASSERT_NEAR(coarse.weight.gradient.data<float>()[i], exact.weight.gradient.data<float>()[i],
                dw_bound[i] + f32_noise);
}

double norm_of(const Tensor& x) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < x.count(); ++i) sum += std::pow(x.data<float>()[i], 2);
  return std::sqrt(sum);
}

// The states of a cell pass through a product a step, and back through one. The gates' derivatives are below
// 1 and the weights small, so the errors of the steps at most add up.
TEST(Bf16Gradient, OfRecurrentCellsIsNearThatOfF32) {
  constexpr std::int64_t batch = 5, steps = 6, hidden = 21;
  for (const auto& [cell, gates] :
       {std::pair{Cell::rnn, 1}, std::pair{Cell::gru, 3}, std::pair{Cell::lstm, 4}}) {
    std::vector<Parameter> all[2];
    for (const Operands operands : {Operands::f32, Operands::bf16}) {
      std::vector<Parameter>& p = all[operands == Operands::bf16];
      p = {{"x", drawn({batch, steps, gates * hidden}, 1), {}},
           {"w", drawn({gates * hidden, hidden}, 2), {}},
           {"b", drawn({gates * hidden}, 3), {}}};
      for (std::int64_t i = 0; i < p[1].value.count(); ++i) p[1].value.data<float>()[i] *= 0.2f;
      Tape tape(operands);
      const std::vector<std::int64_t> lengths{6, 3, 6, 1, 5};
      const Var states = cell_sequence(cell, Direction::forward, tape.use(p[0]), {}, tape.use(p[1]),
                                       tape.use(p[2]), lengths);
      tape.backward(sum(multiply(states, Var(drawn({batch, steps, states.size(2)}, 4)))));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const Tensor off = all[1][i].gradient.clone();
      for (std::int64_t j = 0; j < off.count(); ++j)
        off.data<float>()[j] -= all[0][i].gradient.data<float>()[j];
      EXPECT_LT(norm_of(off), 2 * steps * rounding * norm_of(all[0][i].gradient)) << all[0][i].name;
      EXPECT_GT(norm_of(off), 1e-5 * norm_of(all[0][i].gradient))
          << all[0][i].name << ": these products are f32";
    }
  }
}

// Operands that bf16 holds are multiplied exactly, so the forward pass is that of f32. What is rounded then
// is the gradient that each product of the backward pass multiplies, by up to 2^-9.
Tensor held_by_bf16(Shape shape, std::uint64_t seed) {
  const Tensor x = drawn(std::move(shape), seed);
  for (std::int64_t i = 0; i < x.count(); ++i)
    x.data<float>()[i] = static_cast<float>(bfloat16(0.2f * x.data<float>()[i]));
  return x;
}

void expect_rounded(const Tensor& exact, const Tensor& coarse, const char* what) {
  const Tensor off = coarse.clone();
  for (std::int64_t j = 0; j < off.count(); ++j) off.data<float>()[j] -= exact.data<float>()[j];
  EXPECT_LT(norm_of(off), 0x1p-8 * norm_of(exact)) << what;
  EXPECT_GT(norm_of(off), 0x1p-13 * norm_of(exact)) << what << ": this product is f32";
}

TEST(Bf16Gradient, RoundsTheGradientsThatACellMultiplies) {
  constexpr std::int64_t batch = 7, hidden = 21;
  for (const auto& [cell, gates, parts] :
       {std::tuple{Cell::rnn, 1, 1}, std::tuple{Cell::gru, 3, 1}, std::tuple{Cell::lstm, 4, 2}}) {
    std::vector<Parameter> all[2];
    Tensor states[2];
    for (const Operands operands : {Operands::f32, Operands::bf16}) {
      std::vector<Parameter>& p = all[operands == Operands::bf16];
      p = {{"x", held_by_bf16({batch, 1, gates * hidden}, 1), {}},
           {"state", held_by_bf16({batch, parts * hidden}, 2), {}},
           {"w", held_by_bf16({gates * hidden, hidden}, 3), {}},
           {"b", held_by_bf16({gates * hidden}, 4), {}}};
      Tape tape(operands);
      const std::vector<std::int64_t> lengths(batch, 1);
      const Var out = cell_sequence(cell, Direction::forward, tape.use(p[0]), tape.use(p[1]), tape.use(p[2]),
                                    tape.use(p[3]), lengths);
      states[operands == Operands::bf16] = out.value();
      tape.backward(sum(multiply(out, Var(drawn({batch, 1, out.size(2)}, 5)))));
    }
    for (std::int64_t i = 0; i < states[0].count(); ++i)
      ASSERT_NEAR(states[0].data<float>()[i], states[1].data<float>()[i], 1e-6);
    // A part of the gradient of the state does not pass through the weights, and is exact.
    expect_rounded(all[0][1].gradient, all[1][1].gradient, "state");
    expect_rounded(all[0][2].gradient, all[1][2].gradient, "w");
  }
}

TEST(Bf16Gradient, RoundsTheGradientsThatTheLossMultiplies) {
  constexpr std::int64_t rows = 40, dim = 24, classes = 70;
  std::vector<Parameter> all[2];
  double losses[2];
  for (const Operands operands : {Operands::f32, Operands::bf16}) {
    const bool coarse = operands == Operands::bf16;
    std::vector<Parameter>& p = all[coarse];
    p = {{"x", held_by_bf16({rows, dim}, 1), {}}, {"w", held_by_bf16({classes, dim}, 2), {}}};
    std::vector<std::int32_t> targets;
    for (std::int64_t r = 0; r < rows; ++r) targets.push_back(static_cast<std::int32_t>(r * 7 % classes));
    Tape tape(operands);
    const Var loss =
        linear_cross_entropy(tape.use(p[0]), tape.use(p[1]), {}, targets, 0.1f, {.scale = 1.0f}, nullptr);
    losses[coarse] = loss.value().data<float>()[0];
    tape.backward(loss);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5 * losses[0]);
  expect_rounded(all[0][0].gradient, all[1][0].gradient, "x");
  expect_rounded(all[0][1].gradient, all[1][1].gradient, "w");
}

TEST(Bf16Gradient, MixesAndComparesRowsInBf16) {
  Parameter a{"a", drawn({1, 9, 31}, 1), {}}, b{"b", drawn({1, 8, 31}, 2), {}},
      mix{"mix", drawn({5, 9}, 3), {}};
  Tape tape(Operands::bf16);
  const Tensor inner = inner_products(tape.use(a), tape.use(b)).value(),
               mixed = mix_rows(tape.use(mix), tape.use(a), {}).value();
  const float *x = a.value.data<float>(), *y = b.value.data<float>(), *m = mix.value.data<float>();
  for (std::int64_t r = 0; r < 9; ++r) {
    for (std::int64_t n = 0; n < 8; ++n) {
      Sum sum;
      for (std::int64_t k = 0; k < 31; ++k) sum.add(x[r * 31 + k], y[n * 31 + k]);
      sum.expect(inner.data<float>()[r * 8 + n], 31);
    }
  }
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t k = 0; k < 31; ++k) {
      Sum sum;
      for (std::int64_t j = 0; j < 9; ++j) sum.add(m[r * 9 + j], x[j * 31 + k]);
      sum.expect(mixed.data<float>()[r * 31 + k], 9);
    }
  }
}

// A layer may hand over a plan of bf16 although nothing of its call is recorded.
TEST(Bf16Gradient, OfAttentionTakesAPlanOfBf16) {
  const Tensor x = drawn({1, 20, 32}, 1);
  const AttentionShape shape{.batch = 1,
                             .num_query_heads = 2,
                             .num_kv_heads = 2,
                             .query_len = 20,
                             .key_len = 20,
                             .head_dim = 16,
                             .value_dim = 16};
  const auto with = [&](DType dtype) {
    return AttentionCall{
        .num_query_heads = 2, .num_kv_heads = 2, .plan = make_plan(AttentionSpec{}, shape, {.dtype = dtype})};
  };
  const Tensor y = attention(with(DType::bf16), x, x, x).value(),
               exact = attention(with(DType::f32), x, x, x).value();
  ASSERT_EQ(y.dtype(), DType::f32);
  for (std::int64_t i = 0; i < y.count(); ++i) EXPECT_NEAR(y.data<float>()[i], exact.data<float>()[i], 0.05);
  EXPECT_THROW(attention(with(DType::f64), x, x, x), InvalidArgument);
  EXPECT_THROW(attention(with(DType::bf16), x, {}, x), InvalidArgument);
}

// Rounded operands, weights and results are off by 2^-8 each, and the scores here are below 2, so a norm is
// off by a few times 2^-8. Short sequences are faster in f32, and stay exactly that.
TEST(Bf16Gradient, OfAttentionIsNearThatOfF32) {
  for (const std::int64_t length : {20, 160}) {
    std::vector<Parameter> all[2];
    Tensor outputs[2];
    for (const Operands operands : {Operands::f32, Operands::bf16}) {
      std::vector<Parameter>& p = all[operands == Operands::bf16];
      for (std::uint64_t n = 1; n <= 3; ++n) p.push_back({"p", drawn({2, length, 64}, n), {}});
      Tape tape(operands);
      const Var y = attention({.spec = {.mask = Causal{}}, .num_query_heads = 2, .num_kv_heads = 2},
                              tape.use(p[0]), tape.use(p[1]), tape.use(p[2]));
      ASSERT_EQ(y.value().dtype(), DType::f32);
      outputs[operands == Operands::bf16] = y.value();
      tape.backward(sum(multiply(y, Var(drawn({2, length, 64}, 4)))));
    }
    const auto expect = [&](const Tensor& exact, const Tensor& coarse) {
      const Tensor off = coarse.clone();
      for (std::int64_t j = 0; j < off.count(); ++j) off.data<float>()[j] -= exact.data<float>()[j];
      EXPECT_LE(norm_of(off), length == 20 ? 0.0 : 8 * 0x1p-8 * norm_of(exact));
      if (length == 160 && cpu_has_avx512_bf16()) {
        EXPECT_GT(norm_of(off), 0x1p-12 * norm_of(exact));
      }
    };
    expect(outputs[0], outputs[1]);
    for (std::size_t i = 0; i < 3; ++i) expect(all[0][i].gradient, all[1][i].gradient);
  }
}

// Without a tape nothing is rounded: a validation multiplies as the model that is kept will.
TEST(Bf16Gradient, LeavesInferenceInF32) {
  const Tensor x = drawn({40, 33}, 1), weight = drawn({50, 33}, 2);
  Tape tape(Operands::bf16);
  Parameter other{"other", drawn({40, 33}, 3), {}};
  ASSERT_FALSE(linear(tape.use(other), weight, {}).value().empty());
  const Tensor plain = linear(x, weight, {}).value();
  for (std::int64_t n = 0; n < 50; ++n) {
    double sum = 0.0, size = 0.0;
    for (std::int64_t k = 0; k < 33; ++k) {
      sum += static_cast<double>(x.data<float>()[k]) * weight.data<float>()[n * 33 + k];
      size += std::abs(static_cast<double>(x.data<float>()[k]) * weight.data<float>()[n * 33 + k]);
    }
    EXPECT_NEAR(plain.data<float>()[n], sum, 34 * epsilon * size);
  }
}

TEST(Operands, AreReadByName) {
  EXPECT_EQ(parse_operands("bf16"), Operands::bf16);
  EXPECT_EQ(to_string(Operands::f32), "f32");
  EXPECT_THROW(parse_operands("f16"), InvalidArgument);
}

}  // namespace
}  // namespace fovea::autograd

// Every operation but attention against central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "autograd/central_differences.h"
#include "fovea/autograd/ops.h"

namespace fovea::autograd {
namespace {

TEST(Gradient, ElementWise) {
  check({parameter({3, 5}, 1), parameter({3, 5}, 2)}, [](const auto& v) { return add(v[0], v[1]); });
  check({parameter({3, 5}, 1), parameter({3, 5}, 2)}, [](const auto& v) { return multiply(v[0], v[1]); });
  check({parameter({3, 5}, 1)}, [](const auto& v) { return multiply(v[0], v[0]); });
  check({parameter({7}, 1)}, [](const auto& v) { return scale(v[0], -2.5f); });
  check({parameter({33}, 1)}, [](const auto& v) { return tanh(v[0]); });
  check({parameter({33}, 1)}, [](const auto& v) { return sigmoid(v[0]); });
  check({parameter({33}, 1, 0.1f)}, [](const auto& v) { return relu(v[0]); });
  check({parameter({5, 13}, 1)}, [](const auto& v) { return dropout(v[0], 0.3f, 5, 6); });
}

TEST(Gradient, Shapes) {
  check({parameter({2, 6}, 1)}, [](const auto& v) { return tanh(reshape(v[0], {3, 4})); });
  check({parameter({2, 3, 2}, 1), parameter({2, 1, 2}, 2)}, [](const auto& v) { return concat(v, 1); });
  check({parameter({2, 3}, 1), parameter({2, 4}, 2)}, [](const auto& v) { return tanh(concat(v, -1)); });
  check({parameter({2, 5, 3}, 1)},
        [](const auto& v) { return add(slice(v[0], 1, 1, 2), slice(v[0], 1, 3, 2)); });
  check({parameter({2, 4, 3}, 1)}, [](const auto& v) {
    const std::int64_t index[] = {3, 1};
    return gather_rows(v[0], index);
  });
  check({parameter({2, 4, 3}, 1)}, [](const auto& v) {
    const std::int64_t index[] = {3, 0, 3, 2, 1, 1};
    return gather_rows(v[0], index, 3);
  });
  check({parameter({3, 2}, 1), parameter({3, 2}, 2)}, [](const auto& v) {
    const float mask[] = {1, 0, 1};
    return blend_rows(mask, v[0], v[1]);
  });
}

// Enough numbers for several threads.
TEST(Embedding, ReadsARowThatSeveralIdsAskForOnce) {
  const Parameter table = parameter({40, 300}, 1);
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 250; ++i) ids.push_back(i * 7 % 40);
  std::atomic<int> reads = 0;
  const auto rows = std::make_shared<const TableRows>([&](std::int64_t row, float* to) {
    ++reads;
    std::copy_n(table.value.data<float>() + row * 300, 300, to);
  });
  const Tensor found = embedding(Var(table.value, nullptr, rows), ids, 1.5f).value();
  const Tensor expected = embedding(table.value, ids, 1.5f).value();
  EXPECT_EQ(std::memcmp(found.data<float>(), expected.data<float>(), 250 * 300 * sizeof(float)), 0);
  EXPECT_EQ(reads, 40);
}

TEST(EmbeddingSums, AreSumsOfEmbeddings) {
  const Parameter table = parameter({7, 3}, 1);
  const std::int32_t ids[] = {4, 6, 2, 2};
  const std::int64_t counts[] = {1, 0, 3};
  const Tensor rows = embedding(table.value, ids).value();
  const Tensor sums = embedding_sums(table.value, ids, counts).value();
  ASSERT_EQ(sums.shape(), (Shape{3, 3}));
  for (std::int64_t j = 0; j < 3; ++j) {
    const auto at = [&](std::int64_t row) { return rows.data<float>()[row * 3 + j]; };
    EXPECT_FLOAT_EQ(sums.data<float>()[j], at(0));
    EXPECT_FLOAT_EQ(sums.data<float>()[3 + j], 0.0f);
    EXPECT_FLOAT_EQ(sums.data<float>()[6 + j], at(1) + at(2) + at(3));
  }
}

TEST(Gradient, Layers) {
  check({parameter({4, 5}, 1), parameter({3, 5}, 2), parameter({3}, 3)},
        [](const auto& v) { return linear(v[0], v[1], v[2]); });
  check({parameter({7, 3}, 1)}, [](const auto& v) {
    const std::int32_t ids[] = {0, 6, 2, 2};
    return embedding(v[0], ids, 1.5f);
  });
  check({parameter({7, 3}, 1)}, [](const auto& v) {
    const std::int32_t ids[] = {0, 6, 2, 2};
    const std::int64_t counts[] = {1, 0, 3};
    const float weights[] = {1.5f, -1.0f, 0.5f, 2.0f};
    return embedding_sums(v[0], ids, counts, weights);
  });
  check({parameter({5, 19}, 1), parameter({19}, 2), parameter({19}, 3)},
        [](const auto& v) { return layer_norm(v[0], v[1], v[2], 1e-5f); });
  check({parameter({5, 19}, 1), parameter({19}, 2)},
        [](const auto& v) { return layer_norm(v[0], v[1], {}, 1e-5f, 1.0f); });
  for (const float offset : {0.0f, 1.0f})
    check({parameter({5, 19}, 1), parameter({19}, 2)},
          [=](const auto& v) { return rms_norm(v[0], v[1], 1e-5f, offset); });
}

constexpr Activation every_activation[] = {
    Activation::relu,       Activation::gelu, Activation::gelu_tanh,   Activation::silu,
    Activation::quick_gelu, Activation::tanh, Activation::relu_squared};

TEST(Gradient, Activations) {
  for (const Activation activation : every_activation) {
    check({parameter({3, 37}, 1, 0.1f)}, [=](const auto& v) { return activate(activation, v[0]); });
    check({parameter({3, 37}, 1, 0.1f), parameter({3, 37}, 2)},
          [=](const auto& v) { return gated(activation, v[0], v[1]); });
  }
}

// Compared with their definitions in double, far into both tails. gelu's tail has a relative error of its
// own: formula 7.1.26 has an error of 1.5e-7 relative to 1, and at -5 the function is 1.4e-6.
TEST(Activations, AreTheirDefinitions) {
  const auto sigmoid_of = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  for (double x = -8.0; x <= 8.0; x += 0.0625) {
    const double expected[] = {
        std::max(x, 0.0),
        0.5 * x * std::erfc(-x / std::sqrt(2.0)),
        0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))),
        x * sigmoid_of(x),
        x * sigmoid_of(1.702 * x),
        std::tanh(x),
        x > 0.0 ? x * x : 0.0};
    static_assert(std::size(expected) == std::size(every_activation));
    Tensor at(DType::f32, {1, 1});
    *at.data<float>() = static_cast<float>(x);
    for (std::size_t i = 0; i < std::size(every_activation); ++i) {
      const float got = *activate(every_activation[i], at).value().data<float>();
      EXPECT_NEAR(got, expected[i], 3e-7 * (1.0 + std::max(std::abs(x), std::abs(expected[i]))))
          << i << " at " << x;
    }
  }
}

TEST(Gradient, Cells) {
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm}) {
    const std::int64_t h = 5, g = gate_count(cell) * h, s = state_count(cell) * h;
    check({parameter({3, g}, 1), parameter({3, s}, 2), parameter({g, h}, 3), parameter({g}, 4)},
          [=](const auto& v) { return cell_step(cell, v[0], v[1], v[2], v[3]); });
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::vector<std::int64_t> lengths{4, 2, 1};
      check({parameter({3, 4, g}, 1), parameter({3, s}, 2), parameter({g, h}, 3), parameter({g}, 4)},
            [=](const auto& v) { return cell_sequence(cell, direction, v[0], v[1], v[2], v[3], lengths); });
    }
  }
}

TEST(Cells, SequenceIsRepeatedSteps) {
  const std::int64_t batch = 3, steps = 4, hidden = 6;
  const std::vector<std::int64_t> lengths{4, 2, 3};
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm}) {
    const std::int64_t g = gate_count(cell) * hidden, width = state_count(cell) * hidden;
    const Tensor gates = parameter({batch, steps, g}, 1).value, start = parameter({batch, width}, 2).value,
                 weight = parameter({g, hidden}, 3).value, bias = parameter({g}, 4).value;
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const Tensor whole = cell_sequence(cell, direction, gates, start, weight, bias, lengths).value();
      Var state = start;
      for (std::int64_t i = 0; i < steps; ++i) {
        const std::int64_t t = direction == Direction::forward ? i : steps - 1 - i;
        std::vector<float> alive;
        for (const std::int64_t length : lengths) alive.push_back(t < length ? 1.0f : 0.0f);
        const Var next = cell_step(cell, reshape(slice(gates, 1, t, 1), {batch, g}), state, weight, bias);
        state = blend_rows(alive, next, state);
        for (std::int64_t b = 0; b < batch; ++b) {
          for (std::int64_t j = 0; j < width; ++j) {
            ASSERT_NEAR(whole.data<float>()[(b * steps + t) * width + j],
                        state.value().data<float>()[b * width + j], 1e-6);
          }
        }
      }
    }
  }
}

TEST(Gradient, Reductions) {
  check({parameter({3, 5}, 1)}, [](const auto& v) { return sum(multiply(v[0], v[0])); });
  const std::vector<std::int64_t> lengths{4, 2};
  for (const Pool kind : {Pool::mean, Pool::max}) {
    check({parameter({2, 4, 3}, 1)}, [=](const auto& v) { return pool(kind, v[0], lengths); });
    check({parameter({2, 4, 3}, 1)}, [=](const auto& v) { return pool(kind, v[0], {}); });
  }
  check({parameter({2, 3, 4}, 1), parameter({2, 5, 4}, 2)},
        [](const auto& v) { return inner_products(v[0], v[1]); });
  check({parameter({2, 3, 4}, 1)}, [](const auto& v) { return inner_products(v[0], v[0]); });
  const RopeTable table({.rotary_dim = 4}, 8, DType::f32);  // of five elements a head, one is not rotated
  check({parameter({2, 3, 10}, 1)}, [=](const auto& v) { return rotate(v[0], table, 2, 5); });
  const std::vector<std::int64_t> first{5, 1};
  check({parameter({2, 3, 10}, 1)}, [=](const auto& v) { return rotate(v[0], table, 2, first); });
  check({parameter({3, 4}, 1, 0.2f)}, [](const auto& v) { return normalize_rows(v[0]); });
  // Below epsilon a row is only divided.
  check({parameter({3, 4}, 1)}, [](const auto& v) { return normalize_rows(v[0], 100.0f); });
}

TEST(Gradient, Losses) {
  const std::vector<std::int32_t> targets{0, 6, -1, 3};
  const std::vector<float> weights{1.0f, -0.5f, 3.0f, 2.0f};
  check({parameter({4, 7}, 1)}, [=](const auto& v) { return cross_entropy(v[0], targets); });
  check({parameter({4, 7}, 1)},
        [=](const auto& v) { return scale(cross_entropy(v[0], targets, {weights}), 2.0f); });
  const AttentionCall pointer{};
  check({parameter({1, 4, 3}, 1), parameter({1, 7, 3}, 2)}, [=](const auto& v) {
    return negative_log_likelihood(reshape(attention_weights(pointer, v[0], v[1]), {4, 7}), targets,
                                   {weights});
  });
  const Tensor target = parameter({3, 2}, 4).value;
  const std::vector<float> some{0.5f, -1.0f, 2.0f, 1.0f, 0.0f, 3.0f};
  check({parameter({3, 2}, 1)}, [=](const auto& v) { return squared_error(v[0], target); });
  check({parameter({3, 2}, 1)},
        [=](const auto& v) { return scale(squared_error(v[0], target, {some}), 0.5f); });
}

// All losses reduce in the same way: with weights w and a scale c the result is c · Σ w_n times the loss of
// term n alone.
TEST(Losses, AllReduceInTheSameWay) {
  const std::vector<std::int32_t> targets{0, 6, -1, 3};
  const std::vector<float> weights{1.0f, -0.5f, 3.0f, 2.0f};
  const Tensor rows = parameter({4, 7}, 1).value, likely = [&] {
    Tensor p = rows.clone();
    log_softmax_rows(p);
    for (std::int64_t i = 0; i < p.count(); ++i) p.data<float>()[i] = std::exp(p.data<float>()[i]);
    return p;
  }();
  const Tensor x = parameter({4, 5}, 2).value, w = parameter({7, 5}, 3).value;
  const Tensor column = parameter({4, 1}, 4).value, goal = parameter({4, 1}, 5).value;
  const auto linear = [&](const Reduction& reduction) {
    return linear_cross_entropy(x, w, Var(), targets, 0.1f, reduction);
  };
  const std::pair<const char*, std::function<Var(const Reduction&)>> losses[] = {
      {"cross_entropy", [&](const Reduction& r) { return cross_entropy(rows, targets, r); }},
      {"negative_log_likelihood",
       [&](const Reduction& r) { return negative_log_likelihood(likely, targets, r); }},
      {"linear_cross_entropy", linear},
      {"squared_error", [&](const Reduction& r) { return squared_error(column, goal, r); }}};
  for (const auto& [name, loss] : losses) {
    const auto value = [&, &loss = loss](const Reduction& r) {
      return static_cast<double>(*loss(r).value().data<float>());
    };
    double expected = 0.0, plain = 0.0;
    for (std::size_t n = 0; n < weights.size(); ++n) {
      std::vector<float> alone(weights.size(), 0.0f);
      alone[n] = 1.0f;
      plain += value({alone});
      expected += static_cast<double>(weights[n]) * value({alone});
    }
    EXPECT_NEAR(value({}), plain, 1e-5 * (1.0 + std::abs(plain))) << name;
    EXPECT_NEAR(value({weights, 0.25f}), 0.25 * expected, 1e-5 * (1.0 + std::abs(expected))) << name;
    EXPECT_THROW(loss({std::span(weights).first(3)}), InvalidArgument) << name;
  }
}

// A pointer is a softmax over keys: both ways to compute its loss give one number.
TEST(Losses, APointerIsASoftmaxOverInnerProducts) {
  const Tensor q = parameter({1, 4, 3}, 1).value, k = parameter({1, 7, 3}, 2).value;
  const std::vector<std::int32_t> targets{0, 6, -1, 3};
  CrossEntropyStats pointer, logits;
  negative_log_likelihood(attention_weights({.spec = {.score = Dot{}}}, q, k).value().reshape({4, 7}),
                          targets, {}, &pointer);
  cross_entropy(inner_products(q, k).value().reshape({4, 7}), targets, {}, &logits);
  EXPECT_NEAR(pointer.loss, logits.loss, 1e-5 * logits.loss);
  EXPECT_EQ(pointer.tokens, 3);
  EXPECT_EQ(logits.tokens, 3);
  EXPECT_EQ(pointer.correct, logits.correct);
  EXPECT_EQ(logits.log_likelihood, -logits.loss);
}

TEST(Gradient, LinearCrossEntropy) {
  const std::vector<std::int32_t> targets{0, 6, -1, 3};
  for (const float smoothing : {0.0f, 0.1f}) {
    check({parameter({4, 5}, 1), parameter({7, 5}, 2), parameter({7}, 3)}, [=](const auto& v) {
      return linear_cross_entropy(v[0], v[1], v[2], targets, smoothing, {.scale = 0.5f});
    });
    const std::vector<float> weights{1.0f, -0.5f, 3.0f, 2.0f};
    check({parameter({4, 5}, 1), parameter({7, 5}, 2), parameter({7}, 3)}, [=](const auto& v) {
      return linear_cross_entropy(v[0], v[1], v[2], targets, smoothing, {weights});
    });
  }
}

// Against the definition, in double, over more rows than one chunk holds.
TEST(CrossEntropy, IsItsDefinition) {
  const std::int64_t rows = 300, dim = 6, classes = 11;
  const Tensor x = parameter({rows, dim}, 1).value, w = parameter({classes, dim}, 2).value;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t r = 0; r < rows; ++r) targets[r] = static_cast<std::int32_t>(r % (classes + 1)) - 1;
  CrossEntropyStats stats;
  linear_cross_entropy(x, w, Var(), targets, 0.2f, {}, &stats);
  double loss = 0.0;
  std::int64_t tokens = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    double sum = 0.0, mean = 0.0, target = 0.0;
    for (std::int64_t c = 0; c < classes; ++c) {
      double logit = 0.0;
      for (std::int64_t d = 0; d < dim; ++d)
        logit += static_cast<double>(x.data<float>()[r * dim + d]) *
                 static_cast<double>(w.data<float>()[c * dim + d]);
      sum += std::exp(logit);
      mean += logit / static_cast<double>(classes);
      if (c == targets[r]) target = logit;
    }
    loss += std::log(sum) - 0.8 * target - 0.2 * mean;
    ++tokens;
  }
  EXPECT_EQ(stats.tokens, tokens);
  EXPECT_NEAR(stats.loss, loss, 1e-5 * loss);
}

// Padding may hold anything.
TEST(CrossEntropy, DoesNotReadRowsWithoutATarget) {
  Parameter x = parameter({4, 5}, 1), w = parameter({7, 5}, 2), b = parameter({7}, 3);
  std::fill_n(x.value.data<float>() + 10, 5, std::numeric_limits<float>::quiet_NaN());
  const std::vector<std::int32_t> targets{0, 6, -1, 3};
  Tape tape;
  const Var loss = linear_cross_entropy(tape.use(x), tape.use(w), tape.use(b), targets, 0.1f);
  EXPECT_TRUE(std::isfinite(loss.value().data<float>()[0]));
  tape.backward(loss);
  for (const Parameter* p : {&x, &w, &b}) {
    for (std::int64_t i = 0; i < p->gradient.count(); ++i)
      EXPECT_TRUE(std::isfinite(p->gradient.data<float>()[i]));
  }
  for (std::int64_t i = 10; i < 15; ++i) EXPECT_EQ(x.gradient.data<float>()[i], 0.0f);
}

// More rows and columns than a unit of the sum has.
TEST(Linear, GradientOfABiasIsTheSumOfAllRows) {
  const std::int64_t rows = 700, out = 1500;
  Parameter bias{"b", Tensor::zeros(DType::f32, {out}), Tensor::zeros(DType::f32, {out})};
  const Tensor d = Tensor::normal({rows, out}, 1);
  Tape tape;
  const Var y =
      linear(Tensor::zeros(DType::f32, {rows, 3}), Tensor::zeros(DType::f32, {out, 3}), tape.use(bias));
  Node* root = tape.record([&](const Tensor&) { accumulate(y, d.clone()); });
  tape.backward(Var(Tensor::zeros(DType::f32, {1}), root));
  for (std::int64_t n = 0; n < out; ++n) {
    double sum = 0.0;
    for (std::int64_t r = 0; r < rows; ++r) sum += static_cast<double>(d.data<float>()[r * out + n]);
    ASSERT_NEAR(bias.gradient.data<float>()[n], sum, 1e-3) << n;
  }
}

// Three layers and a residual add to the gradient of one value, in any order.
TEST(Gradient, OfAValueThatSeveralLayersRead) {
  check({parameter({6, 5}, 1), parameter({5, 5}, 2), parameter({5, 5}, 3), parameter({5}, 4)},
        [](const auto& v) {
          const Var x = tanh(v[0]);
          const Var one = linear(x, v[1], v[3]), two = linear(x, v[2], Var());
          return add(multiply(one, two), add(x, linear(x, v[1], Var())));
        });
}

TEST(Dropout, KeepsTheMeanAndRepeats) {
  Tensor ones(DType::f32, {100000});
  ones.fill(1.0);
  const Tensor a = dropout(ones, 0.25f, 1, 2).value(), b = dropout(ones, 0.25f, 1, 2).value(),
               c = dropout(ones, 0.25f, 1, 3).value();
  double mean = 0.0;
  std::int64_t differ = 0;
  for (std::int64_t i = 0; i < ones.count(); ++i) {
    mean += static_cast<double>(a.data<float>()[i]) / 1e5;
    ASSERT_EQ(a.data<float>()[i], b.data<float>()[i]);
    differ += a.data<float>()[i] != c.data<float>()[i];
  }
  EXPECT_NEAR(mean, 1.0, 5.0 * std::sqrt(0.25 / 0.75 / 1e5));  // five standard deviations
  EXPECT_NEAR(static_cast<double>(differ), 2 * 0.25 * 0.75 * 1e5, 1000.0);
}

TEST(Elementwise, CappedLogitsAreTheirDefinition) {
  Tensor x(DType::f32, {40001});
  for (std::int64_t i = 0; i < x.count(); ++i) x.data<float>()[i] = 0.01f * static_cast<float>(i - 20000);
  x.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  x.data<float>()[4] = -std::numeric_limits<float>::infinity();
  x.data<float>()[5] = 3e38f;
  Tensor capped = Tensor::copy_of(x), scaled = Tensor::copy_of(x);
  scale_and_cap(capped, 0.5f, 30.0f);
  scale_and_cap(scaled, 0.5f, std::nullopt);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const float one = x.data<float>()[i];
    if (std::isnan(one)) {
      EXPECT_TRUE(std::isnan(capped.data<float>()[i]));
      continue;
    }
    EXPECT_NEAR(capped.data<float>()[i], 30.0 * std::tanh(0.5 * static_cast<double>(one) / 30.0),
                3e-7 * 30.0);
    EXPECT_EQ(scaled.data<float>()[i], 0.5f * one);
  }
  EXPECT_THROW(scale_and_cap(x, 1.0f, 0.0f), InvalidArgument);
  Tensor bf16(DType::bf16, {2});
  EXPECT_THROW(scale_and_cap(bf16, 1.0f, 3.0f), InvalidArgument);
}

TEST(Tape, RefusesAndReleases) {
  Parameter p = parameter({3}, 1);
  Tape tape;
  EXPECT_THROW(tape.backward(Var(p.value)), InvalidArgument);
  EXPECT_THROW(tape.backward(scale(tape.use(p), 2.0f)), InvalidArgument);  // three elements
  EXPECT_FALSE(scale(Var(p.value), 2.0f).recorded());
  EXPECT_THROW(add(Var(p.value), Var(Tensor::zeros(DType::f32, {4}))), InvalidArgument);
}

}  // namespace
}  // namespace fovea::autograd

// Layers against naive loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/bf16_products.h"
#include "core/cpu.h"
#include "fovea/attention/make_mod.h"
#include "fovea/core/dtype.h"
#include "fovea/nn/attention.h"
#include "fovea/nn/recurrent_mixer.h"
#include "fovea/nn/resampler.h"
#include "fovea/nn/transformer.h"
#include "nn/compare.h"

namespace fovea::nn {
namespace {

// Row r of x [rows, width].
const float* row_of(const Tensor& x, std::int64_t r, std::int64_t width) {
  return x.data<float>() + r * width;
}

std::vector<double> naive_linear(const Parameter& weight, const Parameter& bias, const float* x) {
  const std::int64_t out = weight.value.size(0), in = weight.value.size(1);
  std::vector<double> y(static_cast<std::size_t>(out));
  for (std::int64_t o = 0; o < out; ++o) {
    double sum = static_cast<double>(bias.value.data<float>()[o]);
    for (std::int64_t i = 0; i < in; ++i)
      sum += static_cast<double>(weight.value.data<float>()[o * in + i]) * static_cast<double>(x[i]);
    y[static_cast<std::size_t>(o)] = sum;
  }
  return y;
}

// The error of a sum of n products of values of order 1 in f32 is n·2^-24; here n <= 32, and a few layers
// follow each other.
constexpr double tolerance = 2e-5;

TEST(Layers, LinearAndLayerNormAreTheirFormulas) {
  ParameterSet set(3);
  const Linear linear(set, "linear", 9, 5), without(set, "without", 9, 5, Linear::Bias::without);
  Norm norm(set, "norm", 9);
  linear.bias->value = set.normal("b", {5}, 1.0f).value;
  norm.weight->value = set.normal("g", {9}, 1.0f).value;
  norm.bias->value = set.normal("s", {9}, 1.0f).value;
  const Tensor x = set.normal("x", {2, 3, 9}, 2.0f).value;
  Context context;
  const Tensor y = linear(context, x).value(), z = without(context, x).value(), n = norm(context, x).value();
  EXPECT_EQ(y.shape(), (Shape{2, 3, 5}));
  EXPECT_FALSE(set.contains("without.bias"));
  EXPECT_THROW(Linear()(context, x), InvalidArgument);
  const Parameter no_bias{"", Tensor::zeros(DType::f32, {5}), Tensor()};
  for (std::int64_t r = 0; r < 6; ++r) {
    const float* from = row_of(x, r, 9);
    const auto expected = naive_linear(*linear.weight, *linear.bias, from);
    const auto plain = naive_linear(*without.weight, no_bias, from);
    double mean = 0.0, variance = 0.0;
    for (int i = 0; i < 9; ++i) mean += static_cast<double>(from[i]) / 9.0;
    for (int i = 0; i < 9; ++i) variance += std::pow(static_cast<double>(from[i]) - mean, 2) / 9.0;
    for (std::size_t o = 0; o < 5; ++o) {
      EXPECT_NEAR(row_of(y, r, 5)[o], expected[o], tolerance);
      EXPECT_NEAR(row_of(z, r, 5)[o], plain[o], tolerance);
    }
    for (int i = 0; i < 9; ++i) {
      const double normal = (static_cast<double>(from[i]) - mean) / std::sqrt(variance + 1e-5);
      const double gamma = norm.weight->value.data<float>()[i], beta = norm.bias->value.data<float>()[i];
      EXPECT_NEAR(row_of(n, r, 9)[i], normal * gamma + beta, tolerance);
    }
  }
}

// PyTorch's cells. GRU: gates in the order reset, update, new; the reset gate acts on R h + b. LSTM: input,
// forget, cell, output.
TEST(Layers, RnnLayerIsThePublishedCell) {
  ParameterSet set(4);
  const std::int64_t in = 6, hidden = 5;
  const std::vector<std::int64_t> lengths{3, 1};
  for (const auto cell : {autograd::Cell::rnn, autograd::Cell::gru, autograd::Cell::lstm}) {
    const std::string name = std::to_string(static_cast<int>(cell));
    const std::int64_t gates = autograd::gate_count(cell), width = autograd::state_count(cell) * hidden;
    const RnnLayer layer(set, name, cell, in, hidden);
    layer.input.bias->value = set.normal(name + ".bi", {gates * hidden}, 1.0f).value;
    layer.bias->value = set.normal(name + ".bh", {gates * hidden}, 1.0f).value;
    const Tensor x = set.normal(name + ".x", {2, 3, in}, 1.0f).value;
    Context context;
    const Tensor states = layer.sequence(context, x, autograd::Direction::forward, Var(), lengths).value();
    for (std::int64_t b = 0; b < 2; ++b) {
      std::vector<float> state(hidden, 0.0f), kept(hidden, 0.0f);
      for (std::int64_t t = 0; t < 3; ++t) {
        const auto gate = naive_linear(*layer.input.weight, *layer.input.bias, row_of(x, b * 3 + t, in));
        const auto memory = naive_linear(*layer.weight, *layer.bias, state.data());
        for (std::size_t i = 0; t < lengths[static_cast<std::size_t>(b)] && i < state.size(); ++i) {
          if (cell == autograd::Cell::rnn) {
            state[i] = static_cast<float>(std::tanh(gate[i] + memory[i]));
            continue;
          }
          if (cell == autograd::Cell::lstm) {
            const auto open = [&](std::size_t n) {
              return 1.0 / (1.0 + std::exp(-gate[n + i] - memory[n + i]));
            };
            kept[i] = static_cast<float>(open(5) * static_cast<double>(kept[i]) +
                                         open(0) * std::tanh(gate[10 + i] + memory[10 + i]));
            state[i] = static_cast<float>(open(15) * std::tanh(static_cast<double>(kept[i])));
            continue;
          }
          const double r = 1.0 / (1.0 + std::exp(-gate[i] - memory[i]));
          const double z = 1.0 / (1.0 + std::exp(-gate[5 + i] - memory[5 + i]));
          const double n = std::tanh(gate[10 + i] + r * memory[10 + i]);
          state[i] = static_cast<float>((1.0 - z) * n + z * static_cast<double>(state[i]));
        }
        for (std::size_t i = 0; i < state.size(); ++i)
          ASSERT_NEAR(row_of(states, b * 3 + t, width)[i], state[i], tolerance) << name << " step " << t;
        if (cell == autograd::Cell::lstm) {
          for (std::size_t i = 0; i < kept.size(); ++i)
            ASSERT_NEAR(row_of(states, b * 3 + t, width)[hidden + static_cast<std::int64_t>(i)], kept[i],
                        tolerance);
        }
      }
    }
  }
}

// softmax(q kᵀ / sqrt(dim)) v for each head, over the first `length` keys.
TEST(Layers, MultiHeadAttentionIsItsFormula) {
  ParameterSet set(5);
  const std::int64_t dim = 8, heads = 2, size = dim / heads, rows = 3, keys = 4;
  const MultiHeadAttention layer(set, "attention", dim,
                                 {.num_query_heads = heads, .spec = {.dropout = {0.5}}});
  const Tensor x = set.normal("x", {2, rows, dim}, 1.0f).value,
               memory = set.normal("m", {2, keys, dim}, 1.0f).value;
  const std::vector<std::int64_t> lengths{4, 2};
  Context context;
  Tensor weights;
  const Tensor y =
      layer(context, x, memory, {.mask = KeyLengths{}, .key_lengths = lengths, .weights = &weights}).value();
  EXPECT_EQ(weights.shape(), (Shape{2, heads, rows, keys}));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < rows; ++t) {
      std::vector<float> mixed(static_cast<std::size_t>(dim), 0.0f);
      const auto q = naive_linear(*layer.query().weight, *layer.query().bias, row_of(x, b * rows + t, dim));
      for (std::int64_t h = 0; h < heads; ++h) {
        std::vector<double> exponentials;
        double sum = 0.0;
        for (std::int64_t j = 0; j < lengths[static_cast<std::size_t>(b)]; ++j) {
          const auto k =
              naive_linear(*layer.key().weight, *layer.key().bias, row_of(memory, b * keys + j, dim));
          double score = 0.0;
          for (std::int64_t i = h * size; i < (h + 1) * size; ++i)
            score += q[static_cast<std::size_t>(i)] * k[static_cast<std::size_t>(i)];
          exponentials.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          sum += exponentials.back();
        }
        for (std::int64_t j = 0; j < keys; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const double weight = at < exponentials.size() ? exponentials[at] / sum : 0.0;
          EXPECT_NEAR(row_of(weights, (b * heads + h) * rows + t, keys)[j], weight, tolerance);
          const auto v =
              naive_linear(*layer.value().weight, *layer.value().bias, row_of(memory, b * keys + j, dim));
          for (auto i = static_cast<std::size_t>(h * size); i < static_cast<std::size_t>((h + 1) * size); ++i)
            mixed[i] += static_cast<float>(weight * v[i]);
        }
      }
      const auto expected = naive_linear(*layer.output().weight, *layer.output().bias, mixed.data());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(row_of(y, b * rows + t, dim)[i], expected[i], tolerance);
    }
  }
}

// Declarations with a start need no telling: the layer learns the argument.
TEST(Layers, AttentionStartsItsArguments) {
  ArgumentDeclaration by = mod_argument("by");
  by.start = ArgumentDeclaration::Start::one;
  const auto shift = make_mod("shift", {by}, [](auto score, Site, auto factor) { return score * factor; });
  ParameterSet set(5);
  const MultiHeadAttention layer(
      set, "a", 8,
      {.num_query_heads = 2, .spec = {.mods = {AlibiBias{}, shift}, .normalizer = ScalableSoftmax{}}});
  const std::vector<double> slopes = alibi_slopes(2);
  const auto expect = [&](const char* name, const Shape& shape, double first, double second) {
    const Parameter* parameter = layer.argument(name);
    ASSERT_TRUE(parameter) << name;
    ASSERT_EQ(parameter->value.shape(), shape) << name;
    EXPECT_FLOAT_EQ(parameter->value.data<float>()[0], static_cast<float>(first)) << name;
    EXPECT_FLOAT_EQ(parameter->value.data<float>()[1], static_cast<float>(second)) << name;
  };
  expect("mods[0].slope", {1, 2, 1, 1}, slopes[0], slopes[1]);
  expect("mods[1].by", {1, 2, 1, 1}, 1.0, 1.0);
  const double c = 1024.0 / std::lgamma(1025.0);
  expect("normalizer.scale", {2}, c, c);
}

// A score that reads no keys has no projection of keys; the rows of its argument are learned.
TEST(Layers, AttentionByLocationHasNoKeys) {
  ParameterSet set(5);
  const Tensor rows = set.normal("rows", {6, 4}, 1.0f).value;
  const MultiHeadAttention layer(
      set, "a", 8, {.num_query_heads = 2, .spec = {.score = Location{}}, .learned = {{"score.W", rows}}});
  EXPECT_FALSE(set.contains("a.k_proj.weight"));
  const Tensor x = set.normal("x", {2, 3, 8}, 1.0f).value, memory = set.normal("m", {2, 5, 8}, 1.0f).value;
  autograd::Tape tape;
  Context context{.tape = &tape};
  Tensor weights;
  const Var y = layer(context, x, memory, {.weights = &weights});
  EXPECT_EQ(y.shape(), (Shape{2, 3, 8}));
  ASSERT_EQ(weights.shape(), (Shape{2, 2, 3, 5}));
  const auto q = naive_linear(*layer.query().weight, *layer.query().bias, row_of(x, 4, 8));  // entry 1, row 1
  double sum = 0.0;
  std::vector<double> exponentials;
  for (std::int64_t j = 0; j < 5; ++j) {
    double score = 0.0;
    for (std::size_t i = 0; i < 4; ++i) score += q[4 + i] * static_cast<double>(row_of(rows, j, 4)[i]);
    exponentials.push_back(std::exp(score));
    sum += exponentials.back();
  }
  for (std::int64_t j = 0; j < 5; ++j)
    EXPECT_NEAR(row_of(weights, (1 * 2 + 1) * 3 + 1, 5)[j], exponentials[static_cast<std::size_t>(j)] / sum,
                tolerance);
  tape.backward(autograd::squared_error(y, Tensor::zeros(DType::f32, {2, 3, 8})));
  const Tensor& gradient = layer.argument("score.W")->gradient;
  EXPECT_NE(gradient.data<float>()[0], 0.0f);
  EXPECT_EQ(gradient.data<float>()[5 * 4], 0.0f);  // a row for a sixth key, which the call does not have
}

// A layer that draws one key learns by REINFORCE: its gradients are those of its parts one after the other.
TEST(Layers, AttentionThatDrawsLearnsByTheAdvantage) {
  ParameterSet set(7);
  const AttentionSpec spec{.normalizer = HardSample{}};
  const MultiHeadAttention layer(set, "a", 6, {.num_query_heads = 2, .spec = spec});
  const Tensor x = set.normal("x", {1, 5, 6}, 1.0f).value, advantage = set.normal("r", {1, 2, 5}, 1.0f).value;
  const auto gradients = [&](const std::function<Var(Context&)>& forward) {
    set.zero_gradients();
    autograd::Tape tape;
    Context context{.tape = &tape};
    tape.backward(autograd::squared_error(forward(context), Tensor::zeros(DType::f32, {1, 5, 6})));
    std::vector<float> all;
    for (const Parameter& parameter : set.all())
      all.insert(all.end(), parameter.gradient.data<float>(),
                 parameter.gradient.data<float>() + parameter.gradient.count());
    return all;
  };
  const auto by_layer = [&](std::uint64_t seed) {
    return gradients([&, seed](Context& context) {
      return layer(context, x, x, {.sample_seed = seed, .advantage = advantage});
    });
  };
  const auto by_parts = gradients([&](Context& context) {
    const auto project = [&](const std::string& part, const Var& rows) {
      return autograd::linear(rows, context.use(set.at("a." + part + "_proj.weight")),
                              context.use(set.at("a." + part + "_proj.bias")));
    };
    const Var drawn = autograd::attention(
        {.spec = spec, .num_query_heads = 2, .num_kv_heads = 2, .sample_seed = 3, .advantage = advantage},
        project("q", x), project("k", x), project("v", x));
    return project("out", drawn);
  });
  EXPECT_EQ(by_layer(3), by_parts);
  EXPECT_NE(by_layer(4), by_parts);
  EXPECT_NE(set.at("a.q_proj.weight").gradient.data<float>()[0], 0.0f);
  EXPECT_THROW(gradients([&](Context& context) { return layer(context, x, x, {.sample_seed = 3}); }),
               InvalidArgument);
}

TEST(Layers, AttentionDropsWeightsInTrainingOnly) {
  ParameterSet set(6);
  const MultiHeadAttention layer(set, "attention", 8, {.num_query_heads = 2, .spec = {.dropout = {0.5}}});
  const Tensor x = set.normal("x", {1, 6, 8}, 1.0f).value;
  const auto value_of = [&](Context context) {
    const Tensor y = layer(context, x, x, {}).value();
    return std::vector<float>(y.data<float>(), y.data<float>() + y.count());
  };
  autograd::Tape tape;
  EXPECT_EQ(value_of({}), value_of({}));
  EXPECT_NE(value_of({}), value_of({.tape = &tape, .dropout_seed = 1}));
  EXPECT_EQ(value_of({.tape = &tape, .dropout_seed = 1}), value_of({.tape = &tape, .dropout_seed = 1}));
  EXPECT_NE(value_of({.tape = &tape, .dropout_seed = 1}), value_of({.tape = &tape, .dropout_seed = 2}));
}

TEST(Positions, AreSinesThenCosines) {
  const Tensor table = sinusoidal_positions(3, 4, 10);
  // The slowest of 10 dimensions rotates by base^-0.8 a step.
  EXPECT_NEAR(sinusoidal_positions(1, 1, 10, 20.0).data<float>()[4], std::sin(std::pow(20.0, -0.8)), 1e-6);
  for (std::int64_t t = 0; t < 4; ++t) {
    for (int i = 0; i < 5; ++i) {
      const double angle = static_cast<double>(3 + t) / std::pow(10000.0, 2.0 * i / 10.0);
      EXPECT_NEAR(row_of(table, t, 10)[i], std::sin(angle), 1e-7);
      EXPECT_NEAR(row_of(table, t, 10)[5 + i], std::cos(angle), 1e-7);
    }
  }
  Tensor x(DType::f32, {2, 4, 10});
  x.fill(2.0);
  const Tensor y = add_positions(x, table).value();
  for (std::int64_t i = 0; i < 80; ++i) EXPECT_EQ(y.data<float>()[i], 2.0f + table.data<float>()[i % 40]);
  EXPECT_THROW(add_positions(x, sinusoidal_positions(0, 5, 10)), InvalidArgument);
  EXPECT_THROW(add_positions(Tensor::zeros(DType::f32, {4, 10}), table), InvalidArgument);
}

// Recorded in bf16, a layer of long texts may compute in bf16, also with learned mods and with dropout. One
// that names a kernel does not. Projections are the identity here, so what they round is known: operands that
// bf16 holds stay as they are, and the output of attention in f32 is rounded once.
TEST(Layers, AttentionIsInBf16WhereItsOptionsAllow) {
  constexpr std::int64_t dim = 32, length = 160;
  const auto rounded_only_by_projections = [&](const AttentionOptions& options) {
    ParameterSet set(3);
    const MultiHeadAttention layer(set, "attention", dim, options);
    for (Parameter& p : set.all()) {
      if (p.value.shape() == Shape{dim, dim}) {
        p.value.fill(0.0f);
        for (std::int64_t i = 0; i < dim; ++i) p.value.data<float>()[i * dim + i] = 1.0f;
      }
    }
    const Tensor x = Tensor::normal({2, length, dim}, 4);
    for (std::int64_t i = 0; i < x.count(); ++i)
      x.data<float>()[i] = static_cast<float>(bfloat16(x.data<float>()[i]));
    Tensor outputs[2];
    for (const auto operands : {autograd::Operands::f32, autograd::Operands::bf16}) {
      autograd::Tape tape(operands);
      Context context{.tape = &tape};
      Parameter input{"x", x, {}};
      const Var recorded = tape.use(input);
      outputs[operands == autograd::Operands::bf16] = layer(context, recorded, recorded, {}).value();
    }
    for (std::int64_t i = 0; i < outputs[0].count(); ++i) {
      if (outputs[1].data<float>()[i] != static_cast<float>(bfloat16(outputs[0].data<float>()[i])))
        return false;
    }
    return true;
  };
  AttentionOptions plain{.num_query_heads = 2, .num_kv_heads = 2}, named = plain, alibi = plain,
                                                                   dropping = plain;
  named.kernel = "reference";
  alibi.spec.mods = {AlibiBias{}};
  dropping.spec.dropout = {0.1};
  for (const AttentionOptions& options : {plain, alibi, dropping})
    EXPECT_EQ(rounded_only_by_projections(options), !cpu_has_avx512_bf16());
  EXPECT_TRUE(rounded_only_by_projections(named));
}

TEST(Layers, ThoseThatWereMadeWithoutSizesAreRefused) {
  Context context;
  const Var x = Tensor::zeros(DType::f32, {1, 2, 4}), row = Tensor::zeros(DType::f32, {1, 4});
  const std::int32_t ids[] = {0};
  KvCache cache({.layers = {{.num_kv_heads = 1, .head_dim = 4}}});
  Sequence sequence = cache.start();
  Sequence* const entries[] = {&sequence};
  expect_refused([&] { Linear()(context, x); }, "weight");
  expect_refused([&] { Norm()(context, x); }, "weight");
  expect_refused([&] { Embedding()(context, ids); }, "table");
  expect_refused([&] { RnnLayer().step(context, row, row); }, "weight");
  expect_refused([&] { RnnLayer().sequence(context, x, autograd::Direction::forward, {}, {}); }, "weight");
  expect_refused([&] { MultiHeadAttention()(context, x, x, {}); }, "options");
  expect_refused([&] { MultiHeadAttention().append(context, x, {cache, 0, entries}); }, "options");
  expect_refused([&] { MultiHeadAttention().attend_cached(context, x, {}, {}); }, "options");
  expect_refused([&] { AttentionPooling()(context, x, {}); }, "query");
  expect_refused([&] { Resampler()(context, x, {}); }, "options");
  expect_refused([&] { RecurrentMixer()(context, x, {}); }, "options");
  const TransformerStack stack;
  expect_refused([&] { stack(context, x, {}); }, "spec");
  expect_refused([&] { stack.enter(context, x); }, "spec");
  expect_refused([&] { stack.extend(context, x, {.cache = cache, .entries = entries}, {}); }, "spec");
  TransformerStack::Cache none;
  expect_refused([&] { stack.extend(context, x, none, {}); }, "spec");
  expect_refused([] { scale_score({nullptr}, 4); }, "matrices");
  ParameterSet set(1);
  Linear linear(set, "l", 4, 4);
  const Tensor before = linear.weight->value.clone();
  expect_refused([&] { scale_score({linear.weight, nullptr}, 4); }, "matrices");
  EXPECT_EQ(largest_difference(linear.weight->value, before), 0.0f);
}

}  // namespace
}  // namespace fovea::nn

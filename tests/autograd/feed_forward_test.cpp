// Ops of several linear layers: with packed weights they have the bits of the single ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autograd/activation_rows.h"
#include "autograd/drawn.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

LinearWeights layer(std::int64_t in, std::int64_t out, std::uint64_t seed, WeightType type,
                    bool bias = true) {
  const Tensor weight = drawn({out, in}, seed);
  return {.weight = Var(weight, std::make_shared<const PackedMatrix>(weight, type)),
          .bias = bias ? Var(drawn({out}, seed + 1)) : Var()};
}

void expect_same_bits(const Var& a, const Var& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.value().raw(), b.value().raw(),
                        static_cast<std::size_t>(a.value().count()) * sizeof(float)),
            0);
}

struct Sizes {
  std::int64_t rows, in, inner, out;
};
// Sizes around those of pairs, words of four bytes, panels, tiles and blocks; inner rows with an odd end, and
// of whole KiB.
const Sizes sizes[] = {{1, 5, 33, 7},      {1, 300, 515, 200}, {3, 1, 1, 1},      {13, 64, 129, 33},
                       {200, 70, 257, 40}, {401, 36, 130, 31}, {25, 10, 1024, 6}, {0, 8, 16, 4}};

class OfWeights : public testing::TestWithParam<WeightType> {};

TEST_P(OfWeights, LayersOfTheSameRowsHaveTheBitsOfEachAlone) {
  for (const auto& [rows, in, inner, out] : sizes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(in) + " to " + std::to_string(inner));
    const Var x(drawn({rows, 1, in}, 1));
    const LinearWeights layers[] = {layer(in, inner, 2, GetParam()), layer(in, out, 4, GetParam(), false),
                                    layer(in, 2 * out, 6, GetParam())};
    const KeptVector<Var> all = linears(x, layers);
    ASSERT_EQ(all.size(), 3u);
    for (std::size_t n = 0; n < 3; ++n) expect_same_bits(all[n], linear(x, layers[n].weight, layers[n].bias));
  }
}

TEST_P(OfWeights, LayersInBf16AreRoundedOnce) {
  for (const auto& [rows, in, inner, out] : sizes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(in) + " to " + std::to_string(inner));
    const Var x(drawn({rows, 1, in}, 1));
    const LinearWeights layers[] = {layer(in, inner, 2, GetParam()), layer(in, out, 4, GetParam(), false)};
    const KeptVector<Var> rounded = linears_in_bf16(x, layers), all = linears(x, layers);
    ASSERT_EQ(rounded.size(), 2u);
    for (std::size_t n = 0; n < 2; ++n) {
      ASSERT_EQ(rounded[n].value().dtype(), DType::bf16);
      ASSERT_EQ(rounded[n].shape(), all[n].shape());
      for (std::int64_t i = 0; i < all[n].value().count(); ++i)
        ASSERT_EQ(rounded[n].value().data<bfloat16>()[i].bits,
                  bfloat16(all[n].value().data<float>()[i]).bits);
    }
  }
  const LinearWeights unpacked[] = {{.weight = Var(drawn({3, 8}, 6))}};
  EXPECT_THROW(linears_in_bf16(Var(drawn({5, 8}, 1)), unpacked), InvalidArgument);
  EXPECT_THROW(linear(Tensor(DType::bf16, {5, 8}), unpacked[0].weight, {}), InvalidArgument);
}

// Products with weights of bf16 read rows of bf16 as they are: the bits are those of the rows in f32, which
// the products round.
TEST_P(OfWeights, RowsOfBf16HaveTheBitsOfRowsThatProductsRound) {
  for (const auto& [rows, in, inner, out] : sizes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(inner) + " to " + std::to_string(out));
    const Var x(drawn({rows, 1, inner}, 1)), narrow = rounded(x);
    ASSERT_EQ(narrow.value().dtype(), DType::bf16);
    const LinearWeights layers[] = {layer(inner, out, 2, GetParam()), layer(inner, in, 4, GetParam(), false)};
    const FeedForwardWeights parts[] = {{.first = layers[0], .second = layer(out, in, 6, GetParam())},
                                        {.first = layers[0],
                                         .second = layer(out, in, 6, GetParam()),
                                         .gate = layer(inner, out, 8, GetParam())}};
    if (GetParam() != WeightType::bf16) {
      EXPECT_THROW(linear(narrow, layers[0].weight, layers[0].bias), InvalidArgument);
      EXPECT_THROW(linears(narrow, layers), InvalidArgument);
      EXPECT_THROW(linears_in_bf16(narrow, layers), InvalidArgument);
      for (const FeedForwardWeights& part : parts)
        EXPECT_THROW(feed_forward(narrow, part, Activation::gelu), InvalidArgument);
      continue;
    }
    expect_same_bits(linear(narrow, layers[0].weight, layers[0].bias),
                     linear(x, layers[0].weight, layers[0].bias));
    const KeptVector<Var> got = linears(narrow, layers), want = linears(x, layers),
                          got_in_bf16 = linears_in_bf16(narrow, layers),
                          want_in_bf16 = linears_in_bf16(x, layers);
    for (std::size_t n = 0; n < 2; ++n) {
      expect_same_bits(got[n], want[n]);
      EXPECT_EQ(std::memcmp(got_in_bf16[n].value().raw(), want_in_bf16[n].value().raw(),
                            want_in_bf16[n].value().bytes()),
                0);
    }
    for (const FeedForwardWeights& part : parts)
      expect_same_bits(feed_forward(narrow, part, Activation::gelu), feed_forward(x, part, Activation::gelu));
  }
  Tape tape;
  Parameter recorded = {"x", drawn({2, 4}, 1), Tensor::zeros(DType::f32, {2, 4})};
  EXPECT_THROW(rounded(tape.use(recorded)), InvalidArgument);
}

// What a part with these weights makes of its inner rows: products of bf16 have activations of their own.
Var activated(Activation activation, const Var& x, WeightType type) {
  Tensor y(DType::f32, x.shape());
  (type == WeightType::bf16 ? short_value_of : value_of)(activation)(x.value().data<float>(), y.count(),
                                                                     y.data<float>());
  return y;
}

TEST_P(OfWeights, AFeedForwardPartHasTheBitsOfItsOps) {
  for (const auto& [rows, in, inner, out] : sizes) {
    const Var x(drawn({rows, in}, 1));
    const FeedForwardWeights weights{.first = layer(in, inner, 2, GetParam()),
                                     .second = layer(inner, out, 4, GetParam()),
                                     .gate = layer(in, inner, 6, GetParam(), false)};
    FeedForwardWeights plain = weights;
    plain.gate = {};
    const auto apply = [](const Var& rows_of, const LinearWeights& one) {
      return linear(rows_of, one.weight, one.bias);
    };
    for (const Activation activation :
         {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::quick_gelu,
          Activation::tanh, Activation::relu_squared}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(in) + " to " + std::to_string(inner) +
                   ", activation " + std::to_string(static_cast<int>(activation)));
      const Var first = apply(x, weights.first);
      expect_same_bits(feed_forward(x, plain, activation),
                       apply(activated(activation, first, GetParam()), weights.second));
      const Var gate = activated(activation, apply(x, weights.gate), GetParam());
      expect_same_bits(feed_forward(x, weights, activation), apply(multiply(gate, first), weights.second));
    }
  }
}

// The two that products of bf16 read have the error that activation_rows.h states, far into both tails, and
// the same bits in any place. Others are those of the ops.
TEST(ShortActivations, AreNearTheirDefinitions) {
  std::vector<float> x;
  for (int i = -160000; i <= 160000; ++i) x.push_back(static_cast<float>(i) / 8000.0f);
  for (const float far : {-std::numeric_limits<float>::infinity(), -3e38f, -1e4f, 1e-38f, -1e-38f, -0.0f,
                          1e4f, 3e38f, std::numeric_limits<float>::infinity()})
    x.push_back(far);
  std::vector<float> y(x.size());
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh}) {
    const ActivationFunction function = short_value_of(activation);
    function(x.data(), std::ssize(x), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double at = x[i], u = std::sqrt(2.0 / M_PI) * (at + 0.044715 * at * at * at);
      const double factor = activation == Activation::gelu ? 0.5 * std::erfc(-at / std::sqrt(2.0))
                                                           : 1.0 / (1.0 + std::exp(-2.0 * u));
      const double expected = factor == 0.0 ? 0.0 : at * factor;
      if (std::isinf(expected))
        ASSERT_EQ(y[i], x[i]);
      else
        ASSERT_NEAR(y[i], expected, 1e-4 * std::abs(expected) + 2.5e-7) << at;
      float alone = 0.0f;
      function(&x[i], 1, &alone);
      ASSERT_EQ(std::memcmp(&alone, &y[i], sizeof alone), 0) << at;
    }
    for (const float none :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
      const std::vector<float> several(33, none);  // whole vectors and single numbers
      function(several.data(), std::ssize(several), y.data());
      EXPECT_TRUE(std::all_of(y.begin(), y.begin() + 33, [](float of) { return std::isnan(of); }));
    }
  }
  EXPECT_EQ(short_value_of(Activation::silu), value_of(Activation::silu));
}

// A matrix that was read packed has a shape and no elements.
TEST_P(OfWeights, AGateWithoutElementsIsAGate) {
  const Var x(drawn({3, 8}, 1));
  const FeedForwardWeights weights{.first = layer(8, 12, 2, GetParam()),
                                   .second = layer(12, 8, 4, GetParam()),
                                   .gate = layer(8, 12, 6, GetParam())};
  FeedForwardWeights read = weights;
  read.gate.weight = Var(Tensor::without_elements(DType::f32, {12, 8}),
                         std::make_shared<const PackedMatrix>(weights.gate.weight.value(), GetParam()));
  expect_same_bits(feed_forward(x, read, Activation::silu), feed_forward(x, weights, Activation::silu));
}

TEST_P(OfWeights, ARowHasTheSameBitsInAnyBatchAndForAnyNumberOfThreads) {
  constexpr std::int64_t rows = 401, in = 70;
  const Tensor x = drawn({rows, in}, 1);
  const FeedForwardWeights weights{.first = layer(in, 300, 2, GetParam()),
                                   .second = layer(300, 50, 4, GetParam()),
                                   .gate = layer(in, 300, 6, GetParam())};
  const Tensor all = feed_forward(Var(x), weights, Activation::silu).value();
  for (const std::int64_t first : {0, 1, 100, 400}) {
    const Tensor one = Tensor::copy_of(x.view().slice(0, first, 1));
    EXPECT_EQ(std::memcmp(feed_forward(Var(one), weights, Activation::silu).value().raw(),
                          all.data<float>() + first * 50, 50 * sizeof(float)),
              0);
  }
  for (const int threads : {1, 3}) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    expect_same_bits(feed_forward(Var(x), weights, Activation::silu), Var(all));
    set_default_executor(nullptr);
  }
}

TEST_P(OfWeights, SizesThatDoNotFitAreRefused) {
  const Var x(drawn({2, 8}, 1));
  const LinearWeights other[] = {layer(8, 4, 2, GetParam()), layer(7, 4, 2, GetParam())};
  EXPECT_THROW(linears(x, other), InvalidArgument);
  const LinearWeights first = layer(8, 12, 2, GetParam()), second = layer(12, 8, 4, GetParam());
  EXPECT_THROW(feed_forward(x, {.first = second, .second = first}, Activation::relu), InvalidArgument);
  EXPECT_THROW(feed_forward(x, {.first = first, .second = first}, Activation::relu), InvalidArgument);
  const FeedForwardWeights unlike{.first = first, .second = second, .gate = layer(8, 13, 6, GetParam())};
  EXPECT_THROW(feed_forward(x, unlike, Activation::relu), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Types, OfWeights,
                         testing::Values(WeightType::f32, WeightType::bf16, WeightType::int8),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// A matrix may be packed in another type than its neighbours, or not at all.
TEST(FeedForward, LayersThatAreNotPackedAlikeAreComputedOneByOne) {
  const Var x(drawn({5, 8}, 1));
  const LinearWeights mixed[] = {layer(8, 12, 2, WeightType::bf16),
                                 layer(8, 12, 4, WeightType::int8),
                                 {.weight = Var(drawn({3, 8}, 6))}};
  const KeptVector<Var> all = linears(x, mixed);
  for (std::size_t n = 0; n < 3; ++n) expect_same_bits(all[n], linear(x, mixed[n].weight, mixed[n].bias));
  const FeedForwardWeights part{.first = mixed[0], .second = layer(12, 8, 8, WeightType::f32)};
  expect_same_bits(feed_forward(x, part, Activation::relu),
                   linear(activate(Activation::relu, all[0]), part.second.weight, part.second.bias));
}

}  // namespace
}  // namespace fovea::autograd

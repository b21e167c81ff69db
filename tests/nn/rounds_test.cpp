// Stacks whose blocks run several times with the same weights, behind rows of another width.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "fovea/attention/masks.h"
#include "fovea/nn/blocks.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t kDim = 12, kRows = 7;

StackSpec two_blocks() {
  return stack_of({.layers = 2, .dim = kDim, .feed_forward = 10, .heads = 3});
}

// The first row of a stack has the position that its spec names, and a call's rows stand behind it.
TEST(SinesOfAStack, BeginWhereItsSpecSays) {
  StackSpec spec = two_blocks(), shifted = spec;
  spec.positions = SinusoidalPositions{.base = 500.0};
  shifted.positions = SinusoidalPositions{.base = 500.0, .first = 2};
  ParameterSet set(3), same(3);
  const TransformerStack at_0(set, "s", spec), at_2(same, "s", shifted);
  Context context;
  const Tensor x = Tensor::normal({1, 4, spec.dim}, 7), from_5 = at_0.enter(context, x, 5).value(),
               from_3 = at_2.enter(context, x, 3).value();
  for (std::int64_t i = 0; i < x.count(); ++i)
    EXPECT_EQ(from_3.data<float>()[i], from_5.data<float>()[i]) << i;
}

// Two rounds of two blocks are four blocks, the last two of which have the weights of the first two.
TEST(Rounds, RunTheSameBlocksAgain) {
  StackSpec again = two_blocks();
  again.rounds = 2;
  again.input_dim = 5;
  again.positions = SinusoidalPositions{};
  StackSpec longer = again;
  longer.rounds = 1;
  longer.blocks.insert(longer.blocks.end(), again.blocks.begin(), again.blocks.end());
  ParameterSet set(3), copies(4);
  const TransformerStack two(set, "s", again), four(copies, "s", longer);
  ASSERT_EQ(two.size(), 4u);
  EXPECT_EQ(again.layers(), 4);
  EXPECT_EQ(two.cache_layers().size(), 4u);
  for (Parameter& parameter : copies.all()) {
    std::string name = parameter.name;
    for (const auto& [later, first] :
         {std::pair{"layers.2", "layers.0"}, std::pair{"layers.3", "layers.1"}}) {
      if (const std::size_t at = name.find(later); at != std::string::npos) name.replace(at, 8, first);
    }
    parameter.value = set.at(name).value;
  }
  EXPECT_LT(set.all().size(), copies.all().size());
  const Tensor x = set.normal("x", {2, kRows, 5}, 1.0f).value;
  Context context;
  const Tensor a = two(context, two.enter(context, x), {.mask = Causal{}}).value(),
               b = four(context, four.enter(context, x), {.mask = Causal{}}).value();
  ASSERT_EQ(a.shape(), Shape({2, kRows, kDim}));
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0);
}

TEST(Rounds, WhatCannotBeIsRefused) {
  const auto refusal = [](const std::function<void(StackSpec&)>& change) -> std::string {
    StackSpec spec = two_blocks();
    change(spec);
    ParameterSet set(1);
    try {
      TransformerStack(set, "s", spec);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return "";
  };
  EXPECT_EQ(refusal([](StackSpec& spec) { spec.rounds = 0; }), "spec.rounds");
  EXPECT_EQ(refusal([](StackSpec& spec) { spec.input_dim = 0; }), "spec.input_dim");
  EXPECT_EQ(refusal([](StackSpec& spec) {
              spec.rounds = 2;
              spec.blocks[0].merging = TokenMerging{.share = 0.25};
            }),
            "spec.rounds");
}

}  // namespace
}  // namespace fovea::nn

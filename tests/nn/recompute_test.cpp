// Blocks that keep their input alone and compute the rest again in backward.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "fovea/attention/masks.h"
#include "fovea/core/memory.h"
#include "fovea/nn/transformer.h"
#include "nn/mixer_kinds.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

// The output and the gradients of all parameters, the inputs of the stack among them.
std::map<std::string, Tensor> step(ParameterSet& set, const TransformerStack& stack, Activations activations,
                                   TransformerStack::Call call, bool reads_memory) {
  set.zero_gradients();
  autograd::Tape tape;
  Context context{.tape = &tape, .dropout_seed = 5, .activations = activations};
  std::map<std::string, Tensor> result;
  {
    // Whoever calls may release these before backward runs.
    const std::vector<std::int64_t> lengths(call.lengths.begin(), call.lengths.end()),
        memory_lengths(call.memory_lengths.begin(), call.memory_lengths.end());
    call.lengths = lengths;
    call.memory_lengths = memory_lengths;
    if (reads_memory) call.memory = context.use(set.at("memory"));
    Var y = stack(context, context.use(set.at("x")), call);
    y = context.dropout(y, 0.5f);  // reads the stream behind that of the blocks
    result.emplace("y", y.value().clone());
    const std::int64_t count = y.value().count();
    const Var loss = autograd::linear(reshape(y, {1, count}), Var(Tensor::normal({1, count}, 5)), Var());
    call = {};
    tape.backward(loss);
  }
  for (const Parameter& parameter : set.all()) result.emplace(parameter.name, parameter.gradient.clone());
  return result;
}

void expect_same_bits(ParameterSet& set, const TransformerStack& stack, const TransformerStack::Call& call,
                      bool reads_memory = false) {
  disturb(set);
  const auto kept = step(set, stack, Activations::kept, call, reads_memory);
  const auto again = step(set, stack, Activations::recomputed, call, reads_memory);
  for (const auto& [name, tensor] : kept) {
    const Tensor& other = again.at(name);
    EXPECT_EQ(
        std::memcmp(tensor.raw(), other.raw(), static_cast<std::size_t>(tensor.count()) * sizeof(float)), 0)
        << name;
  }
}

StackSpec dropping(std::int64_t dim, NormPlace norm, TransformerOptions::CrossAttention cross) {
  return stack_of({.layers = 3,
                   .dim = dim,
                   .feed_forward = 16,
                   .heads = 2,
                   .cross_attention = cross,
                   .norm = norm,
                   .dropout = 0.3f,
                   .attention_dropout = 0.2f});
}

class RecomputedBlocks : public ::testing::TestWithParam<NormPlace> {};
INSTANTIATE_TEST_SUITE_P(Norms, RecomputedBlocks,
                         ::testing::Values(NormPlace::pre, NormPlace::post, NormPlace::sandwich,
                                           NormPlace::end, NormPlace::none));

TEST_P(RecomputedBlocks, HaveTheSameBitsWithDropoutAndAMemory) {
  ParameterSet set(3);
  const TransformerStack stack(set, "stack",
                               dropping(8, GetParam(), TransformerOptions::CrossAttention::with));
  set.normal("x", {2, 7, 8}, 1.0f);
  set.normal("memory", {2, 5, 8}, 1.0f);
  const std::vector<std::int64_t> lengths{7, 4}, memory_lengths{5, 3};
  expect_same_bits(set, stack,
                   {.mask = Causal{} & KeyLengths{},
                    .lengths = lengths,
                    .memory_mask = KeyLengths{},
                    .memory_lengths = memory_lengths},
                   true);
}

TEST(RecomputedBlock, HasTheSameBitsWithPartsSideBySide) {
  for (const NormPlace norm : {NormPlace::none, NormPlace::pre}) {
    ParameterSet set(3);
    StackSpec spec = dropping(8, NormPlace::pre, TransformerOptions::CrossAttention::without);
    for (BlockSpec& block : spec.blocks) {
      block.parts = BlockSpec::Parts::side_by_side;
      block.mlp_norm = norm;
    }
    const TransformerStack stack(set, "stack", spec);
    set.normal("x", {2, 7, 8}, 1.0f);
    expect_same_bits(set, stack, {.mask = Causal{}});
  }
}

TEST(RecomputedBlock, HasTheSameBitsWithSharedArgumentsOfAttention) {
  ParameterSet set(3);
  StackSpec spec = dropping(8, NormPlace::pre, TransformerOptions::CrossAttention::without);
  add_alibi(spec, Sees::the_past);
  spec.arguments = StackSpec::Arguments::of_the_first;
  const TransformerStack stack(set, "stack", spec);
  set.normal("x", {2, 7, 8}, 1.0f);
  expect_same_bits(set, stack, {.mask = Causal{}});
}

class RecomputedMixers : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, RecomputedMixers, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(RecomputedMixers, HaveTheSameBitsInBothDirections) {
  for (const Sees sees : {Sees::the_past, Sees::both_sides}) {
    ParameterSet set(3);
    StackSpec spec = dropping(kind_dim, NormPlace::pre, TransformerOptions::CrossAttention::without);
    for (BlockSpec& block : spec.blocks) {
      block.mixer = GetParam().options;
      block.recurrence_sees = sees;
    }
    const TransformerStack stack(set, "stack", spec);
    set.normal("x", {2, 7, kind_dim}, 1.0f);
    const std::vector<std::int64_t> lengths{7, 4};
    if (sees == Sees::the_past)
      expect_same_bits(set, stack, {.mask = Causal{}});
    else
      expect_same_bits(set, stack, {.mask = KeyLengths{}, .lengths = lengths});
  }
}

// Rows of 128 KiB, so that every tensor of a block is a large one.
TEST(RecomputedBlock, KeepsItsInputAlone) {
  constexpr std::int64_t blocks = 6, dim = 64, rows = 512, bytes = rows * dim * 4;
  ParameterSet set(3);
  const TransformerStack stack(set, "stack", stack_of({.layers = blocks, .dim = dim, .heads = 4}));
  const Var x(Tensor::normal({1, rows, dim}, 1));
  const auto taken = [&](Activations activations) {
    autograd::Tape tape;
    Context context{.tape = &tape, .activations = activations};
    const std::size_t before = tensor_memory().used;
    const Var y = stack(context, x, {.mask = Causal{}});
    return static_cast<std::int64_t>(tensor_memory().used - before);
  };
  const std::int64_t kept = taken(Activations::kept), recomputed = taken(Activations::recomputed);
  // The outputs of the blocks, and the final norm with what it keeps.
  EXPECT_LE(recomputed, (blocks + 3) * bytes);
  EXPECT_GE(kept, blocks * 8 * bytes) << "a block keeps its norms, projections and its inner rows";
}

TEST(RecomputedBlock, GivesWeightsOnce) {
  ParameterSet set(3);
  const TransformerStack stack(set, "stack",
                               dropping(8, NormPlace::pre, TransformerOptions::CrossAttention::without));
  set.normal("x", {1, 4, 8}, 1.0f);
  int asked = 0;
  std::vector<Tensor> weights(3);
  step(set, stack, Activations::recomputed,
       {.mask = Causal{},
        .weights =
            [&](std::string_view, std::size_t layer) {
              ++asked;
              return &weights[layer];
            }},
       false);
  EXPECT_EQ(asked, 3);
  for (const Tensor& of_layer : weights) EXPECT_EQ(of_layer.shape(), Shape({1, 2, 4, 4}));
}

TEST(RecomputedBlock, IsRefusedWhereABlockReadsWhatIsMadeOutsideIt) {
  ParameterSet set(3);
  StackSpec spec = dropping(8, NormPlace::pre, TransformerOptions::CrossAttention::without);
  const TransformerStack plain(set, "plain", spec);
  for (BlockSpec& block : spec.blocks) {
    block.merging = TokenMerging{};
    std::get<AttentionOptions>(block.mixer).spec.dropout.rate = 0.0;
  }
  const TransformerStack merging(set, "merging", spec);
  const Var x(Tensor::normal({1, 4, 8}, 1));
  const auto run = [&](const TransformerStack& stack, const TransformerStack::Call& call) {
    autograd::Tape tape;
    Context context{.tape = &tape, .activations = Activations::recomputed};
    stack(context, x, call);
  };
  EXPECT_THROW(run(merging, {}), InvalidArgument);
  EXPECT_THROW(
      run(plain,
          {.arguments = [](auto, auto, const Var&) { return std::vector<autograd::AttentionArgument>(); }}),
      InvalidArgument);
  EXPECT_THROW(run(plain, {.advantage = [](auto, auto) { return Tensor(); }}), InvalidArgument);
  Context inference{.activations = Activations::recomputed};
  EXPECT_NO_THROW(merging(inference, x, {}));
}

}  // namespace
}  // namespace fovea::nn

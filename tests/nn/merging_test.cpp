// Stacks whose blocks merge rows: gradients, the cases in which nothing is lost, padded batches, and what is
// refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "fovea/attention/masks.h"
#include "fovea/nn/transformer.h"
#include "nn/compare.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t dim = 8, rows = 11;

StackSpec spec_of(const std::vector<double>& shares) {
  StackSpec spec = stack_of({.layers = std::ssize(shares), .dim = dim, .feed_forward = 12, .heads = 2});
  for (std::size_t n = 0; n < shares.size(); ++n) {
    // Differences across a ReLU's corner are no derivatives.
    spec.blocks[n].mlp = PlainMlp{.inner = 12, .activation = autograd::Activation::gelu};
    if (shares[n] >= 0.0) spec.blocks[n].merging = TokenMerging{.share = shares[n]};
  }
  return spec;
}

constexpr double unmerged = -1.0;

struct Stack {
  ParameterSet set{3};
  TransformerStack stack;
  Context context;

  explicit Stack(const std::vector<double>& shares) : stack(set, "stack", spec_of(shares)) { disturb(set); }
  Tensor operator()(const Tensor& x, const TransformerStack::Call& call = {}) {
    return stack(context, x, call).value();
  }
};

// The step of the differences changes no choice of rows: cosines of random keys are not that near.
TEST(TokenMerging, HasTheGradientOfEveryParameterAndOfItsInput) {
  Stack merging({0.25, 0.5, unmerged});
  Parameter& input = merging.set.normal("x", {2, rows, dim}, 1.0f);
  const std::vector<std::int64_t> lengths{rows, 6};
  expect_gradients(merging.set, [&](Context& context) {
    return merging.stack(context, context.use(input), {.mask = KeyLengths{}, .lengths = lengths});
  });
}

TEST(TokenMerging, OfNoRowsIsTheStackWithout) {
  Stack full({unmerged, unmerged}), merging({0.0, 0.0});
  const Tensor x = Tensor::normal({2, rows, dim}, 1);
  // The scores of the second block have a bias of 0 more.
  EXPECT_LT(largest_difference(full(x), merging(x)), 1e-5f);
}

// Rows 0 and 1 are equal, 2 and 3, ... Their keys are as well, so they are merged, and nothing is lost.
TEST(TokenMerging, OfEqualRowsLosesNothing) {
  Stack full({unmerged, unmerged, unmerged}), merging({0.5, unmerged, unmerged});
  const Tensor half = Tensor::normal({2, 6, dim}, 1);
  std::vector<std::int64_t> twice;
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 12; ++i) twice.push_back(i / 2);
  }
  const Tensor x = autograd::gather_rows(half, twice, 12).value();
  std::vector<Tensor> weights(3);
  const Tensor y = merging(x, {.weights = [&](std::string_view, std::size_t n) { return &weights[n]; }});
  EXPECT_LT(largest_difference(full(x), y), 1e-5f);
  EXPECT_EQ(weights[0].shape(), (Shape{2, 2, 12, 12}));
  EXPECT_EQ(weights[2].shape(), (Shape{2, 2, 6, 6}));
}

// Rows 0 and 1 are equal, and no other rows. The merged row counts twice: without its size the others would
// have too much weight.
TEST(TokenMerging, CountsAMergedRowAsOftenAsItsRows) {
  Stack full({unmerged, unmerged}), merging({0.1, unmerged});
  Tensor x = Tensor::normal({1, rows, dim}, 1);
  std::copy_n(x.data<float>(), dim, x.data<float>() + dim);
  EXPECT_LT(largest_difference(full(x), merging(x)), 1e-5f);
}

TEST(TokenMerging, ReadsAPaddedEntryAsItIsAlone) {
  Stack merging({0.3, 0.5, unmerged});
  Tensor x = Tensor::normal({2, rows, dim}, 5);
  for (std::int64_t i = 6 * dim; i < rows * dim; ++i)
    x.data<float>()[rows * dim + i] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int64_t> lengths{rows, 6};
  const Tensor y = merging(x, {.mask = KeyLengths{}, .lengths = lengths});
  for (std::int64_t b = 0; b < 2; ++b) {
    const auto entry = [&](const Tensor& all) {
      return autograd::slice(autograd::slice(all, 0, b, 1), 1, 0, lengths[static_cast<std::size_t>(b)]);
    };
    EXPECT_LT(largest_difference(entry(y).value(), merging(entry(x).value())), 1e-5f);
  }
}

TEST(TokenMerging, RefusesWhatReadsPositions) {
  ParameterSet set(1);
  const auto refused = [&](const StackSpec& spec, const std::string& got) {
    try {
      TransformerStack(set, "refused", spec);
      ADD_FAILURE() << got << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(error.got().starts_with(got)) << error.what();
    }
  };
  StackSpec spec = spec_of({0.5, unmerged});
  add_alibi(spec, Sees::both_sides);
  refused(spec, "block 1: mods[0] = ");
  spec = spec_of({0.5, unmerged});
  add_rotary(spec, 16);
  refused(spec, "block 1: rope");
  spec = spec_of({0.5, unmerged});
  std::get<AttentionOptions>(spec.blocks[1].mixer).spec.mask = Causal{};
  refused(spec, "block 1: mask = " + to_string(Mask(Causal{})));
  spec = spec_of({0.5, unmerged});
  spec.blocks[1].mixer = LinearAttentionOptions{};
  refused(spec, "block 1: linear");
  spec.blocks[1].mixer = AttentionOptions{.compression = MeanRows{}};
  refused(spec, "block 1: mean");
  refused(spec_of({0.6}), "block 0: merging.share = 0.6");
  Stack merging({0.5});
  const Tensor x = Tensor::normal({1, rows, dim}, 1);
  const std::vector<std::int64_t> starts{0, 4, rows}, lengths{rows};
  EXPECT_THROW(merging(x, {.mask = Causal{}}), InvalidArgument);
  EXPECT_THROW(merging(x, {.starts = starts}), InvalidArgument);
  EXPECT_THROW(merging(x, {.lengths = lengths}), InvalidArgument);
  EXPECT_THROW(merging.stack.start(merging.context), InvalidArgument);
}

}  // namespace
}  // namespace fovea::nn

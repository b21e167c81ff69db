// Recurrences that see both sides: the second one reads from right to left.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "fovea/attention/masks.h"
#include "fovea/nn/transformer.h"
#include "nn/mixer_kinds.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t dim = kind_dim;

StackSpec stack_by(const RecurrentOptions& options, std::int64_t layers) {
  StackSpec spec = stack_of({.layers = layers, .dim = dim, .feed_forward = 4, .heads = 2});
  for (BlockSpec& block : spec.blocks) {
    block.mixer = options;
    block.recurrence_sees = Sees::both_sides;
    block.mlp = PlainMlp{.inner = 4, .activation = autograd::Activation::silu};  // without corners
  }
  return spec;
}

class BothSides : public ::testing::TestWithParam<Kind> {
 protected:
  BothSides() : stack_(set_, "stack", stack_by(GetParam().options, 2)) { disturb(set_); }
  Tensor run(const Tensor& x, const TransformerStack::Call& call) const {
    Context context;
    return stack_(context, Var(x), call).value();
  }

  ParameterSet set_{3};
  TransformerStack stack_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, BothSides, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(BothSides, HaveTheGradientOfEveryParameterAndOfTheirInput) {
  ParameterSet set(4);  // at 3 a key of RWKV-7 is so small that its length bends within the step
  const TransformerStack stack(set, "stack", stack_by(GetParam().options, 1));
  Parameter& input = set.normal("x", {2, 19, dim}, 1.0f);
  disturb(set);
  const std::vector<std::int64_t> lengths{19, 6};
  expect_gradients(set, [&](Context& context) {
    return stack(context, context.use(input), {.mask = KeyLengths{}, .lengths = lengths});
  });
}

TEST_P(BothSides, EveryRowDependsOnEveryOther) {
  Tensor x = Tensor::normal({1, 12, dim}, 9);
  const Tensor y = run(x, {});
  for (const std::int64_t changed : {0, 11}) {
    Tensor other = x.clone();
    other.data<float>()[changed * dim + 3] += 1.0f;
    const Tensor z = run(other, {});
    for (std::int64_t row = 0; row < 12; ++row) {
      float difference = 0.0f;
      for (std::int64_t d = 0; d < dim; ++d)
        difference =
            std::max(difference, std::abs(y.data<float>()[row * dim + d] - z.data<float>()[row * dim + d]));
      EXPECT_GT(difference, 1e-7f) << "row " << row << " by row " << changed;
    }
  }
}

// With the parameters of the two ways exchanged, a sequence from its last row to its first gives the same
// rows.
TEST_P(BothSides, AreTheSameFromTheOtherSide) {
  const Tensor x = Tensor::normal({2, 12, dim}, 9);
  Tensor turned(DType::f32, x.shape());
  const auto turn = [](const Tensor& from, Tensor& to) {
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t row = 0; row < 12; ++row)
        std::copy_n(from.data<float>() + (b * 12 + row) * dim, dim,
                    to.data<float>() + (b * 12 + 11 - row) * dim);
    }
  };
  turn(x, turned);
  const Tensor y = run(x, {});
  for (Parameter& parameter : set_.all()) {
    const std::size_t at = parameter.name.find(".mixer.");
    if (at == std::string::npos) continue;
    std::string other = parameter.name;
    other.replace(at, 7, ".mixer_back.");
    std::swap(parameter.value, set_.at(other).value);
  }
  Tensor z(DType::f32, x.shape());
  turn(run(turned, {}), z);
  for (std::int64_t i = 0; i < y.count(); ++i)
    EXPECT_NEAR(y.data<float>()[i], z.data<float>()[i], 1e-5f) << i;
}

TEST_P(BothSides, PaddingIsNotReadAndPackedSequencesAreAlone) {
  const std::int64_t rows[] = {7, 12, 3};
  Tensor padded = Tensor::normal({3, 12, dim}, 9), packed(DType::f32, {1, 22, dim});
  std::vector<std::int64_t> lengths(rows, rows + 3), starts{0};
  for (std::int64_t b = 0; b < 3; ++b) {
    std::copy_n(padded.data<float>() + b * 12 * dim, rows[b] * dim,
                packed.data<float>() + starts.back() * dim);
    starts.push_back(starts.back() + rows[b]);
  }
  const Tensor y = run(padded, {.mask = KeyLengths{}, .lengths = lengths}),
               z = run(packed, {.starts = starts});
  // What the padding holds changes no bit of the rows beside it.
  const Tensor other = padded.clone();
  for (std::int64_t b = 0; b < 3; ++b)
    std::fill_n(other.data<float>() + (b * 12 + rows[b]) * dim, (12 - rows[b]) * dim, 1e3f);
  const Tensor y_of_other = run(other, {.mask = KeyLengths{}, .lengths = lengths});
  for (std::int64_t b = 0; b < 3; ++b)
    EXPECT_EQ(std::memcmp(y.data<float>() + b * 12 * dim, y_of_other.data<float>() + b * 12 * dim,
                          static_cast<std::size_t>(4 * rows[b] * dim)),
              0);
  for (std::int64_t b = 0; b < 3; ++b) {
    Tensor alone(DType::f32, {1, rows[b], dim});
    std::copy_n(padded.data<float>() + b * 12 * dim, rows[b] * dim, alone.data<float>());
    const Tensor w = run(alone, {});
    for (std::int64_t i = 0; i < rows[b] * dim; ++i) {
      EXPECT_NEAR(w.data<float>()[i], y.data<float>()[b * 12 * dim + i], 1e-5f) << b << ", " << i;
      EXPECT_NEAR(w.data<float>()[i], z.data<float>()[starts[static_cast<std::size_t>(b)] * dim + i], 1e-5f);
    }
  }
}

// The map of a layer that sees both sides, at any place off the diagonal, is that of one of its ways alone.
TEST_P(BothSides, ShowTheMapOfEachWayOnItsSideOfTheDiagonal) {
  if (std::string(GetParam().name) == "mamba") return;  // it has no map
  constexpr std::int64_t length = 6;
  ParameterSet set(3);
  const TransformerStack both(set, "stack", stack_by(GetParam().options, 1));
  disturb(set);
  const Tensor x = Tensor::normal({1, length, dim}, 9), turned(DType::f32, x.shape());
  for (std::int64_t row = 0; row < length; ++row)
    std::copy_n(x.data<float>() + row * dim, dim, turned.data<float>() + (length - 1 - row) * dim);
  const auto map_of = [](const TransformerStack& stack, const Tensor& rows, const Mask& mask) {
    Tensor weights;
    Context context;
    stack(context, Var(rows),
          {.mask = mask, .weights = [&](std::string_view, std::size_t) { return &weights; }});
    return weights;
  };
  const auto map_of_one_way = [&](const std::string& part, const Tensor& rows) {
    StackSpec spec = stack_by(GetParam().options, 1);
    spec.blocks[0].recurrence_sees = Sees::the_past;
    ParameterSet own(5);
    const TransformerStack one(own, "stack", spec);
    for (Parameter& parameter : own.all()) {
      std::string name = parameter.name;
      const std::size_t at = name.find(".mixer.");
      if (at != std::string::npos) name.replace(at, 7, part);
      parameter.value = set.at(name).value;
    }
    return map_of(one, rows, Causal{});
  };
  const Tensor map = map_of(both, x, Everything{}), past = map_of_one_way(".mixer.", x),
               future = map_of_one_way(".mixer_back.", turned);
  ASSERT_EQ(map.count(), past.count());
  double largest = 0.0;
  for (std::int64_t n = 0; n < map.count(); ++n)
    largest = std::max(largest, std::abs(double{map.data<float>()[n]}));
  ASSERT_GT(largest, 0.0);
  for (std::int64_t h = 0; h < map.size(1); ++h) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t j = 0; j < length; ++j) {
        if (i == j) continue;
        const std::int64_t head = h * length * length;
        const float expected = j < i
                                   ? past.data<float>()[head + i * length + j]
                                   : future.data<float>()[head + (length - 1 - i) * length + length - 1 - j];
        EXPECT_NEAR(map.data<float>()[head + i * length + j], expected, 1e-6 * largest)
            << "head " << h << ": " << i << ", " << j;
      }
    }
  }
}

TEST_P(BothSides, ShowTheWeightsOfBothWays) {
  ParameterSet set(3);
  const TransformerStack stack(set, "stack", stack_by(GetParam().options, 1));
  disturb(set);
  const Tensor x = Tensor::normal({2, 6, dim}, 9);
  const std::vector<std::int64_t> lengths{6, 4};
  Tensor weights, decays;
  Context context;
  stack(context, Var(x),
        {.mask = KeyLengths{},
         .lengths = lengths,
         .weights = [&](std::string_view, std::size_t) { return &weights; },
         .log_decays = [&](std::size_t) { return &decays; }});
  if (std::string(GetParam().name) == "mamba") {
    EXPECT_FALSE(weights);
    EXPECT_EQ(decays.shape(), (Shape{32, 3}));  // the channels of both ways
    return;
  }
  ASSERT_EQ(weights.size(2), 6);
  const auto at = [&](std::int64_t b, std::int64_t i, std::int64_t j) {
    return weights.data<float>()[((b * weights.size(1)) * 6 + i) * 6 + j];
  };
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int64_t n = lengths[static_cast<std::size_t>(b)];
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) EXPECT_NE(at(b, i, j), 0.0f) << b << ": " << i << ", " << j;
      // No row of a sequence reads its padding.
      for (std::int64_t j = n; j < 6; ++j) EXPECT_EQ(at(b, i, j), 0.0f) << b << ": " << i << ", " << j;
    }
  }
  if (decays) {
    EXPECT_EQ(decays.count(), 2 * weights.size(1));  // the heads of both ways
  }
}

TEST_P(BothSides, RefuseWhatWouldNotSeeBothSides) {
  const Tensor x = Tensor::normal({2, 6, dim}, 9);
  EXPECT_THROW(run(x, {.mask = Causal{}}), InvalidArgument);
  for (const std::vector<std::int64_t>& lengths :
       std::vector<std::vector<std::int64_t>>{{}, {6}, {6, 7}, {6, -1}})
    EXPECT_THROW(run(x, {.mask = KeyLengths{}, .lengths = lengths}), InvalidArgument);
  Context context;
  EXPECT_THROW(stack_.start(context), InvalidArgument);
  EXPECT_THROW(stack_.cache_layers(), InvalidArgument);
}

// Blocks share one mask: recurrences of both sides and of the past cannot stand in one stack.
TEST(StacksOfRecurrences, SeeTheSameSides) {
  ParameterSet set(3);
  StackSpec spec = stack_by(kinds().front().options, 2);
  spec.blocks[1].recurrence_sees = Sees::the_past;
  EXPECT_THROW(TransformerStack(set, "mixed", spec), InvalidArgument);
  spec.blocks[1].mixer = AttentionOptions{.num_query_heads = 2};
  EXPECT_NO_THROW(TransformerStack(set, "hybrid", spec));
  spec.blocks[1].recurrence_sees = Sees::both_sides;
  EXPECT_THROW(TransformerStack(set, "ignored", spec), InvalidArgument);
}

// The decay of a layer whose input is 0 is that of its rates and biases alone, where the gates read the input
// itself.
TEST(RestingDecays, AreThoseOfAnInputOfZeros) {
  const Tensor zeros = Tensor::zeros(DType::f32, {1, 3, dim});
  for (const Kind& kind : kinds()) {
    ParameterSet set(3);
    const RecurrentMixer mixer(set, "mixer", dim, kind.options);
    disturb(set);
    const Tensor resting = mixer.resting_log_decays();
    Tensor seen;
    Context context;
    mixer(context, Var(zeros), {.log_decays = &seen});
    if (std::string(kind.name) == "mamba") {
      EXPECT_EQ(resting.shape(), (Shape{16, 3}));
      continue;
    }
    ASSERT_EQ(static_cast<bool>(resting), static_cast<bool>(seen)) << kind.name;
    if (!resting) continue;
    ASSERT_EQ(resting.size(0), seen.count()) << kind.name;
    for (std::int64_t h = 0; h < resting.size(0); ++h) {
      double mean = 0.0;
      for (std::int64_t i = 0; i < resting.size(1); ++i)
        mean += static_cast<double>(resting.data<float>()[h * resting.size(1) + i]);
      EXPECT_NEAR(mean / static_cast<double>(resting.size(1)), static_cast<double>(seen.data<float>()[h]),
                  1e-5)
          << kind.name << ", head " << h;
    }
  }
}

}  // namespace
}  // namespace fovea::nn

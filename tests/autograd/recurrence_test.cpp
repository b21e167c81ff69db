// Recurrences, their convolution and their gates as ops: gradients by central differences, in whole calls,
// packed ones, and calls that pass a state on.
#include "fovea/autograd/recurrence.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/central_differences.h"

namespace fovea::autograd {
namespace {

constexpr std::int64_t batch = 2, len = 19, heads = 2, dim = 4, value_dim = 3;

Var negative(const Var& x) {
  return scale(softplus(x), -1.0f);
}

Var both(const OutputAndState& result) {
  if (result.final_state.empty()) return result.output;
  const std::int64_t count = result.output.value().count(), more = result.final_state.value().count();
  const Var parts[] = {reshape(result.output, {count}), reshape(result.final_state, {more})};
  return concat(parts, 0);
}

Parameter rows(std::int64_t width, std::uint64_t seed) {
  return parameter({batch, len, width}, seed);
}

TEST(RecurrenceGradient, Gates) {
  check({parameter({31}, 1)}, [](const auto& v) { return softplus(v[0]); });
  check({parameter({31}, 1)}, [](const auto& v) { return clamp(v[0], -0.3f, 0.4f); });
  check({parameter({31}, 1)}, [](const auto& v) { return exp(v[0]); });
  check({parameter({2, 3, 8}, 1), parameter({2, 3, 4}, 2)},
        [](const auto& v) { return multiply_groups(v[0], v[1]); });
  check({parameter({2, 3, 8}, 1), parameter({4}, 2)},
        [](const auto& v) { return multiply_groups(v[0], v[1]); });
}

TEST(RecurrenceGradient, OfLargeArguments) {
  const float x[] = {-200.0f, -20.0f, 20.0f, 200.0f};
  const Tensor y = softplus(Tensor::from<float>(x, {4})).value();
  EXPECT_EQ(y.data<float>()[0], 0.0f);
  EXPECT_FLOAT_EQ(y.data<float>()[1], std::exp(-20.0f));
  EXPECT_EQ(y.data<float>()[2], 20.0f);
  EXPECT_EQ(y.data<float>()[3], 200.0f);
}

TEST(RecurrenceGradient, AdditiveWritesWithTheSumOfKeysAndAState) {
  const RecurrenceSpec spec{.feature_map = EluPlusOne{}, .normalizer = KeySum{}, .scale = 1.0};
  const RecurrenceShape shape{.batch = batch,
                              .num_query_heads = heads,
                              .num_key_heads = heads,
                              .num_heads = heads,
                              .len = len,
                              .key_dim = dim,
                              .value_dim = value_dim};
  Parameter state = parameter(state_shape(spec, shape, batch), 4);
  for (std::int64_t i = 0; i < state.value.count(); ++i) state.value.data<float>()[i] += 2.0f;
  check({rows(heads * dim, 1), rows(heads * dim, 2), rows(heads * value_dim, 3), state}, [&](const auto& v) {
    return both(recurrence({.spec = spec,
                            .num_query_heads = heads,
                            .num_key_heads = heads,
                            .num_heads = heads,
                            .final_state = FinalState::wanted},
                           {.query = v[0], .key = v[1], .value = v[2], .initial_state = v[3]}));
  });
}

TEST(RecurrenceGradient, ScalarDecayAndDeltaWriteOfGroupedHeads) {
  const RecurrenceSpec spec{.decay = ScalarDecay{}, .write = DeltaWrite{}};
  check({rows(dim, 1), rows(dim, 2), rows(heads * value_dim, 3), rows(heads, 4), rows(heads, 5)},
        [&](const auto& v) {
          return recurrence({.spec = spec, .num_heads = heads}, {.query = v[0],
                                                                 .key = normalize_rows(v[1]),
                                                                 .value = v[2],
                                                                 .log_decay = negative(v[3]),
                                                                 .beta = sigmoid(v[4])})
              .output;
        });
}

TEST(RecurrenceGradient, KeyDecayAndLowRankWrite) {
  const RecurrenceSpec spec{.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}, .scale = 1.0};
  check({rows(heads * dim, 1), rows(heads * dim, 2), rows(heads * dim, 3), rows(heads * dim, 4),
         rows(heads * dim, 5), rows(heads * dim, 6)},
        [&](const auto& v) {
          return recurrence(
                     {.spec = spec, .num_query_heads = heads, .num_key_heads = heads, .num_heads = heads},
                     {.query = v[0],
                      .key = v[1],
                      .value = v[2],
                      .log_decay = negative(v[3]),
                      .a = scale(v[4], 0.3f),
                      .b = scale(v[5], 0.3f)})
              .output;
        });
}

TEST(RecurrenceGradient, BonusSelfWeightAndConstantDecay) {
  check({rows(heads * dim, 1), rows(heads * dim, 2), rows(heads * dim, 3), parameter({heads}, 4),
         parameter({heads, dim}, 5)},
        [&](const auto& v) {
          return recurrence(
                     {.spec = {.decay = ConstantDecay{}, .read = BeforeDecay{}},
                      .num_query_heads = heads,
                      .num_key_heads = heads,
                      .num_heads = heads},
                     {.query = v[0], .key = v[1], .value = v[2], .log_decay = negative(v[3]), .bonus = v[4]})
              .output;
        });
  check({rows(heads * dim, 1), rows(heads * dim, 2), rows(heads * dim, 3), rows(heads, 4)},
        [&](const auto& v) {
          return recurrence({.spec = {.read = SelfWeight{}},
                             .num_query_heads = heads,
                             .num_key_heads = heads,
                             .num_heads = heads},
                            {.query = v[0], .key = v[1], .value = v[2], .self_weight = v[3]})
              .output;
        });
}

// The state of the first part of a sequence is the initial one of the second: the gradient goes through it.
TEST(RecurrenceGradient, GoesThroughTheState) {
  const RecurrenceSpec spec{.decay = ScalarDecay{}};
  check({parameter({1, len, dim}, 1), parameter({1, len, dim}, 2), parameter({1, len, dim}, 3),
         parameter({1, len, 1}, 4)},
        [&](const auto& v) {
          const auto part = [&](std::int64_t begin, std::int64_t count, const Var& state) {
            const auto cut = [&](const Var& x) { return slice(x, 1, begin, count); };
            return recurrence({.spec = spec, .final_state = FinalState::wanted},
                              {.query = cut(v[0]),
                               .key = cut(v[1]),
                               .value = cut(v[2]),
                               .log_decay = negative(cut(v[3])),
                               .initial_state = state});
          };
          const OutputAndState first = part(0, 11, {});
          return part(11, len - 11, first.final_state).output;
        });
}

TEST(RecurrenceGradient, OfAPackedBatch) {
  const std::int64_t starts[] = {0, 5, 5, len};
  const RecurrenceSpec spec{.decay = ScalarDecay{}, .write = DeltaWrite{}};
  check(
      {parameter({1, len, dim}, 1), parameter({1, len, dim}, 2), parameter({1, len, dim}, 3),
       parameter({1, len, 1}, 4), parameter({3, 1, dim, dim}, 5)},
      [&](const auto& v) {
        return both(recurrence({.spec = spec, .lists = {.starts = starts}, .final_state = FinalState::wanted},
                               {.query = v[0],
                                .key = normalize_rows(v[1]),
                                .value = v[2],
                                .log_decay = negative(v[3]),
                                .beta = sigmoid(v[3]),
                                .initial_state = v[4]}));
      });
}

TEST(RecurrenceGradient, CausalConvolution) {
  constexpr std::int64_t channels = 5, width = 4;
  check({parameter({batch, len, channels}, 1), parameter({channels, width}, 2), parameter({channels}, 3),
         parameter({batch, width - 1, channels}, 4)},
        [&](const auto& v) {
          return both(causal_conv({.activation = ConvActivation::silu, .final_state = FinalState::wanted},
                                  {.x = v[0], .weight = v[1], .bias = v[2], .initial_state = v[3]}));
        });
}

TEST(RecurrenceGradient, SelectiveScan) {
  constexpr std::int64_t channels = 6, groups = 2, states = 3;
  check({parameter({batch, len, channels}, 1), parameter({batch, len, channels}, 2),
         parameter({channels, states}, 3), parameter({batch, len, groups * states}, 4),
         parameter({batch, len, groups * states}, 5), parameter({channels}, 6),
         parameter({batch, len, channels}, 7), parameter({channels}, 8),
         parameter({batch, channels, states}, 9)},
        [&](const auto& v) {
          return both(selective_scan({.final_state = FinalState::wanted}, {.x = v[0],
                                                                           .delta = v[1],
                                                                           .a = scale(exp(v[2]), -1.0f),
                                                                           .b = v[3],
                                                                           .c = v[4],
                                                                           .d = v[5],
                                                                           .z = v[6],
                                                                           .delta_bias = v[7],
                                                                           .initial_state = v[8]}));
        });
}

TEST(RecurrenceWeights, TimesTheValuesAreTheOutput) {
  const Var q = Tensor::normal({2, 21, heads * dim}, 1), k = normalize_rows(Tensor::normal({2, 21, dim}, 2)),
            v = Tensor::normal({2, 21, heads * value_dim}, 3),
            g = negative(Tensor::normal({2, 21, heads}, 4)),
            beta = sigmoid(Tensor::normal({2, 21, heads}, 5));
  const RecurrenceCall call{
      .spec = {.decay = ScalarDecay{}, .write = DeltaWrite{}}, .num_query_heads = heads, .num_heads = heads};
  const RecurrenceOperands operands{.query = q, .key = k, .value = v, .log_decay = g, .beta = beta};
  const Tensor output = recurrence(call, operands).output.value(),
               weights = recurrence_weights(call, operands);
  ASSERT_EQ(weights.shape(), (Shape{2, heads, 21, 21}));
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < 21; ++i) {
        const float* row = weights.data<float>() + ((b * heads + h) * 21 + i) * 21;
        for (std::int64_t j = i + 1; j < 21; ++j) EXPECT_EQ(row[j], 0.0f);
        for (std::int64_t d = 0; d < value_dim; ++d) {
          float sum = 0.0f;
          for (std::int64_t j = 0; j <= i; ++j)
            sum += row[j] * v.value().data<float>()[((b * 21 + j) * heads + h) * value_dim + d];
          EXPECT_NEAR(sum, output.data<float>()[((b * 21 + i) * heads + h) * value_dim + d], 1e-5f);
        }
      }
    }
  }
}

void expect_refused(const std::function<void()>& call, const std::string& argument) {
  try {
    call();
    FAIL() << "nothing was refused";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(argument), std::string::npos) << error.what();
  }
}

TEST(RecurrenceGradient, Refusals) {
  const Tensor x = Tensor::normal({1, 4, 6}, 1), narrow = Tensor::normal({1, 4, 5}, 1);
  expect_refused([&] { recurrence({.num_key_heads = 2}, {.query = x, .key = narrow, .value = x}); }, "key");
  expect_refused([&] { recurrence({}, {.query = x, .key = x, .value = x, .beta = x}); }, "beta");
  expect_refused([&] { multiply_groups(x, narrow); }, "factors");
  expect_refused(
      [&] {
        selective_scan({}, {.x = x, .delta = x, .a = Tensor::zeros(DType::f32, {6, 2}), .b = narrow, .c = x});
      },
      "b");
}

}  // namespace
}  // namespace fovea::autograd

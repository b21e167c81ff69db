// States that lie where each sequence keeps them (RecurrenceInputs::initial_states), in all three kinds of
// calls: the bits are those of states in one tensor.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "fovea/plan/causal_conv.h"
#include "fovea/plan/recurrence_segment.h"
#include "fovea/plan/recurrence_tree.h"
#include "fovea/plan/selective_scan.h"
#include "plan/differences.h"
#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

// The states of a tensor [sequences, ...], each in memory of its own. Sequence 1 has none, which is zeros,
// and the others are updated where they are if their number is even.
struct SeparateStates {
  std::vector<Tensor> before, behind;
  std::vector<ConstTensorView> initial;
  std::vector<TensorView> final;

  explicit SeparateStates(const Tensor& states) {
    for (std::int64_t n = 0; n < states.size(0); ++n) {
      const Tensor one = Tensor::copy_of(states.view().slice(0, n, 1));
      before.push_back(one.reshape(Shape(one.shape().sizes().subspan(1))));
      const bool in_place = n != 1 && n % 2 == 0;
      behind.push_back(in_place ? before.back() : unwritten_like(before.back()));
      initial.push_back(n == 1 ? ConstTensorView() : ConstTensorView(before.back()));
      final.push_back(behind.back());
    }
  }
  static Tensor in_one_tensor(const Tensor& states) {
    Tensor copy = states.clone();
    const std::int64_t size = copy.count() / copy.size(0);
    for (std::int64_t i = size; copy.size(0) > 1 && i < 2 * size; ++i) set_element(copy, i, 0);
    return copy;
  }
  void expect_same_bits_as(const Tensor& states) const {
    for (std::size_t n = 0; n < behind.size(); ++n)
      expect_same_bits({behind[n]}, {Tensor::copy_of(states.view().slice(0, static_cast<std::int64_t>(n), 1))
                                         .reshape(behind[n].shape())});
  }
};

class KeptStates : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, KeptStates, ::testing::ValuesIn(runnable_recurrence_kernels()), kernel_name);

TEST_P(KeptStates, OfRecurrencesGiveTheBitsOfOneTensor) {
  const std::vector<RecurrenceSpec> specs{
      {.decay = ScalarDecay{}},
      {.feature_map = EluPlusOne{}, .decay = ConstantDecay{}, .normalizer = KeySum{}},
      {.decay = ScalarDecay{}, .write = DeltaWrite{}},
      {.decay = KeyDecay{}, .write = DiagonalPlusLowRankWrite{}}};
  for (const RecurrenceSpec& spec : specs) {
    // 193 columns are two tiles, whose sums of keys are read from a copy. The step kernel takes few tokens.
    for (const std::int64_t value_dim : {std::int64_t{20}, std::int64_t{193}}) {
      for (const std::int64_t len : {std::int64_t{2}, std::int64_t{40}}) {
        for (const Packing packing : {Packing::padded, Packing::packed}) {
          RecurrenceCase c{.spec = spec, .dtype = dtype_for(GetParam()), .packing = packing};
          c.shape = {.batch = 3,
                     .num_query_heads = 2,
                     .num_key_heads = 1,
                     .num_heads = 2,
                     .len = len,
                     .key_dim = 24,
                     .value_dim = value_dim};
          const RecurrenceData data(c);
          RecurrencePlan plan = make_recurrence_plan(spec, c.plan_shape(), {.dtype = c.dtype});
          try {
            plan = make_recurrence_plan(spec, c.plan_shape(), {.dtype = c.dtype, .kernel = GetParam()});
          } catch (const InvalidArgument&) {
            continue;  // a kernel of few tokens
          }
          const Shape rows{c.entries(), 2, c.len(), value_dim};
          const Tensor start = SeparateStates::in_one_tensor(data.inputs.initial_state.values()),
                       output = unwritten(c.dtype, rows), again = unwritten(c.dtype, rows),
                       state = unwritten_like(start);
          RecurrenceInputs inputs = data.views();
          inputs.initial_state = start;
          recur(plan, inputs, {.output = output, .final_state = state});
          const SeparateStates separate(start);
          inputs.initial_state = {};
          inputs.initial_states = separate.initial;
          recur(plan, inputs, {.output = again, .final_states = separate.final});
          SCOPED_TRACE(to_string(spec) + " " + std::to_string(len) + " " + std::to_string(value_dim));
          expect_same_bits({again}, {output});
          separate.expect_same_bits_as(state);
        }
      }
    }
  }
}

// 2 entries of 5 tokens, or a packed batch of sequences with 4, 0 and 6.
struct Channels {
  bool packed;
  std::vector<std::int64_t> starts() const {
    return packed ? std::vector<std::int64_t>{0, 4, 4, 10} : std::vector<std::int64_t>{};
  }
  std::int64_t batch() const { return packed ? 1 : 2; }
  std::int64_t len() const { return packed ? 10 : 5; }
  std::int64_t sequences() const { return packed ? 3 : 2; }
};

TEST(KeptStatesOfChannels, GiveTheBitsOfOneTensor) {
  constexpr std::int64_t channels = 37, state_dim = 5, width = 4;
  for (const bool packed : {false, true}) {
    const Channels sizes{packed};
    const std::vector<std::int64_t> starts = sizes.starts();
    const Shape rows{sizes.batch(), sizes.len(), channels};
    const Tensor x = Tensor::normal(rows, 1), output(DType::f32, rows), again(DType::f32, rows);
    for (const std::string& kernel : list_causal_conv_kernels()) {
      std::optional<CausalConvPlan> plan;
      try {
        plan = make_causal_conv_plan({.width = width}, {.batch = 3, .len = 10, .channels = channels},
                                     {.kernel = kernel});
      } catch (const InvalidArgument&) {
        continue;  // another machine's
      }
      SCOPED_TRACE(kernel);
      const Tensor weight = Tensor::normal({channels, width}, 2),
                   start = SeparateStates::in_one_tensor(
                       Tensor::normal({sizes.sequences(), width - 1, channels}, 3)),
                   state(DType::f32, start.shape());
      CausalConvInputs inputs{.x = x, .weight = weight, .initial_state = start, .sequence_starts = starts};
      causal_conv(*plan, inputs, {.output = output, .final_state = state});
      const SeparateStates separate(start);
      inputs.initial_state = {};
      inputs.initial_states = separate.initial;
      causal_conv(*plan, inputs, {.output = again, .final_states = separate.final});
      expect_same_bits({again}, {output});
      separate.expect_same_bits_as(state);
    }
    for (const std::string& kernel : list_selective_scan_kernels()) {
      std::optional<SelectiveScanPlan> plan;
      try {
        plan = make_selective_scan_plan(
            {}, {.batch = 3, .len = 10, .channels = channels, .groups = 1, .state_dim = state_dim},
            {.kernel = kernel});
      } catch (const InvalidArgument&) {
        continue;
      }
      SCOPED_TRACE(kernel);
      Tensor a(DType::f32, {channels, state_dim});
      a.fill(-0.5);
      const Tensor delta = Tensor::normal(rows, 4),
                   start = SeparateStates::in_one_tensor(
                       Tensor::normal({sizes.sequences(), channels, state_dim}, 5)),
                   b = Tensor::normal({sizes.batch(), sizes.len(), 1, state_dim}, 6),
                   state(DType::f32, start.shape());
      SelectiveScanInputs inputs{
          .x = x, .delta = delta, .a = a, .b = b, .c = b, .initial_state = start, .sequence_starts = starts};
      selective_scan(*plan, inputs, {.output = output, .final_state = state});
      const SeparateStates separate(start);
      inputs.initial_state = {};
      inputs.initial_states = separate.initial;
      selective_scan(*plan, inputs, {.output = again, .final_states = separate.final});
      expect_same_bits({again}, {output});
      separate.expect_same_bits_as(state);
    }
  }
}

// A call of `sequences` sequences of one token, whose states lie apart, for tests to spoil.
struct Call {
  std::int64_t sequences;
  Tensor rows, output, states, others;
  std::vector<ConstTensorView> initial;
  std::vector<TensorView> final;
  RecurrencePlan plan;
  RecurrenceInputs inputs;
  RecurrenceOutputs outputs;

  explicit Call(std::int64_t count)
      : sequences(count),
        rows(Tensor::normal({count, 1, 1, 8}, 1)),
        output(unwritten(DType::f32, {count, 1, 1, 8})),
        states(unwritten(DType::f32, {count + 1, 1, 8, 8})),
        others(Tensor::normal({count, 1, 8, 8}, 2)),
        plan(make_recurrence_plan({}, {.batch = count, .len = 1, .key_dim = 8})) {
    for (std::int64_t n = 0; n < count; ++n) {
      initial.emplace_back(others.data<float>() + 64 * n, Shape{1, 8, 8});
      final.emplace_back(states.data<float>() + 64 * n, Shape{1, 8, 8});
    }
    inputs = {.query = rows, .key = rows, .value = rows, .initial_states = initial};
    outputs = {.output = output, .final_states = final};
  }
  // "argument: expected", or "" where it is taken. What is refused writes nothing.
  std::string refused() {
    try {
      recur(plan, inputs, outputs);
    } catch (const InvalidArgument& error) {
      EXPECT_TRUE(std::isnan(element(output, 0)));
      EXPECT_TRUE(std::isnan(element(states, 0)));
      return error.argument() + ": " + error.expected();
    }
    return "";
  }
};

TEST(KeptStatesRefuse, OtherNumbersShapesAndTypes) {
  const auto refused = [](const std::function<void(Call&)>& spoil) {
    Call call(3);
    spoil(call);
    return call.refused();
  };
  const Tensor one = Tensor::zeros(DType::f32, {3, 1, 8, 8}), wide = Tensor::zeros(DType::f64, {1, 8, 8}),
               large = Tensor::zeros(DType::f32, {1, 8, 9});
  EXPECT_EQ(refused([](Call&) {}), "");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.initial_state = one; }),
            "initial_states: none beside initial_state");
  EXPECT_EQ(refused([&](Call& call) { call.outputs.final_state = one; }),
            "final_states: none beside final_state");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.initial_states = std::span(call.initial).first(2); }),
            "initial_states: 3, one for each sequence");
  EXPECT_EQ(refused([&](Call& call) { call.initial[2] = wide; }), "initial_states[2]: f32 [1, 8, 8]");
  EXPECT_EQ(refused([&](Call& call) { call.final[1] = large; }), "final_states[1]: f32 [1, 8, 8]");
  EXPECT_EQ(refused([&](Call& call) { call.final[1] = {}; }), "final_states[1]: f32 [1, 8, 8]");
  EXPECT_EQ(refused([&](Call& call) { call.final[1] = large.view().slice(2, 0, 8); }),
            "final_states[1]: a contiguous tensor");
}

// Two ways of looking: all pairs of a few, and in the order of addresses.
TEST(KeptStatesRefuse, MemoryThatIsShared) {
  for (const std::int64_t count : {std::int64_t{3}, std::int64_t{40}, std::int64_t{200}}) {
    SCOPED_TRACE(count);
    const auto refused = [&](const std::function<void(Call&)>& spoil) {
      Call call(count);
      spoil(call);
      return call.refused();
    };
    const auto at = [](const Tensor& of, std::int64_t element) {
      return TensorView(of.data<float>() + element, Shape{1, 8, 8});
    };
    EXPECT_EQ(refused([](Call&) {}), "");
    EXPECT_EQ(refused([&](Call& call) { call.final[2] = at(call.others, 128); }), "");  // its own
    EXPECT_EQ(refused([&](Call& call) { call.final[2] = at(call.others, 64); }),
              "final_states: memory apart from initial_states");
    EXPECT_EQ(refused([&](Call& call) { call.final[2] = at(call.others, 129); }),
              "final_states: memory apart from initial_states");
    EXPECT_EQ(refused([&](Call& call) { call.final[2] = call.final[0]; }),
              "final_states: memory apart from final_states");
    EXPECT_EQ(refused([&](Call& call) { call.final[0] = at(call.states, 1); }),
              "final_states: memory apart from final_states");
    EXPECT_EQ(refused([&](Call& call) { call.initial[0] = call.final[1]; }),
              "final_states: memory apart from initial_states");
    EXPECT_EQ(refused([&](Call& call) {
                call.inputs.key = ConstTensorView(call.states.data<float>(), Shape{count, 1, 1, 8});
              }),
              "final_states: memory apart from key");
    // Without states behind, what is read may still be more than what the check keeps in its lists.
    EXPECT_EQ(
        refused([&](Call& call) {
          call.outputs.final_states = {};
          call.outputs.output = TensorView(call.others.data<float>() + 56 * count, Shape{count, 1, 1, 8});
        }),
        "output: memory apart from initial_states");
    EXPECT_EQ(refused([&](Call& call) {
                call.outputs.output = TensorView(call.others.data<float>() + 70, Shape{count, 1, 1, 8});
              }),
              "output: memory apart from initial_states");
  }
}

TEST(KeptStatesRefuse, CallsThatTakeOneTensorAlone) {
  Call call(1);
  const auto argument = [](auto&& run) -> std::string {
    try {
      run();
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return "";
  };
  const Tensor d_key(DType::f32, {1, 1, 1, 8});
  const std::int64_t parents[] = {-1};
  EXPECT_EQ(
      argument([&] { recur_backward(call.plan, call.inputs, {.d_output = call.rows}, {.key = d_key}); }),
      "initial_states");
  EXPECT_EQ(argument([&] { summarize(call.plan, call.inputs); }), "initial_states");
  EXPECT_EQ(argument([&] { recur_tree(call.plan, call.inputs, parents, call.output); }), "initial_states");
  EXPECT_EQ(argument([&] { recur_in_pieces(call.plan, call.inputs, call.outputs, call.plan.chunk()); }),
            "initial_states");
  call.inputs.initial_states = {};
  EXPECT_EQ(argument([&] { recur_in_pieces(call.plan, call.inputs, call.outputs, call.plan.chunk()); }),
            "final_states");
}

}  // namespace
}  // namespace fovea::testing

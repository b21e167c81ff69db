#include "fovea/plan/causal_conv.h"

#include <gtest/gtest.h>

#include "fovea/core/executor.h"
#include "plan/covering.h"
#include "recurrence/channel_cases.h"
#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

struct ConvCase {
  std::string name;
  CausalConvSpec spec;
  ChannelSequences sequences;
  std::int64_t channels = 1;
  DType dtype = DType::f32;
  bool has_bias = true, has_state = true;
  std::uint64_t seed = 1;

  CausalConvShape shape() const {
    return {std::max(sequences.sequences(), sequences.batch), sequences.tokens(), channels};
  }
  Shape tokens() const { return {sequences.entries(), sequences.tokens(), channels}; }
  Shape states() const { return state_shape(spec, shape(), sequences.sequences()); }
  DType wide() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

struct ConvData {
  Tensor x, weight, bias, initial_state, d_output, d_final_state;
  std::vector<std::int64_t> starts;
  std::vector<std::uint8_t> present;

  explicit ConvData(const ConvCase& c) : starts(c.sequences.starts()) {
    PhiloxStream random(c.seed);
    x = drawn(c.dtype, c.tokens(), random);
    d_output = drawn(c.dtype, c.tokens(), random);
    weight = drawn(c.wide(), {c.channels, c.spec.width}, random);
    if (c.has_bias) bias = drawn(c.wide(), {c.channels}, random);
    if (c.has_state) initial_state = drawn(c.wide(), c.states(), random);
    d_final_state = drawn(c.wide(), c.states(), random);
    present = c.sequences.present(random);
    poison(x, present);
    poison(d_output, present);
  }
  CausalConvInputs views() const {
    return {.x = x,
            .weight = weight,
            .bias = bias,
            .initial_state = initial_state,
            .sequence_starts = starts,
            .present = present};
  }
};

CausalConvPlan plan_of(const ConvCase& c, const std::string& kernel) {
  return make_causal_conv_plan(c.spec, c.shape(), {.dtype = c.dtype, .kernel = kernel});
}

Named forward(const CausalConvPlan& plan, const ConvCase& c, const ConvData& data,
              Executor& executor = serial_executor()) {
  const Tensor output = unwritten(c.dtype, c.tokens()), state = unwritten(c.wide(), c.states());
  causal_conv(plan, data.views(), {.output = output, .final_state = state}, {.executor = &executor});
  return {{"output", output}, {"final state", state}};
}

// In the order of operands_of.
Named backward(const CausalConvPlan& plan, const ConvCase& c, const ConvData& data,
               Executor& executor = serial_executor()) {
  const Tensor x = unwritten(c.dtype, c.tokens()), weight = unwritten_like(data.weight),
               bias = c.has_bias ? unwritten_like(data.bias) : Tensor(),
               state = unwritten(c.wide(), c.states());
  causal_conv_backward(plan, data.views(), {.d_output = data.d_output, .d_final_state = data.d_final_state},
                       {.x = x, .weight = weight, .bias = bias, .initial_state = state},
                       {.executor = &executor});
  Named list{{"gradient of x", x}, {"gradient of weight", weight}, {"gradient of the state", state}};
  if (c.has_bias) list.emplace_back("gradient of bias", bias);
  return list;
}

std::vector<std::string> kernels() {
  std::vector<std::string> names = list_causal_conv_kernels();
  std::erase_if(names, [](const std::string& name) {
    try {
      make_causal_conv_plan({}, {.channels = 1}, {.kernel = name});
    } catch (const InvalidArgument&) {
      return true;
    }
    return false;
  });
  return names;
}

// Blocks are 256 tokens, tiles 512 channels; vectors 4 to 16 elements.
std::vector<ConvCase> cases(bool small) {
  struct Sizes {
    std::int64_t batch, len, channels;
  };
  const std::vector<Sizes> sizes =
      small ? std::vector<Sizes>{{1, 1, 1}, {2, 9, 3}, {1, 2, 2}, {3, 5, 2}}
            : std::vector<Sizes>{{1, 1, 3}, {2, 33, 16}, {1, 0, 8}, {3, 17, 40}, {1, 600, 5}, {2, 300, 530}};
  const std::vector<std::int64_t> widths{2, 3, 4, 8};
  const std::vector<DType> dtypes = small
                                        ? std::vector<DType>{DType::f64}
                                        : std::vector<DType>{DType::f32, DType::f64, DType::bf16, DType::f16};
  std::vector<ConvCase> list;
  for (const CoveringRow& row :
       covering_array({static_cast<int>(sizes.size()), 4, 2, 4, static_cast<int>(dtypes.size()), 2, 2})) {
    const auto at = [&](std::size_t factor) { return static_cast<std::size_t>(row[factor]); };
    const Sizes& s = sizes[at(0)];
    ConvCase c{
        .spec = {.width = widths[at(1)], .activation = row[2] ? ConvActivation::silu : ConvActivation::none},
        .sequences = {s.batch, s.len, static_cast<Packing>(row[3])},
        .channels = s.channels,
        .dtype = dtypes[at(4)],
        .has_bias = row[5] == 0,
        .has_state = row[6] == 0,
        .seed = list.size() + 1};
    c.name = explain(plan_of(c, "reference")) + ", packing " + std::to_string(row[3]) + ", bias " +
             std::to_string(c.has_bias) + ", state " + std::to_string(c.has_state);
    list.push_back(c);
  }
  return list;
}

class CausalConv : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, CausalConv, ::testing::ValuesIn(kernels()), kernel_name);

// Sums of `width` products below 1 behind one another, of all tokens for the weights; the factor covers SiLU,
// whose exponential has an error of 3 eps.
TEST_P(CausalConv, AgreesWithTheReference) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  for (const ConvCase& c : cases(false)) {
    const ConvData data(c);
    const double tolerance = 8 * epsilon_of(c.dtype) *
                             std::sqrt(static_cast<double>(c.sequences.tokens() * c.sequences.batch + 8));
    const CausalConvPlan plan = plan_of(c, GetParam()), reference = plan_of(c, "reference");
    EXPECT_EQ(difference(forward(plan, c, data), forward(reference, c, data), tolerance), "") << c.name;
    EXPECT_EQ(difference(backward(plan, c, data), backward(reference, c, data), tolerance), "") << c.name;
  }
}

TEST(CausalConvReference, GradientsAreCentralDifferences) {
  for (const ConvCase& c : cases(true)) {
    const ConvData data(c);
    const CausalConvPlan plan = plan_of(c, "reference");
    Named operands{{"x", data.x}, {"weight", data.weight}};
    operands.emplace_back("state", data.initial_state ? data.initial_state : Tensor(c.wide(), {0}));
    if (c.has_bias) operands.emplace_back("bias", data.bias);
    const auto loss = [&] {
      const Named results = forward(plan, c, data);
      return finite_product(results[0].second, data.d_output) +
             finite_product(results[1].second, data.d_final_state);
    };
    expect_central_differences(loss, operands, backward(plan, c, data), c.name);
    if (HasFatalFailure()) return;
  }
}

// One channel, two taps: y = tap 0 of the token before + tap 1 of the token + bias.
TEST_P(CausalConv, TheLastTapIsTheTokenItself) {
  const Tensor x(DType::f32, {1, 3, 1}), weight(DType::f32, {1, 2}), bias(DType::f32, {1}),
      state(DType::f32, {1, 1, 1});
  const Tensor output(DType::f32, {1, 3, 1});
  for (std::int64_t i = 0; i < 3; ++i) set_element(x, i, static_cast<double>(i + 1));
  set_element(weight, 0, 10);
  set_element(weight, 1, 100);
  set_element(bias, 0, 0.5);
  set_element(state, 0, 7);
  causal_conv(make_causal_conv_plan({.width = 2}, {.len = 3, .channels = 1}, {.kernel = GetParam()}),
              {.x = x, .weight = weight, .bias = bias, .initial_state = state},
              {.output = output, .final_state = state});
  EXPECT_EQ(element(output, 0), 70 + 100 + 0.5);
  EXPECT_EQ(element(output, 1), 10 + 200 + 0.5);
  EXPECT_EQ(element(output, 2), 20 + 300 + 0.5);
  EXPECT_EQ(element(state, 0), 3);
}

ConvCase long_case() {
  return {.name = "long",
          .spec = {.width = 4, .activation = ConvActivation::silu},
          .sequences = {2, 300},
          .channels = 21};
}

// Tokens [begin, begin + count) of a call.
CausalConvInputs tokens_of(const ConvData& data, std::int64_t begin, std::int64_t count,
                           const Tensor& state) {
  CausalConvInputs in = data.views();
  in.x = in.x.slice(1, begin, count);
  in.initial_state = state;
  return in;
}

// The state is updated where it is. Gradients go back through both calls.
TEST_P(CausalConv, AnyCutKeepsTheBits) {
  if (GetParam() == "reference") GTEST_SKIP() << "its sums are double, and a state would round them";
  const ConvCase c = long_case();
  const ConvData data(c);
  const CausalConvPlan plan = plan_of(c, GetParam());
  const Named whole = forward(plan, c, data), gradients = backward(plan, c, data);
  for (const std::int64_t cut : {0, 1, 2, 255, 256, 299}) {
    const std::int64_t rest = 300 - cut;
    const Tensor output = unwritten(c.dtype, c.tokens()), d_x = unwritten(c.dtype, c.tokens());
    const Tensor state = data.initial_state.clone();
    causal_conv(plan, tokens_of(data, 0, cut, state),
                {.output = output.view().slice(1, 0, cut), .final_state = state});
    const Tensor middle = state.clone();
    causal_conv(plan, tokens_of(data, cut, rest, state),
                {.output = output.view().slice(1, cut, rest), .final_state = state});
    expect_same_bits({output, state}, {whole[0].second, whole[1].second});
    const ConstTensorView d_output = data.d_output;
    const Tensor d_middle = unwritten_like(state), d_initial = unwritten_like(state);
    causal_conv_backward(plan, tokens_of(data, cut, rest, middle),
                         {.d_output = d_output.slice(1, cut, rest), .d_final_state = data.d_final_state},
                         {.x = d_x.view().slice(1, cut, rest), .initial_state = d_middle});
    causal_conv_backward(plan, tokens_of(data, 0, cut, data.initial_state),
                         {.d_output = d_output.slice(1, 0, cut), .d_final_state = d_middle},
                         {.x = d_x.view().slice(1, 0, cut), .initial_state = d_initial});
    expect_same_bits({d_x, d_initial}, {gradients[0].second, gradients[2].second});
  }
}

TEST_P(CausalConv, APackedSequenceGivesTheBitsOfACallOfItsOwn) {
  ConvCase c = long_case();
  c.sequences.packing = Packing::packed;
  const ConvData data(c);
  const CausalConvPlan plan = plan_of(c, GetParam());
  const Named all = forward(plan, c, data);
  for (std::size_t n = 0; n < 4; ++n) {
    const std::int64_t begin = data.starts[n], count = data.starts[n + 1] - begin;
    const auto number = static_cast<std::int64_t>(n);
    const Tensor output = unwritten(c.dtype, {1, count, c.channels}),
                 state = Tensor::copy_of(data.initial_state.view().slice(0, number, 1));
    causal_conv(plan,
                {.x = ConstTensorView(data.x).slice(1, begin, count),
                 .weight = data.weight,
                 .bias = data.bias,
                 .initial_state = state},
                {.output = output, .final_state = state});
    expect_same_bits({output, state}, {Tensor::copy_of(all[0].second.view().slice(1, begin, count)),
                                       Tensor::copy_of(all[1].second.view().slice(0, number, 1))});
  }
}

TEST_P(CausalConv, EveryThreadCountGivesTheSameBits) {
  const ConvCase c = long_case();
  const ConvData data(c);
  const CausalConvPlan plan = plan_of(c, GetParam());
  expect_same_bits_for_every_thread_count([&](Executor& executor) {
    std::vector<Tensor> results;
    for (const auto& [name, tensor] : forward(plan, c, data, executor)) results.push_back(tensor);
    for (const auto& [name, tensor] : backward(plan, c, data, executor)) results.push_back(tensor);
    return results;
  });
}

TEST_P(CausalConv, AWorkspaceOfThePlansSizeIsEnough) {
  ConvCase c = long_case();
  c.sequences.packing = Packing::packed_and_masked;
  const ConvData data(c);
  const CausalConvPlan plan = plan_of(c, GetParam());
  const auto pool = make_thread_pool(2);
  const Tensor output = unwritten(c.dtype, c.tokens());
  std::vector<std::byte> memory(workspace_bytes(plan, 2)), more(backward_workspace_bytes(plan, 2));
  EXPECT_NO_THROW(causal_conv(plan, data.views(), {.output = output}, {pool.get(), memory}));
  EXPECT_THROW(causal_conv(plan, data.views(), {.output = output}, {pool.get(), std::span(memory).first(8)}),
               InvalidArgument);
  EXPECT_NO_THROW(causal_conv_backward(plan, data.views(), {.d_output = data.d_output}, {.x = output},
                                       {pool.get(), more}));
}

TEST(CausalConvCalls, RefuseWhatDoesNotFit) {
  const ConvCase c = long_case();
  const ConvData data(c);
  const CausalConvPlan plan = plan_of(c, "");
  const Tensor output = unwritten(c.dtype, c.tokens()), other = Tensor::zeros(DType::f32, {2, 300, 20});
  const auto refused = [&](const std::function<void(CausalConvInputs&, CausalConvOutputs&)>& spoil,
                           const std::string& argument) {
    CausalConvInputs in = data.views();
    CausalConvOutputs out{.output = output};
    spoil(in, out);
    expect_refused([&] { causal_conv(plan, in, out); }, "causal_conv", argument);
    EXPECT_TRUE(std::isnan(element(output, 0)));
  };
  using In = CausalConvInputs;
  using Out = CausalConvOutputs;
  refused([](In& in, Out&) { in.x = {}; }, "x");
  refused([&](In& in, Out&) { in.x = other; }, "x");
  refused([&](In& in, Out&) { in.weight = other; }, "weight");
  refused([&](In& in, Out&) { in.bias = other; }, "bias");
  refused([&](In& in, Out&) { in.initial_state = other; }, "initial_state");
  refused([&](In&, Out& out) { out = {}; }, "output");
  refused([&](In&, Out& out) { out.output = other; }, "output");
  refused([&](In&, Out& out) { out.output = data.x; }, "output");
  refused([&](In&, Out& out) { out.final_state = other; }, "final_state");
  const std::vector<std::int64_t> starts{0, 300};
  refused([&](In& in, Out&) { in.sequence_starts = starts; }, "x");
  const std::vector<std::uint8_t> present(3, 1);
  refused([&](In& in, Out&) { in.present = present; }, "present");
  const auto backward_refused = [&](const CausalConvLoss& loss, const CausalConvGradients& g,
                                    const std::string& argument) {
    expect_refused([&] { causal_conv_backward(plan, data.views(), loss, g); }, "causal_conv_backward",
                   argument);
  };
  backward_refused({}, {.x = output}, "d_output");
  backward_refused({.d_output = other}, {.x = output}, "d_output");
  backward_refused({.d_output = data.d_output}, {.x = data.x}, "gradients.x");
  backward_refused({.d_output = data.d_output}, {.weight = other}, "gradients.weight");
}

TEST(CausalConvPlans, SayWhatRunsAndRefuseWrongSizes) {
  EXPECT_EQ(explain(make_causal_conv_plan({.width = 3, .activation = ConvActivation::silu},
                                          {.batch = 2, .len = 9, .channels = 6}, {.kernel = "reference"})),
            "reference\ncausal convolution, width 3, SiLU, batch 2, 9 tokens, 6 channels, f32");
  const auto refused = [](const CausalConvSpec& spec, const CausalConvShape& shape,
                          const RecurrenceOptions& options, const std::string& argument) {
    expect_refused([&] { make_causal_conv_plan(spec, shape, options); }, "make_causal_conv_plan", argument);
  };
  refused({.width = 1}, {.channels = 1}, {}, "spec.width");
  refused({.width = 9}, {.channels = 1}, {}, "spec.width");
  refused({}, {.channels = 0}, {}, "shape.channels");
  refused({}, {.len = -1, .channels = 1}, {}, "shape.len");
  refused({}, {.batch = 1 << 20, .len = 1 << 20, .channels = 2}, {}, "shape");
  refused({}, {.channels = 1}, {.kernel = "avx1024"}, "options.kernel");
  const CausalConvPlan plan = make_causal_conv_plan({}, {.channels = 1});
  expect_refused([&] { workspace_bytes(plan, 0); }, "workspace_bytes", "threads");
  expect_refused([&] { backward_workspace_bytes(plan, 0); }, "backward_workspace_bytes", "threads");
}

}  // namespace
}  // namespace fovea::testing

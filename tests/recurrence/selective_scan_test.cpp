#include "fovea/plan/selective_scan.h"

#include <gtest/gtest.h>

#include "fovea/core/executor.h"
#include "plan/covering.h"
#include "recurrence/channel_cases.h"
#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

struct ScanCase {
  std::string name;
  SelectiveScanSpec spec;
  ChannelSequences sequences;
  std::int64_t channels = 1, groups = 1, state_dim = 1;
  DType dtype = DType::f32;
  bool has_skip = true, has_gate = true, has_bias = true, has_state = true;
  double fastest = -4;  // of A
  std::uint64_t seed = 1;

  SelectiveScanShape shape() const {
    return {std::max(sequences.sequences(), sequences.batch), sequences.tokens(), channels, groups,
            state_dim};
  }
  Shape tokens() const { return {sequences.entries(), sequences.tokens(), channels}; }
  Shape pairs() const { return {sequences.entries(), sequences.tokens(), groups, state_dim}; }
  Shape states() const { return state_shape(shape(), sequences.sequences()); }
  DType wide() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

struct ScanData {
  Tensor x, delta, a, b, c, d, z, delta_bias, initial_state, d_output, d_final_state;
  std::vector<std::int64_t> starts;
  std::vector<std::uint8_t> present;

  explicit ScanData(const ScanCase& s) : starts(s.sequences.starts()) {
    PhiloxStream random(s.seed);
    const bool softplus = s.spec.step_size == StepSize::softplus;
    x = drawn(s.dtype, s.tokens(), random);
    delta = drawn(s.dtype, s.tokens(), random, softplus ? -6 : 0.01, softplus ? 2 : 1);
    a = drawn(s.wide(), {s.channels, s.state_dim}, random, s.fastest, -0.01);
    b = drawn(s.dtype, s.pairs(), random);
    c = drawn(s.dtype, s.pairs(), random);
    if (s.has_skip) d = drawn(s.wide(), {s.channels}, random);
    if (s.has_gate) z = drawn(s.dtype, s.tokens(), random);
    if (s.has_bias) delta_bias = drawn(s.wide(), {s.channels}, random, softplus ? -1 : 0);
    if (s.has_state) initial_state = drawn(s.wide(), s.states(), random);
    d_output = drawn(s.dtype, s.tokens(), random);
    d_final_state = drawn(s.wide(), s.states(), random);
    present = s.sequences.present(random);
    for (const Tensor* tensor : {&x, &delta, &b, &c, &z, &d_output}) {
      if (*tensor) poison(*tensor, present);
    }
  }
  SelectiveScanInputs views() const {
    return {.x = x,
            .delta = delta,
            .a = a,
            .b = b,
            .c = c,
            .d = d,
            .z = z,
            .delta_bias = delta_bias,
            .initial_state = initial_state,
            .sequence_starts = starts,
            .present = present};
  }
};

SelectiveScanPlan plan_of(const ScanCase& s, const std::string& kernel) {
  return make_selective_scan_plan(s.spec, s.shape(), {.dtype = s.dtype, .kernel = kernel});
}

Named forward(const SelectiveScanPlan& plan, const ScanCase& s, const ScanData& data,
              Executor& executor = serial_executor()) {
  const Tensor output = unwritten(s.dtype, s.tokens()), state = unwritten(s.wide(), s.states());
  selective_scan(plan, data.views(), {.output = output, .final_state = state}, {.executor = &executor});
  return {{"output", output}, {"final state", state}};
}

Named operands_of(const ScanData& data) {
  Named list{{"x", data.x}, {"delta", data.delta}, {"a", data.a}, {"b", data.b}, {"c", data.c}};
  if (data.d) list.emplace_back("d", data.d);
  if (data.z) list.emplace_back("z", data.z);
  if (data.delta_bias) list.emplace_back("delta_bias", data.delta_bias);
  if (data.initial_state) list.emplace_back("initial_state", data.initial_state);
  return list;
}

// In the order of operands_of.
Named backward(const SelectiveScanPlan& plan, const ScanData& data, Executor& executor = serial_executor()) {
  SelectiveScanGradients g;
  Named list;
  const auto want = [&](const char* name, const Tensor& operand, TensorView& view) {
    if (!operand) return;
    const Tensor gradient = unwritten_like(operand);
    view = gradient;
    list.emplace_back(std::string("gradient of ") + name, gradient);
  };
  want("x", data.x, g.x);
  want("delta", data.delta, g.delta);
  want("a", data.a, g.a);
  want("b", data.b, g.b);
  want("c", data.c, g.c);
  want("d", data.d, g.d);
  want("z", data.z, g.z);
  want("delta_bias", data.delta_bias, g.delta_bias);
  want("initial_state", data.initial_state, g.initial_state);
  selective_scan_backward(plan, data.views(),
                          {.d_output = data.d_output, .d_final_state = data.d_final_state}, g,
                          {.executor = &executor});
  return list;
}

std::vector<std::string> kernels() {
  std::vector<std::string> names = list_selective_scan_kernels();
  std::erase_if(names, [](const std::string& name) {
    try {
      make_selective_scan_plan({}, {.channels = 1}, {.kernel = name});
    } catch (const InvalidArgument&) {
      return true;
    }
    return false;
  });
  return names;
}

// Blocks are 32 tokens, tiles 128 channels, vectors 4 to 16 elements, 4 or 8 elements of a state at a time.
std::vector<ScanCase> cases(bool small) {
  struct Sizes {
    std::int64_t batch, len, channels, groups, state_dim;
  };
  const std::vector<Sizes> sizes =
      small ? std::vector<Sizes>{{1, 1, 1, 1, 1}, {2, 7, 2, 2, 3}, {1, 5, 4, 2, 2}}
            : std::vector<Sizes>{{1, 1, 3, 1, 2},   {2, 33, 16, 1, 16}, {1, 0, 8, 2, 4},
                                 {3, 17, 40, 2, 5}, {1, 100, 5, 5, 9},  {2, 70, 300, 1, 16}};
  const std::vector<DType> dtypes = small
                                        ? std::vector<DType>{DType::f64}
                                        : std::vector<DType>{DType::f32, DType::f64, DType::bf16, DType::f16};
  std::vector<ScanCase> list;
  for (const CoveringRow& row : covering_array(
           {static_cast<int>(sizes.size()), static_cast<int>(dtypes.size()), 4, 2, 2, 2, 2, 2, 2})) {
    const Sizes& size = sizes[static_cast<std::size_t>(row[0])];
    ScanCase s{.spec = {row[3] ? StepSize::as_given : StepSize::softplus},
               .sequences = {size.batch, size.len, static_cast<Packing>(row[2])},
               .channels = size.channels,
               .groups = size.groups,
               .state_dim = size.state_dim,
               .dtype = dtypes[static_cast<std::size_t>(row[1])],
               .has_skip = row[4] == 0,
               .has_gate = row[5] == 0,
               .has_bias = row[6] == 0,
               .has_state = row[7] == 0,
               .fastest = row[8] ? -60.0 : -4.0,
               .seed = list.size() + 1};
    s.name = explain(plan_of(s, "reference")) + ", packing " + std::to_string(row[2]) + ", skip " +
             std::to_string(s.has_skip) + ", gate " + std::to_string(s.has_gate) + ", bias " +
             std::to_string(s.has_bias) + ", state " + std::to_string(s.has_state);
    list.push_back(s);
  }
  return list;
}

class SelectiveScan : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, SelectiveScan, ::testing::ValuesIn(kernels()), kernel_name);

// A state is a sum over tokens that forgets, with an exponential of error 3 eps in each step; an output is a
// sum of state_dim terms, gradients are sums over tokens or channels of them.
TEST_P(SelectiveScan, AgreesWithTheReference) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  for (const ScanCase& s : cases(false)) {
    const ScanData data(s);
    const double terms =
        static_cast<double>(s.sequences.batch * s.sequences.tokens() + s.channels + s.state_dim);
    const double tolerance = 16 * epsilon_of(s.dtype) * std::sqrt(terms);
    const SelectiveScanPlan plan = plan_of(s, GetParam()), reference = plan_of(s, "reference");
    EXPECT_EQ(difference(forward(plan, s, data), forward(reference, s, data), tolerance), "") << s.name;
    EXPECT_EQ(difference(backward(plan, data), backward(reference, data), tolerance), "") << s.name;
  }
}

TEST(SelectiveScanReference, GradientsAreCentralDifferences) {
  for (ScanCase s : cases(true)) {
    s.fastest = -4;
    const ScanData data(s);
    const SelectiveScanPlan plan = plan_of(s, "reference");
    const auto loss = [&] {
      const Named results = forward(plan, s, data);
      return finite_product(results[0].second, data.d_output) +
             finite_product(results[1].second, data.d_final_state);
    };
    expect_central_differences(loss, operands_of(data), backward(plan, data), s.name);
    if (HasFatalFailure()) return;
  }
}

ScanCase long_case() {
  return {.name = "long", .sequences = {2, 100}, .channels = 42, .groups = 2, .state_dim = 16};
}

// One channel with one element is h = e^(ΔA) h + Δ B x: a recurrence with a scalar decay, key and query of
// one element.
TEST_P(SelectiveScan, OfOneElementIsARecurrenceWithAScalarDecay) {
  ScanCase s{.spec = {StepSize::as_given}, .sequences = {1, 70}, .channels = 1, .groups = 1, .state_dim = 1};
  s.has_skip = s.has_gate = s.has_bias = s.has_state = false;
  const ScanData data(s);
  const Tensor value(DType::f32, {1, 1, 70, 1}), gates(DType::f32, {1, 1, 70}),
      output(DType::f32, {1, 1, 70, 1});
  for (std::int64_t t = 0; t < 70; ++t) {
    set_element(value, t, element(data.delta, t) * element(data.x, t));
    set_element(gates, t, element(data.delta, t) * element(data.a, 0));
  }
  const RecurrencePlan plan = make_recurrence_plan({.decay = ScalarDecay{}, .scale = 1.0},
                                                   {.len = 70, .key_dim = 1}, {.kernel = "reference"});
  const std::int64_t strides[]{70, 70, 1, 1};
  const auto as_rows = [&](const Tensor& x) {
    return ConstTensorView(x.raw(), DType::f32, {1, 1, 70, 1}, strides);
  };
  recur(plan, {.query = as_rows(data.c), .key = as_rows(data.b), .value = value, .log_decay = gates},
        {.output = output});
  const Tensor got = forward(plan_of(s, GetParam()), s, data)[0].second;
  for (std::int64_t t = 0; t < 70; ++t) EXPECT_NEAR(element(got, t), element(output, t), 70 * 0x1p-23);
}

// Tokens [begin, begin + count) of a call.
SelectiveScanInputs tokens_of(const ScanData& data, std::int64_t begin, std::int64_t count,
                              const Tensor& state) {
  SelectiveScanInputs in = data.views();
  for (ConstTensorView* view : {&in.x, &in.delta, &in.b, &in.c, &in.z}) *view = view->slice(1, begin, count);
  in.initial_state = state;
  return in;
}

TEST_P(SelectiveScan, AnyCutKeepsTheBits) {
  if (GetParam() == "reference") GTEST_SKIP() << "its sums are double, and a state would round them";
  const ScanCase s = long_case();
  const ScanData data(s);
  const SelectiveScanPlan plan = plan_of(s, GetParam());
  const Named whole = forward(plan, s, data);
  for (const std::int64_t cut : {0, 1, 31, 32, 50, 99}) {
    const Tensor output = unwritten(s.dtype, s.tokens()), state = data.initial_state.clone();
    for (const auto& [begin, count] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, 100 - cut}})
      selective_scan(plan, tokens_of(data, begin, count, state),
                     {.output = output.view().slice(1, begin, count), .final_state = state});
    expect_same_bits({output, state}, {whole[0].second, whole[1].second});
  }
}

// Gradients of two calls, of which the second hands the derivative by its state to the first.
TEST_P(SelectiveScan, GradientsGoThroughACut) {
  const ScanCase s = long_case();
  const ScanData data(s);
  const SelectiveScanPlan plan = plan_of(s, GetParam());
  const Named whole = backward(plan, data);
  const std::int64_t cut = 37, rest = 63;
  const Tensor middle = unwritten_like(data.initial_state), d_middle = unwritten_like(middle),
               d_initial = unwritten_like(middle), d_x = unwritten_like(data.x);
  selective_scan(plan, tokens_of(data, 0, cut, data.initial_state), {.final_state = middle});
  const ConstTensorView d_output = data.d_output;
  selective_scan_backward(plan, tokens_of(data, cut, rest, middle),
                          {.d_output = d_output.slice(1, cut, rest), .d_final_state = data.d_final_state},
                          {.x = d_x.view().slice(1, cut, rest), .initial_state = d_middle});
  selective_scan_backward(plan, tokens_of(data, 0, cut, data.initial_state),
                          {.d_output = d_output.slice(1, 0, cut), .d_final_state = d_middle},
                          {.x = d_x.view().slice(1, 0, cut), .initial_state = d_initial});
  expect_near(d_x, whole[0].second, 100 * 0x1p-23, "gradient of x");
  expect_near(d_initial, whole.back().second, 100 * 0x1p-23, "gradient of the state");
}

TEST_P(SelectiveScan, APackedSequenceGivesTheBitsOfACallOfItsOwn) {
  ScanCase s = long_case();
  s.sequences.packing = Packing::packed;
  const ScanData data(s);
  const SelectiveScanPlan plan = plan_of(s, GetParam());
  const Named all = forward(plan, s, data);
  for (std::size_t n = 0; n < 4; ++n) {
    const std::int64_t begin = data.starts[n], count = data.starts[n + 1] - begin;
    const auto number = static_cast<std::int64_t>(n);
    const Tensor output = unwritten(s.dtype, {1, count, s.channels}),
                 state = Tensor::copy_of(data.initial_state.view().slice(0, number, 1));
    SelectiveScanInputs in = tokens_of(data, begin, count, state);
    in.sequence_starts = {};
    selective_scan(plan, in, {.output = output, .final_state = state});
    expect_same_bits({output, state}, {Tensor::copy_of(all[0].second.view().slice(1, begin, count)),
                                       Tensor::copy_of(all[1].second.view().slice(0, number, 1))});
  }
}

TEST_P(SelectiveScan, EveryThreadCountGivesTheSameBits) {
  ScanCase s = long_case();
  s.channels = 280;  // three tiles of a group
  const ScanData data(s);
  const SelectiveScanPlan plan = plan_of(s, GetParam());
  expect_same_bits_for_every_thread_count([&](Executor& executor) {
    std::vector<Tensor> results;
    for (const auto& [name, tensor] : forward(plan, s, data, executor)) results.push_back(tensor);
    for (const auto& [name, tensor] : backward(plan, data, executor)) results.push_back(tensor);
    return results;
  });
}

TEST_P(SelectiveScan, AWorkspaceOfThePlansSizeIsEnough) {
  ScanCase s = long_case();
  s.sequences.packing = Packing::packed_and_masked;
  const ScanData data(s);
  const SelectiveScanPlan plan = plan_of(s, GetParam());
  const auto pool = make_thread_pool(2);
  const Tensor output = unwritten(s.dtype, s.tokens());
  std::vector<std::byte> memory(workspace_bytes(plan, 2)), more(backward_workspace_bytes(plan, 2));
  EXPECT_NO_THROW(selective_scan(plan, data.views(), {.output = output}, {pool.get(), memory}));
  EXPECT_THROW(
      selective_scan(plan, data.views(), {.output = output}, {pool.get(), std::span(memory).first(8)}),
      InvalidArgument);
  EXPECT_NO_THROW(selective_scan_backward(plan, data.views(), {.d_output = data.d_output}, {.x = output},
                                          {pool.get(), more}));
}

TEST(SelectiveScanCalls, RefuseWhatDoesNotFit) {
  ScanCase s = long_case();
  s.spec.step_size = StepSize::as_given;
  const ScanData data(s);
  const SelectiveScanPlan plan = plan_of(s, "");
  const Tensor output = unwritten(s.dtype, s.tokens()), other = Tensor::zeros(DType::f32, {2, 100, 20});
  using In = SelectiveScanInputs;
  using Out = SelectiveScanOutputs;
  const auto refused = [&](const std::function<void(In&, Out&)>& spoil, const std::string& argument) {
    In in = data.views();
    Out out{.output = output};
    spoil(in, out);
    expect_refused([&] { selective_scan(plan, in, out); }, "selective_scan", argument);
    EXPECT_TRUE(std::isnan(element(output, 0)));
  };
  for (const auto& [name, view] :
       std::vector<std::pair<std::string, ConstTensorView In::*>>{{"x", &In::x},
                                                                  {"delta", &In::delta},
                                                                  {"a", &In::a},
                                                                  {"b", &In::b},
                                                                  {"c", &In::c},
                                                                  {"d", &In::d},
                                                                  {"z", &In::z},
                                                                  {"delta_bias", &In::delta_bias},
                                                                  {"initial_state", &In::initial_state}})
    refused([&, member = view](In& in, Out&) { in.*member = other; }, name);
  refused([&](In& in, Out&) { in.b = {}; }, "b");
  refused([&](In&, Out& out) { out = {}; }, "output");
  refused([&](In&, Out& out) { out.output = data.x; }, "output");
  refused([&](In&, Out& out) { out.final_state = other; }, "final_state");
  const Tensor growing = data.a.clone(), shrinking = data.delta.clone();
  set_element(growing, 5, 1e-3);
  set_element(shrinking, 5, -2);
  refused([&](In& in, Out&) { in.a = growing; }, "a");
  refused([&](In& in, Out&) { in.delta = shrinking; }, "delta");
  const auto backward_refused = [&](const SelectiveScanLoss& loss, const SelectiveScanGradients& g,
                                    const std::string& argument) {
    expect_refused([&] { selective_scan_backward(plan, data.views(), loss, g); }, "selective_scan_backward",
                   argument);
  };
  backward_refused({}, {.x = output}, "d_output");
  backward_refused({.d_output = data.d_output}, {.x = data.x}, "gradients.x");
  backward_refused({.d_output = data.d_output}, {.b = other}, "gradients.b");
}

TEST(SelectiveScanPlans, SayWhatRunsAndRefuseWrongSizes) {
  EXPECT_EQ(
      explain(make_selective_scan_plan({}, {.batch = 2, .len = 9, .channels = 6, .groups = 3, .state_dim = 4},
                                       {.kernel = "reference"})),
      "reference\nselective scan, softplus, batch 2, 9 tokens, 6 channels in 3 groups, state_dim 4, f32");
  const auto refused = [](const SelectiveScanShape& shape, const std::string& argument) {
    expect_refused([&] { make_selective_scan_plan({}, shape); }, "make_selective_scan_plan", argument);
  };
  refused({.channels = 0}, "shape.channels");
  refused({.len = -1, .channels = 1}, "shape.len");
  refused({.channels = 6, .groups = 4}, "shape.groups");
  refused({.channels = 6, .state_dim = 0}, "shape.state_dim");
  refused({.batch = 1 << 20, .len = 1 << 20, .channels = 2}, "shape");
  const SelectiveScanPlan plan = make_selective_scan_plan({}, {.channels = 1});
  expect_refused([&] { workspace_bytes(plan, 0); }, "workspace_bytes", "threads");
  expect_refused([&] { backward_workspace_bytes(plan, 0); }, "backward_workspace_bytes", "threads");
}

}  // namespace
}  // namespace fovea::testing

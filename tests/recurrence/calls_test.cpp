// What calls refuse, and that nothing is written then; workspaces; the texts of plans.
#include <gtest/gtest.h>

#include <functional>

#include "fovea/core/executor.h"
#include "plan/differences.h"
#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

RecurrenceCase gated_delta() {
  RecurrenceCase c{.spec = {.decay = ScalarDecay{}, .write = DeltaWrite{}}};
  c.shape = {.batch = 2,
             .num_query_heads = 1,
             .num_key_heads = 1,
             .num_heads = 2,
             .len = 9,
             .key_dim = 6,
             .value_dim = 5};
  return c;
}

// A call that fits, for tests to spoil.
struct Call {
  RecurrenceCase c = gated_delta();
  RecurrenceData data{c};
  RecurrencePlan plan = make_recurrence_plan(c.spec, c.plan_shape());
  RecurrenceInputs inputs = data.views();
  Tensor output = unwritten(DType::f32, {2, 2, 9, 5}), state = unwritten(DType::f32, {2, 2, 6, 5});
  RecurrenceOutputs outputs{.output = output, .final_state = state};
};

// The argument that recur refuses; "" where it does not. What is refused writes nothing.
std::string refused(Call& call) {
  try {
    recur(call.plan, call.inputs, call.outputs);
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "recur");
    for (const Tensor* tensor : {&call.output, &call.state}) {
      for (std::int64_t i = 0; i < tensor->count(); ++i) EXPECT_TRUE(std::isnan(element(*tensor, i)));
    }
    return error.argument();
  }
  return "";
}
std::string refused(const std::function<void(Call&)>& spoil) {
  Call call;
  spoil(call);
  return refused(call);
}

// The argument that recur_backward refuses; "" where it does not.
std::string refused_backward(const Call& call, const ConstTensorView& saved_states) {
  const Tensor d_key = unwritten(DType::f32, {2, 1, 9, 6});
  try {
    recur_backward(call.plan, call.inputs,
                   {.d_final_state = call.data.d_final_state, .saved_states = saved_states}, {.key = d_key});
  } catch (const InvalidArgument& error) {
    EXPECT_TRUE(std::isnan(element(d_key, 0)));
    return error.argument();
  }
  return "";
}

TEST(RecurrenceCalls, RefuseSavedStatesThatDoNotFit) {
  Call call;
  const std::int64_t size = saved_states_size(call.plan, call.inputs);
  if (size == 0) GTEST_SKIP() << "the kernel saves none";
  const Tensor saved(DType::f32, {size}), longer(DType::f32, {size + 16});
  const auto refused_for = [&](const TensorView& states) {
    call.outputs.saved_states = states;
    return refused(call);
  };
  EXPECT_EQ(refused_for(longer), "saved_states");
  EXPECT_EQ(refused_for(Tensor(DType::f64, {size})), "saved_states");
  EXPECT_EQ(refused_for(longer.view().slice(0, 1, size)), "saved_states");  // not at 64 bytes
  EXPECT_EQ(refused_for(saved), "");
  EXPECT_EQ(refused_backward(call, saved), "");
  EXPECT_EQ(refused_backward(call, longer), "saved_states");
  // As many elements, by another spec.
  Call other;
  other.c.spec.write = DiagonalPlusLowRankWrite{};
  const RecurrencePlan plan = make_recurrence_plan(other.c.spec, other.c.plan_shape());
  const RecurrenceData data(other.c);
  const Tensor state(DType::f32, {2, 2, 6, 5}), foreign(DType::f32, {size});
  recur(plan, data.views(), {.final_state = state, .saved_states = foreign});
  EXPECT_EQ(refused_backward(call, foreign), "saved_states");
}

TEST(RecurrenceCalls, SaveNothingTokenByToken) {
  Call call;
  const RecurrencePlan step = make_recurrence_plan(call.c.spec, call.c.plan_shape(), {.kernel = "reference"});
  EXPECT_EQ(saved_states_size(step, call.inputs), 0);
  call.plan = step;
  const Tensor some(DType::f32, {16});
  call.outputs.saved_states = some;
  EXPECT_EQ(refused(call), "saved_states");
}

TEST(RecurrenceCalls, TakeWhatFits) {
  EXPECT_EQ(refused([](Call&) {}), "");
  EXPECT_EQ(refused([](Call& call) { call.outputs.output = {}; }), "");
  EXPECT_EQ(refused([](Call& call) { call.outputs.final_state = call.data.inputs.initial_state.written; }),
            "");
  EXPECT_EQ(refused([](Call& call) {
              call.outputs.output = {};
              call.inputs.query = {};
            }),
            "");
}

TEST(RecurrenceCalls, RefuseInputsThatDoNotFit) {
  const Tensor other = Tensor::zeros(DType::f32, {2, 2, 9, 6}),
               wide = Tensor::zeros(DType::f64, {2, 2, 9, 5});
  EXPECT_EQ(refused([](Call& call) { call.inputs.query = {}; }), "query");
  EXPECT_EQ(refused([](Call& call) { call.inputs.key = {}; }), "key");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.key = other; }), "key");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.value = other; }), "value");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.value = wide; }), "value");
  EXPECT_EQ(refused([](Call& call) { call.inputs.log_decay = {}; }), "log_decay");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.log_decay = other; }), "log_decay");
  EXPECT_EQ(refused([](Call& call) { call.inputs.beta = {}; }), "beta");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.a = other; }), "a");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.bonus = other; }), "bonus");
  EXPECT_EQ(refused([&](Call& call) { call.inputs.initial_state = other; }), "initial_state");
  const std::vector<std::uint8_t> present(17, 1);
  EXPECT_EQ(refused([&](Call& call) { call.inputs.present = present; }), "present");
  // A state that is not contiguous.
  const Tensor states = Tensor::zeros(DType::f32, {2, 2, 6, 7});
  EXPECT_EQ(refused([&](Call& call) { call.inputs.initial_state = states.view().slice(3, 0, 5); }),
            "initial_state");
}

TEST(RecurrenceCalls, RefuseMoreThanThePlanHolds) {
  for (const bool fewer_entries : {true, false}) {
    Call call;
    RecurrenceShape small = call.c.shape;
    --(fewer_entries ? small.batch : small.len);
    call.plan = make_recurrence_plan(call.c.spec, small);
    EXPECT_EQ(refused(call), "key");
  }
}

TEST(RecurrenceCalls, RefuseAGateAbove0) {
  EXPECT_EQ(refused([](Call& call) { set_element(call.data.inputs.log_decay.storage, 31, 1e-6); }),
            "log_decay");
  // A token that is left out is not read.
  std::vector<std::uint8_t> present(18, 1);
  present[13] = 0;  // entry 1, token 4: head 1 of it is gate 31
  EXPECT_EQ(refused([&](Call& call) {
              set_element(call.data.inputs.log_decay.storage, 31, 1e-6);
              call.inputs.present = present;
            }),
            "");
}

TEST(RecurrenceCalls, RefuseStartsThatDoNotRiseToTheEnd) {
  const auto with = [](std::vector<std::int64_t> starts) {
    Call call;
    call.c.packing = Packing::packed;
    call.data = RecurrenceData(call.c);
    call.plan = make_recurrence_plan(call.c.spec, call.c.plan_shape());
    call.inputs = call.data.views();
    call.inputs.initial_state = {};
    call.inputs.sequence_starts = starts;
    call.output = unwritten(DType::f32, {1, 2, 18, 5});
    call.outputs = {.output = call.output};
    return refused(call);
  };
  EXPECT_EQ(with({0, 4, 4, 18}), "");
  EXPECT_EQ(with({0, 4, 17}), "sequence_starts");
  EXPECT_EQ(with({1, 4, 18}), "sequence_starts");
  EXPECT_EQ(with({0, 9, 4, 18}), "sequence_starts");
  EXPECT_EQ(with({0, 1, 2, 3, 4, 18}), "sequence_starts");  // five sequences, the plan's batch is 4
  const std::vector<std::int64_t> starts{0, 9};
  EXPECT_EQ(refused([&](Call& call) { call.inputs.sequence_starts = starts; }), "key");
}

TEST(RecurrenceCalls, RefuseOutputsThatDoNotFitOrShareMemory) {
  const Tensor other = unwritten(DType::f32, {2, 2, 9, 6});
  EXPECT_EQ(refused([](Call& call) { call.outputs = {}; }), "output");
  EXPECT_EQ(refused([&](Call& call) { call.outputs.output = other; }), "output");
  EXPECT_EQ(refused([&](Call& call) { call.outputs.final_state = other; }), "final_state");
  EXPECT_EQ(refused([](Call& call) { call.outputs.output = call.data.inputs.value.written; }), "output");
  EXPECT_EQ(refused([&](Call& call) { call.outputs.denominator = other.view().slice(3, 0, 1); }),
            "denominator");
  const std::int64_t none[]{0, 0, 0, 1};
  EXPECT_EQ(refused([&](Call& call) {
              call.outputs.output = TensorView(call.output.raw(), DType::f32, {2, 2, 9, 5}, none);
            }),
            "output");
}

// The argument that recur_backward refuses.
std::string refused_backward(const std::function<void(Call&, RecurrenceLoss&, RecurrenceGradients&)>& spoil) {
  Call call;
  const Tensor d_key = unwritten(DType::f32, {2, 1, 9, 6});
  RecurrenceLoss loss{.d_output = call.data.d_output.view};
  RecurrenceGradients gradients{.key = d_key};
  spoil(call, loss, gradients);
  try {
    recur_backward(call.plan, call.inputs, loss, gradients);
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "recur_backward");
    EXPECT_TRUE(std::isnan(element(d_key, 0)));
    return error.argument();
  }
  return "";
}

TEST(RecurrenceCalls, RefuseGradientsThatDoNotFit) {
  const Tensor other = unwritten(DType::f32, {2, 2, 9, 6});
  using Loss = RecurrenceLoss;
  using Gradients = RecurrenceGradients;
  EXPECT_EQ(refused_backward([](Call&, Loss&, Gradients&) {}), "");
  EXPECT_EQ(refused_backward([](Call&, Loss& loss, Gradients&) { loss = {}; }), "d_output");
  EXPECT_EQ(refused_backward([&](Call&, Loss& loss, Gradients&) { loss.d_output = other; }), "d_output");
  EXPECT_EQ(refused_backward([&](Call&, Loss& loss, Gradients&) { loss.d_final_state = other; }),
            "d_final_state");
  EXPECT_EQ(refused_backward([&](Call&, Loss&, Gradients& g) { g.value = other; }), "gradients.value");
  EXPECT_EQ(refused_backward([&](Call&, Loss&, Gradients& g) { g.a = other; }), "gradients.a");
  EXPECT_EQ(refused_backward([](Call& call, Loss&, Gradients& g) { g.key = call.data.inputs.key.written; }),
            "gradients.key");
}

// What a call with a sum of keys needs of its forward call.
TEST(RecurrenceCalls, BackwardOfASumNeedsItsOutputAndDenominator) {
  RecurrenceCase c = gated_delta();
  c.spec = {.feature_map = EluPlusOne{}, .normalizer = KeySum{}};
  const RecurrenceData data(c);
  const RecurrencePlan plan = make_recurrence_plan(c.spec, c.plan_shape());
  RecurrenceRun run;
  run_forward(plan, c, data, run);
  const Tensor d_key = unwritten(DType::f32, {2, 1, 9, 6});
  const auto backward = [&](const RecurrenceLoss& loss) {
    try {
      recur_backward(plan, data.views(), loss, {.key = d_key});
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string();
  };
  const ConstTensorView d_output = data.d_output.view, output = run.output.view, sums = run.denominator;
  EXPECT_EQ(backward({.d_output = d_output}), "output");
  EXPECT_EQ(backward({.d_output = d_output, .output = output}), "denominator");
  EXPECT_EQ(backward({.d_output = d_output, .output = output, .denominator = sums}), "");
}

// The last unit first.
class LastUnitFirst final : public Executor {
 public:
  int thread_count() const noexcept override { return 2; }
  void parallel_for(std::int64_t count, ParallelBody body) override {
    for (std::int64_t i = count; i-- > 0;) body(i, 0);
  }
};

// Two tiles of value columns. Both read the sums of keys, and one writes them.
TEST(RecurrenceCalls, TilesReadTheSumsThatOneWrites) {
  RecurrenceCase c = gated_delta();
  c.spec = {.feature_map = EluPlusOne{}, .normalizer = KeySum{}};
  c.shape.value_dim = 193;
  const RecurrenceData data(c);
  for (const std::string& kernel : runnable_recurrence_kernels()) {
    if (!runs(kernel, DType::f32)) continue;
    const RecurrencePlan plan = make_recurrence_plan(c.spec, c.plan_shape(), {.kernel = kernel});
    const Tensor initial = Tensor::copy_of(data.inputs.initial_state.view);
    LastUnitFirst executor;
    const auto results = [&](const Tensor& state) {
      RecurrenceInputs inputs = data.views();
      inputs.initial_state = initial;
      const Tensor output =
          unwritten(DType::f32, {c.entries(), plan.shape().num_output_heads(), c.len(), 193});
      recur(plan, inputs, {.output = output, .final_state = state}, {.executor = &executor});
      return std::vector<Tensor>{output, state};
    };
    SCOPED_TRACE(kernel);
    const std::vector<Tensor> beside = results(unwritten_like(initial));
    expect_same_bits(results(initial), beside);
  }
}

TEST(RecurrenceCalls, AWorkspaceOfThePlansSizeIsEnough) {
  for (const std::string& kernel : runnable_recurrence_kernels()) {
    if (!runs(kernel, DType::f32)) continue;  // the case table gives it no more memory either
    Call call;
    const auto pool = make_thread_pool(2);
    call.plan = make_recurrence_plan(call.c.spec, call.c.plan_shape(), {.kernel = kernel});
    std::vector<std::byte> memory(workspace_bytes(call.plan, 2));
    const CallResources enough{pool.get(), memory}, little{pool.get(), std::span(memory).first(64)};
    EXPECT_NO_THROW(recur(call.plan, call.inputs, call.outputs, enough));
    EXPECT_THROW(recur(call.plan, call.inputs, call.outputs, little), InvalidArgument);
    std::vector<std::byte> backward(backward_workspace_bytes(call.plan, 2));
    const Tensor d_key = unwritten(DType::f32, {2, 1, 9, 6});
    EXPECT_NO_THROW(recur_backward(call.plan, call.inputs, {.d_output = call.data.d_output.view},
                                   {.key = d_key}, {pool.get(), backward}));
  }
}

TEST(RecurrenceCalls, RefuseWorkspacesOfNoThreads) {
  const Call call;
  EXPECT_THROW(workspace_bytes(call.plan, 0), InvalidArgument);
  EXPECT_THROW(backward_workspace_bytes(call.plan, -1), InvalidArgument);
}

TEST(RecurrencePlans, SayWhatRuns) {
  const Call call;
  const RecurrencePlan plan = make_recurrence_plan(call.c.spec, call.c.plan_shape(), {.kernel = "reference"});
  EXPECT_EQ(explain(plan),
            "reference\n"
            "scalar decay, delta write, read after write, scale 0.4082482904638631\n"
            "batch 2, heads 1/1/2 of queries, keys, states, 9 tokens, key_dim 6, value_dim 5, f32");
  EXPECT_EQ(plan.kernel(), "reference");
  EXPECT_EQ(plan.chunk(), 1);
}

TEST(RecurrencePlans, RefuseKernelsThatDoNotExist) {
  const Call call;
  try {
    make_recurrence_plan(call.c.spec, call.c.plan_shape(), {.kernel = "avx1024"});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "options.kernel");
    EXPECT_NE(error.expected().find("reference"), std::string::npos);
  }
}

}  // namespace
}  // namespace fovea::testing

// causal_conv and its backward: the plan, the checks and the calls.
#include "fovea/plan/causal_conv.h"

#include "core/check_size.h"
#include "fovea/core/kept_vector.h"
#include "kernels/recurrence/causal_conv.h"
#include "plan/recurrence/choose.h"
#include "plan/recurrence/stored.h"
#include "plan/rows.h"
#include "plan/small_calls.h"
#include "plan/workspace.h"

namespace fovea {

struct CausalConvPlan::Impl {
  CausalConvSpec spec;
  CausalConvShape shape;
  DType dtype = DType::f32;
  const kernels::ConvCandidate* candidate = nullptr;
  KeptVector<RecurrenceRefusal> refusals;

  DType wide() const { return wide_dtype(dtype); }
  Shape tokens(const RecurrenceSizes& sizes) const { return {sizes.entries, sizes.len, shape.channels}; }
  Shape weight() const { return {shape.channels, spec.width}; }
  Shape bias() const { return {shape.channels}; }
  Shape states(const RecurrenceSizes& sizes) const { return state_shape(spec, shape, sizes.sequences); }
};

namespace {

using Plan = CausalConvPlan::Impl;

constexpr const char* make_conv_plan_name = "make_causal_conv_plan";

// About how many multiply-adds a call takes. The activation counts as 16.
double multiply_adds(const Plan& plan, const RecurrenceSizes& sizes) {
  return static_cast<double>(sizes.entries * sizes.len * plan.shape.channels) *
         static_cast<double>(plan.spec.width + 16);
}

RecurrenceSizes check_inputs(const char* function, const Plan& plan, const CausalConvInputs& inputs) {
  if (inputs.x.rank() != 3)
    throw InvalidArgument(function, "x", "[batch, len, channels]", described(inputs.x));
  const RecurrenceSizes sizes =
      check_sequences(function, "x", inputs.x, inputs.x.size(1), {inputs.sequence_starts, inputs.present},
                      {plan.shape.batch, plan.shape.len});
  check_view(function, "x", inputs.x, plan.dtype, plan.tokens(sizes));
  check_contiguous(function, "weight", inputs.weight, plan.wide(), plan.weight());
  if (is_given(inputs.bias)) check_contiguous(function, "bias", inputs.bias, plan.wide(), plan.bias());
  if (is_given(inputs.initial_state))
    check_contiguous(function, "initial_state", inputs.initial_state, plan.wide(), plan.states(sizes));
  return sizes;
}

void reads_inputs(OverlapCheck& overlaps, const CausalConvInputs& inputs) {
  overlaps.reads("x", inputs.x);
  overlaps.reads("weight", inputs.weight);
  overlaps.reads("bias", inputs.bias);
}

void check_outputs(const char* function, const Plan& plan, const CausalConvInputs& inputs,
                   const CausalConvOutputs& outputs, const RecurrenceSizes& sizes) {
  const CallStates states = states_of(inputs, outputs);
  if (!is_given(outputs.output) && !states.wants_final())
    throw InvalidArgument(function, "output", "an output or a final state", "neither");
  if (is_given(outputs.output))
    check_written(function, "output", outputs.output, plan.dtype, plan.tokens(sizes));
  check_states(function, states, plan.wide(), plan.states(sizes));
  OverlapCheck overlaps(function);
  overlaps.writes("output", outputs.output);
  add_states(overlaps, states);
  reads_inputs(overlaps, inputs);
  overlaps.check();
}

void check_gradients(const char* function, const Plan& plan, const CausalConvInputs& inputs,
                     const CausalConvLoss& loss, const CausalConvGradients& g, const RecurrenceSizes& sizes) {
  refuse_state_list(function, "initial_states", inputs.initial_states.size());
  if (!is_given(loss.d_output) && !is_given(loss.d_final_state))
    throw InvalidArgument(function, "d_output", "a derivative by the output or by the final state",
                          "neither");
  if (is_given(loss.d_output))
    check_view(function, "d_output", loss.d_output, plan.dtype, plan.tokens(sizes));
  if (is_given(loss.d_final_state))
    check_contiguous(function, "d_final_state", loss.d_final_state, plan.wide(), plan.states(sizes));
  if (is_given(g.x)) check_written(function, "gradients.x", g.x, plan.dtype, plan.tokens(sizes));
  if (is_given(g.weight))
    check_contiguous(function, "gradients.weight", g.weight, plan.wide(), plan.weight());
  if (is_given(g.bias) && !is_given(inputs.bias))
    throw InvalidArgument(function, "gradients.bias", "nothing, because there is no bias", described(g.bias));
  if (is_given(g.bias)) check_contiguous(function, "gradients.bias", g.bias, plan.wide(), plan.bias());
  if (is_given(g.initial_state))
    check_contiguous(function, "gradients.initial_state", g.initial_state, plan.wide(), plan.states(sizes));
  OverlapCheck overlaps(function);
  reads_inputs(overlaps, inputs);
  overlaps.reads("initial_state", inputs.initial_state);
  overlaps.reads("d_output", loss.d_output);
  overlaps.reads("d_final_state", loss.d_final_state);
  overlaps.writes("gradients.x", g.x);
  overlaps.writes("gradients.weight", g.weight);
  overlaps.writes("gradients.bias", g.bias);
  overlaps.writes("gradients.initial_state", g.initial_state);
  overlaps.check();
}

template <class T>
kernels::ConvProblem<T> problem_of(const Plan& plan, const CausalConvInputs& inputs,
                                   const RecurrenceSizes& sizes,
                                   std::span<const kernels::TokenSequence> sequences) {
  return {.channels = plan.shape.channels,
          .width = plan.spec.width,
          .silu = plan.spec.activation == ConvActivation::silu,
          .sequences = sequences.data(),
          .sequence_count = sizes.sequences,
          .rows = sizes.entries * sizes.len,
          .x = stored_rows(inputs.x),
          .weight = inputs.weight.data<T>(),
          .bias = data_or_null<T>(inputs.bias),
          .initial_state = {data_or_null<T>(inputs.initial_state)}};
}

std::size_t bytes_of(const Plan& plan, const RecurrenceSizes& sizes, int threads, Pass pass) {
  return channel_call_bytes(plan, sizes, threads, pass, [&](auto t) {
    return kernels::ConvProblem<decltype(t)>{.channels = plan.shape.channels,
                                             .width = plan.spec.width,
                                             .sequence_count = sizes.sequences,
                                             .rows = sizes.entries * sizes.len};
  });
}

}  // namespace

const CausalConvSpec& CausalConvPlan::spec() const noexcept {
  return impl_->spec;
}
const CausalConvShape& CausalConvPlan::shape() const noexcept {
  return impl_->shape;
}
DType CausalConvPlan::dtype() const noexcept {
  return impl_->dtype;
}
std::string_view CausalConvPlan::kernel() const noexcept {
  return impl_->candidate->name;
}

CausalConvPlan make_causal_conv_plan(const CausalConvSpec& spec, const CausalConvShape& shape,
                                     const RecurrenceOptions& options) {
  if (spec.width < 2 || spec.width > kernels::conv_most_width) {
    throw InvalidArgument(make_conv_plan_name, "spec.width",
                          "from 2 to " + std::to_string(kernels::conv_most_width),
                          std::to_string(spec.width));
  }
  check_size(make_conv_plan_name, "shape.batch", shape.batch, 0);
  check_size(make_conv_plan_name, "shape.len", shape.len, 0);
  check_size(make_conv_plan_name, "shape.channels", shape.channels, 1);
  check_elements(make_conv_plan_name, {shape.batch, shape.len, shape.channels});
  auto plan = make_kept<Plan>();
  plan->spec = spec;
  plan->shape = shape;
  plan->dtype = options.dtype;
  plan->candidate = choose_candidate<kernels::ConvCandidate>(
      {make_conv_plan_name, options.kernel, plan->refusals}, kernels::conv_candidates(),
      [](const kernels::ConvCandidate&, bool) -> const char* { return nullptr; });
  return CausalConvPlan(plan);
}

std::string explain(const CausalConvPlan& plan) {
  const CausalConvShape& s = plan.shape();
  std::string text = std::string(plan.kernel()) + text_of(plan.impl().refusals);
  text += "\ncausal convolution, width " + std::to_string(plan.spec().width);
  if (plan.spec().activation == ConvActivation::silu) text += ", SiLU";
  return text + ", batch " + std::to_string(s.batch) + ", " + std::to_string(s.len) + " tokens, " +
         std::to_string(s.channels) + " channels, " + std::string(to_string(plan.dtype()));
}

std::vector<std::string> list_causal_conv_kernels() {
  return names_of<kernels::ConvCandidate>(kernels::conv_candidates());
}

Shape state_shape(const CausalConvSpec& spec, const CausalConvShape& shape, std::int64_t batch) {
  return {batch, spec.width - 1, shape.channels};
}

std::size_t workspace_bytes(const CausalConvPlan& plan, int threads) {
  check_threads("workspace_bytes", threads);
  return bytes_of(plan.impl(), largest_call(plan.shape()), threads, Pass::forward) + workspace_slack;
}
std::size_t backward_workspace_bytes(const CausalConvPlan& plan, int threads) {
  check_threads("backward_workspace_bytes", threads);
  return bytes_of(plan.impl(), largest_call(plan.shape()), threads, Pass::backward) + workspace_slack;
}

void causal_conv(const CausalConvPlan& plan, const CausalConvInputs& inputs, const CausalConvOutputs& outputs,
                 const CallResources& resources) {
  constexpr const char* function = "causal_conv";
  const Plan& impl = plan.impl();
  const RecurrenceSizes sizes = check_inputs(function, impl, inputs);
  check_outputs(function, impl, inputs, outputs, sizes);
  Executor& executor = executor_of(resources, multiply_adds(impl, sizes));
  Carver carver(workspace_of(function, resources.workspace,
                             bytes_of(impl, sizes, executor.thread_count(), Pass::forward)));
  const auto sequences = make_sequences({inputs.sequence_starts, inputs.present}, sizes, carver);
  if (!inputs.present.empty()) clear_rows(outputs.output, executor);
  with_wide_type(impl.dtype, [&](auto t) {
    using T = decltype(t);
    const auto places = make_state_places<T>(states_of(inputs, outputs), sizes.sequences, carver);
    auto problem = problem_of<T>(impl, inputs, sizes, sequences);
    problem.initial_state = places.initial;
    impl.candidate->code<T>().forward(problem, {stored_rows(outputs.output), places.final}, executor,
                                      carver.rest().data());
  });
}

void causal_conv_backward(const CausalConvPlan& plan, const CausalConvInputs& inputs,
                          const CausalConvLoss& loss, const CausalConvGradients& gradients,
                          const CallResources& resources) {
  constexpr const char* function = "causal_conv_backward";
  const Plan& impl = plan.impl();
  const RecurrenceSizes sizes = check_inputs(function, impl, inputs);
  check_gradients(function, impl, inputs, loss, gradients, sizes);
  Executor& executor = executor_of(resources, 2.0 * multiply_adds(impl, sizes));
  Carver carver(workspace_of(function, resources.workspace,
                             bytes_of(impl, sizes, executor.thread_count(), Pass::backward)));
  const auto sequences = make_sequences({inputs.sequence_starts, inputs.present}, sizes, carver);
  if (!inputs.present.empty()) clear_rows(gradients.x, executor);
  with_wide_type(impl.dtype, [&](auto t) {
    using T = decltype(t);
    impl.candidate->code<T>().backward(
        problem_of<T>(impl, inputs, sizes, sequences),
        {stored_rows(loss.d_output), data_or_null<T>(loss.d_final_state), stored_rows(gradients.x),
         data_or_null<T>(gradients.weight), data_or_null<T>(gradients.bias),
         data_or_null<T>(gradients.initial_state)},
        executor, carver.rest().data());
  });
}

}  // namespace fovea

// selective_scan and its backward: the plan, the checks and the calls.
#include "fovea/plan/selective_scan.h"

#include <array>
#include <atomic>

#include "core/check_size.h"
#include "core/shortest.h"
#include "fovea/core/kept_vector.h"
#include "kernels/recurrence/scan.h"
#include "plan/recurrence/choose.h"
#include "plan/recurrence/stored.h"
#include "plan/rows.h"
#include "plan/small_calls.h"
#include "plan/workspace.h"

namespace fovea {

struct SelectiveScanPlan::Impl {
  SelectiveScanSpec spec;
  SelectiveScanShape shape;
  DType dtype = DType::f32;
  const kernels::ScanCandidate* candidate = nullptr;
  KeptVector<RecurrenceRefusal> refusals;

  DType wide() const { return wide_dtype(dtype); }
};

namespace {

using Plan = SelectiveScanPlan::Impl;
using Inputs = SelectiveScanInputs;
using Gradients = SelectiveScanGradients;

constexpr const char* make_scan_plan_name = "make_selective_scan_plan";

// What the tensors of a call have in their rows.
enum class Kind : std::uint8_t { channels, pairs, rates, numbers, states };

struct Field {
  const char* name;
  const char* gradient_name;
  ConstTensorView Inputs::*input;
  TensorView Gradients::*gradient;
  Kind kind;
  bool required;
};
constexpr std::array<Field, 9> fields{
    {{"x", "gradients.x", &Inputs::x, &Gradients::x, Kind::channels, true},
     {"delta", "gradients.delta", &Inputs::delta, &Gradients::delta, Kind::channels, true},
     {"a", "gradients.a", &Inputs::a, &Gradients::a, Kind::rates, true},
     {"b", "gradients.b", &Inputs::b, &Gradients::b, Kind::pairs, true},
     {"c", "gradients.c", &Inputs::c, &Gradients::c, Kind::pairs, true},
     {"d", "gradients.d", &Inputs::d, &Gradients::d, Kind::numbers, false},
     {"z", "gradients.z", &Inputs::z, &Gradients::z, Kind::channels, false},
     {"delta_bias", "gradients.delta_bias", &Inputs::delta_bias, &Gradients::delta_bias, Kind::numbers,
      false},
     {"initial_state", "gradients.initial_state", &Inputs::initial_state, &Gradients::initial_state,
      Kind::states, false}}};

// About how many multiply-adds a call takes. An exponential counts as 16.
double multiply_adds(const Plan& plan, const RecurrenceSizes& sizes) {
  const SelectiveScanShape& s = plan.shape;
  return 18.0 * static_cast<double>(sizes.entries * sizes.len * s.channels) *
         static_cast<double>(s.state_dim);
}

Shape shape_of(const Plan& plan, const RecurrenceSizes& sizes, Kind kind) {
  const SelectiveScanShape& s = plan.shape;
  switch (kind) {
    case Kind::channels:
      return {sizes.entries, sizes.len, s.channels};
    case Kind::pairs:
      return {sizes.entries, sizes.len, s.groups, s.state_dim};
    case Kind::rates:
      return {s.channels, s.state_dim};
    case Kind::numbers:
      return {s.channels};
    case Kind::states:
      break;
  }
  return state_shape(s, sizes.sequences);
}

void check_field(const char* function, const char* name, const ConstTensorView& view, const Plan& plan,
                 const RecurrenceSizes& sizes, Kind kind) {
  const Shape shape = shape_of(plan, sizes, kind);
  if (kind == Kind::channels || kind == Kind::pairs)
    check_view(function, name, view, plan.dtype, shape);
  else
    check_contiguous(function, name, view, plan.wide(), shape);
}

RecurrenceSizes check_inputs(const char* function, const Plan& plan, const Inputs& inputs) {
  if (inputs.x.rank() != 3)
    throw InvalidArgument(function, "x", "[batch, len, channels]", described(inputs.x));
  const RecurrenceSizes sizes =
      check_sequences(function, "x", inputs.x, inputs.x.size(1), {inputs.sequence_starts, inputs.present},
                      {plan.shape.batch, plan.shape.len});
  for (const Field& field : fields) {
    const ConstTensorView& view = inputs.*field.input;
    if (field.required || is_given(view)) check_field(function, field.name, view, plan, sizes, field.kind);
  }
  return sizes;
}

void check_outputs(const char* function, const Plan& plan, const Inputs& inputs,
                   const SelectiveScanOutputs& outputs, const RecurrenceSizes& sizes) {
  const CallStates states = states_of(inputs, outputs);
  if (!is_given(outputs.output) && !states.wants_final())
    throw InvalidArgument(function, "output", "an output or a final state", "neither");
  if (is_given(outputs.output))
    check_written(function, "output", outputs.output, plan.dtype, shape_of(plan, sizes, Kind::channels));
  check_states(function, states, plan.wide(), shape_of(plan, sizes, Kind::states));
  OverlapCheck overlaps(function);
  overlaps.writes("output", outputs.output);
  add_states(overlaps, states);
  for (const Field& field : fields) {
    if (field.kind != Kind::states) overlaps.reads(field.name, inputs.*field.input);
  }
  overlaps.check();
}

void check_gradients(const char* function, const Plan& plan, const Inputs& inputs,
                     const SelectiveScanLoss& loss, const Gradients& gradients,
                     const RecurrenceSizes& sizes) {
  refuse_state_list(function, "initial_states", inputs.initial_states.size());
  if (!is_given(loss.d_output) && !is_given(loss.d_final_state))
    throw InvalidArgument(function, "d_output", "a derivative by the output or by the final state",
                          "neither");
  if (is_given(loss.d_output)) check_field(function, "d_output", loss.d_output, plan, sizes, Kind::channels);
  if (is_given(loss.d_final_state))
    check_field(function, "d_final_state", loss.d_final_state, plan, sizes, Kind::states);
  OverlapCheck overlaps(function);
  overlaps.reads("d_output", loss.d_output);
  overlaps.reads("d_final_state", loss.d_final_state);
  for (const Field& field : fields) {
    const TensorView& view = gradients.*field.gradient;
    overlaps.reads(field.name, inputs.*field.input);
    if (!is_given(view)) continue;
    if (!is_given(inputs.*field.input) && field.kind != Kind::states)
      throw InvalidArgument(function, field.gradient_name,
                            std::string("nothing, because there is no ") + field.name, described(view));
    check_field(function, field.gradient_name, view, plan, sizes, field.kind);
    check_distinct_elements(function, field.gradient_name, view);
    overlaps.writes(field.gradient_name, view);
  }
  overlaps.check();
}

template <class T>
kernels::ScanProblem<T> problem_of(const Plan& plan, const Inputs& inputs, const RecurrenceSizes& sizes,
                                   std::span<const kernels::TokenSequence> sequences) {
  const SelectiveScanShape& s = plan.shape;
  kernels::ScanProblem<T> p{.channels = s.channels,
                            .groups = s.groups,
                            .state_dim = s.state_dim,
                            .softplus = plan.spec.step_size == StepSize::softplus,
                            .sequences = sequences.data(),
                            .sequence_count = sizes.sequences,
                            .len = sizes.len,
                            .rows = sizes.entries * sizes.len,
                            .longest = std::min(sizes.len, s.len)};
  p.x = stored_rows(inputs.x);
  p.delta = stored_rows(inputs.delta);
  p.z = stored_rows(inputs.z);
  p.b = stored_rows(inputs.b);
  p.c = stored_rows(inputs.c);
  if (inputs.b) p.b_group = inputs.b.stride(2);
  if (inputs.c) p.c_group = inputs.c.stride(2);
  p.a = data_or_null<T>(inputs.a);
  p.d = data_or_null<T>(inputs.d);
  p.delta_bias = data_or_null<T>(inputs.delta_bias);
  p.initial_state.data = data_or_null<T>(inputs.initial_state);
  return p;
}

// Decays are at most 1 if A is at most 0 and Δ at least 0. NaN passes: it reaches the output.
template <class T>
void check_rates(const char* function, const kernels::ScanProblem<T>& p, Executor& executor) {
  for (std::int64_t i = 0; i < p.channels * p.state_dim; ++i) {
    if (p.a[i] > T(0)) throw InvalidArgument(function, "a", "numbers of at most 0", shortest(double(p.a[i])));
  }
  if (p.softplus) return;
  std::atomic<double> found{0};
  executor.parallel_for(p.sequence_count, [&](std::int64_t n, int) {
    constexpr std::int64_t most = 256;
    const kernels::TokenSequence& sequence = p.sequences[n];
    T piece[most];
    for (std::int64_t t = 0; t < sequence.count; ++t) {
      for (std::int64_t first = 0; first < p.channels; first += most) {
        const std::int64_t count = std::min(most, p.channels - first);
        kernels::read_stored(p.delta, sequence.entry, sequence.row(t), first, count, piece);
        for (std::int64_t i = 0; i < count; ++i) {
          const T step = piece[i] + (p.delta_bias ? p.delta_bias[first + i] : T(0));
          if (step < T(0)) found = static_cast<double>(step);
        }
      }
    }
  });
  if (found < 0) throw InvalidArgument(function, "delta", "steps of at least 0", shortest(found.load()));
}

std::size_t bytes_of(const Plan& plan, const RecurrenceSizes& sizes, int threads, Pass pass) {
  return channel_call_bytes(plan, sizes, threads, pass,
                            [&](auto t) { return problem_of<decltype(t)>(plan, {}, sizes, {}); });
}

}  // namespace

const SelectiveScanSpec& SelectiveScanPlan::spec() const noexcept {
  return impl_->spec;
}
const SelectiveScanShape& SelectiveScanPlan::shape() const noexcept {
  return impl_->shape;
}
DType SelectiveScanPlan::dtype() const noexcept {
  return impl_->dtype;
}
std::string_view SelectiveScanPlan::kernel() const noexcept {
  return impl_->candidate->name;
}

SelectiveScanPlan make_selective_scan_plan(const SelectiveScanSpec& spec, const SelectiveScanShape& shape,
                                           const RecurrenceOptions& options) {
  check_size(make_scan_plan_name, "shape.batch", shape.batch, 0);
  check_size(make_scan_plan_name, "shape.len", shape.len, 0);
  check_size(make_scan_plan_name, "shape.channels", shape.channels, 1);
  check_size(make_scan_plan_name, "shape.groups", shape.groups, 1);
  check_size(make_scan_plan_name, "shape.state_dim", shape.state_dim, 1);
  if (shape.channels % shape.groups != 0)
    throw InvalidArgument(make_scan_plan_name, "shape.groups",
                          "a divisor of the " + std::to_string(shape.channels) + " channels",
                          std::to_string(shape.groups));
  check_elements(make_scan_plan_name, {shape.batch, shape.len, shape.channels});
  check_elements(make_scan_plan_name, {shape.batch, shape.channels, shape.state_dim});
  check_elements(make_scan_plan_name, {shape.batch, shape.len, shape.groups, shape.state_dim});
  auto plan = make_kept<Plan>();
  plan->spec = spec;
  plan->shape = shape;
  plan->dtype = options.dtype;
  plan->candidate = choose_candidate<kernels::ScanCandidate>(
      {make_scan_plan_name, options.kernel, plan->refusals}, kernels::scan_candidates(),
      [](const kernels::ScanCandidate&, bool) -> const char* { return nullptr; });
  return SelectiveScanPlan(plan);
}

std::string explain(const SelectiveScanPlan& plan) {
  const SelectiveScanShape& s = plan.shape();
  std::string text = std::string(plan.kernel()) + text_of(plan.impl().refusals);
  text += "\nselective scan";
  if (plan.spec().step_size == StepSize::softplus) text += ", softplus";
  return text + ", batch " + std::to_string(s.batch) + ", " + std::to_string(s.len) + " tokens, " +
         std::to_string(s.channels) + " channels in " + std::to_string(s.groups) + " groups, state_dim " +
         std::to_string(s.state_dim) + ", " + std::string(to_string(plan.dtype()));
}

std::vector<std::string> list_selective_scan_kernels() {
  return names_of<kernels::ScanCandidate>(kernels::scan_candidates());
}

Shape state_shape(const SelectiveScanShape& shape, std::int64_t batch) {
  return {batch, shape.channels, shape.state_dim};
}

std::size_t workspace_bytes(const SelectiveScanPlan& plan, int threads) {
  check_threads("workspace_bytes", threads);
  return bytes_of(plan.impl(), largest_call(plan.shape()), threads, Pass::forward) + workspace_slack;
}
std::size_t backward_workspace_bytes(const SelectiveScanPlan& plan, int threads) {
  check_threads("backward_workspace_bytes", threads);
  return bytes_of(plan.impl(), largest_call(plan.shape()), threads, Pass::backward) + workspace_slack;
}

void selective_scan(const SelectiveScanPlan& plan, const SelectiveScanInputs& inputs,
                    const SelectiveScanOutputs& outputs, const CallResources& resources) {
  constexpr const char* function = "selective_scan";
  const Plan& impl = plan.impl();
  const RecurrenceSizes sizes = check_inputs(function, impl, inputs);
  check_outputs(function, impl, inputs, outputs, sizes);
  Executor& executor = executor_of(resources, multiply_adds(impl, sizes));
  Carver carver(workspace_of(function, resources.workspace,
                             bytes_of(impl, sizes, executor.thread_count(), Pass::forward)));
  const auto sequences = make_sequences({inputs.sequence_starts, inputs.present}, sizes, carver);
  with_wide_type(impl.dtype, [&](auto t) {
    using T = decltype(t);
    const auto places = make_state_places<T>(states_of(inputs, outputs), sizes.sequences, carver);
    auto problem = problem_of<T>(impl, inputs, sizes, sequences);
    problem.initial_state = places.initial;
    check_rates(function, problem, executor);
    if (!inputs.present.empty()) clear_rows(outputs.output, executor);
    impl.candidate->code<T>().forward(problem, {stored_rows(outputs.output), places.final}, executor,
                                      carver.rest().data());
  });
}

void selective_scan_backward(const SelectiveScanPlan& plan, const SelectiveScanInputs& inputs,
                             const SelectiveScanLoss& loss, const SelectiveScanGradients& gradients,
                             const CallResources& resources) {
  constexpr const char* function = "selective_scan_backward";
  const Plan& impl = plan.impl();
  const RecurrenceSizes sizes = check_inputs(function, impl, inputs);
  check_gradients(function, impl, inputs, loss, gradients, sizes);
  Executor& executor = executor_of(resources, 3.0 * multiply_adds(impl, sizes));
  Carver carver(workspace_of(function, resources.workspace,
                             bytes_of(impl, sizes, executor.thread_count(), Pass::backward)));
  const auto sequences = make_sequences({inputs.sequence_starts, inputs.present}, sizes, carver);
  with_wide_type(impl.dtype, [&](auto t) {
    using T = decltype(t);
    const auto problem = problem_of<T>(impl, inputs, sizes, sequences);
    check_rates(function, problem, executor);
    if (!inputs.present.empty()) {
      for (const Field& field : fields) {
        if (field.kind == Kind::channels || field.kind == Kind::pairs)
          clear_rows(gradients.*field.gradient, executor);
      }
    }
    kernels::ScanGradientProblem<T> g{.d_output = stored_rows(loss.d_output),
                                      .d_final_state = data_or_null<T>(loss.d_final_state),
                                      .x = stored_rows(gradients.x),
                                      .delta = stored_rows(gradients.delta),
                                      .z = stored_rows(gradients.z),
                                      .b = stored_rows(gradients.b),
                                      .c = stored_rows(gradients.c)};
    if (gradients.b) g.b_group = gradients.b.stride(2);
    if (gradients.c) g.c_group = gradients.c.stride(2);
    g.a = data_or_null<T>(gradients.a);
    g.d = data_or_null<T>(gradients.d);
    g.delta_bias = data_or_null<T>(gradients.delta_bias);
    g.initial_state = data_or_null<T>(gradients.initial_state);
    impl.candidate->code<T>().backward(problem, g, executor, carver.rest().data());
  });
}

}  // namespace fovea

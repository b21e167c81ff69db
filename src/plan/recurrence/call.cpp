// recur: checks, prepares and runs a call.
#include <algorithm>

#include "plan/recurrence/prepare.h"
#include "plan/recurrence/saved.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

constexpr const char* recur_name = "recur";

template <class T>
std::size_t forward_bytes(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes, int threads) {
  Carver counting;
  make_sequences({}, sizes, counting);
  const auto problem = prepare_recurrence<T>(plan, {}, sizes, {}, counting, nullptr);
  if (copies_values(plan)) take_operand<T>(sizes, plan.shape.num_output_heads(), plan.columns(), counting);
  return counting.used() + 128 + plan.candidate->code<T>().forward_bytes(problem, threads);
}

std::size_t recur_bytes(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes, int threads) {
  return with_wide_type(plan.dtype, [&](auto t) { return forward_bytes<decltype(t)>(plan, sizes, threads); });
}

// The caller's output from the kernel's, whose last column is the sum of keys where there is one.
template <class T>
void finish_output(const RecurrencePlan::Impl& plan, const kernels::Operand<T*>& from,
                   const RecurrenceOutputs& outputs, std::span<const kernels::TokenSequence> sequences,
                   Executor& executor) {
  const std::int64_t dim = plan.shape.value_dim;
  const kernels::Operand<T*> denominators = weight_operand<T>(outputs.denominator);
  for_token_rows(sequences, plan.shape.num_output_heads(), executor,
                 [&](std::int64_t b, std::int64_t h, std::int64_t r) {
                   T* row = from.row(b, h, r);
                   if (plan.sums_keys()) {
                     const T denominator = row[dim] + static_cast<T>(plan.epsilon());
                     for (std::int64_t d = 0; d < dim; ++d) row[d] /= denominator;
                     if (denominators.data) *denominators.row(b, h, r) = denominator;
                   }
                   write_row(static_cast<const T*>(row), outputs.output, b, h, r);
                 });
}

template <class T>
void run(const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs, const RecurrenceOutputs& outputs,
         const RecurrenceSizes& sizes, Executor& executor, std::span<std::byte> memory) {
  Carver carver(memory);
  const auto sequences = make_sequences(lists_of(inputs), sizes, carver);
  check_gates(recur_name, plan, inputs, sequences, executor);
  const auto problem = prepare_recurrence<T>(plan, inputs, sizes, sequences, carver, &executor);
  const bool copies = copies_values(plan) && outputs.output;
  kernels::RecurrenceResults<T> results;
  if (copies)
    results.output = take_operand<T>(sizes, plan.shape.num_output_heads(), plan.columns(), carver);
  else if (outputs.output)
    results.output = operand_of<T>(outputs.output);
  if (outputs.final_state) results.final_state = outputs.final_state.template data<T>();
  if (!inputs.present.empty()) {
    clear_rows(outputs.output);
    clear_rows(outputs.denominator);
  }
  T* saved = outputs.saved_states ? outputs.saved_states.template data<T>() : nullptr;
  if (saved) results.saved = saved + stamp_size<T>;
  plan.candidate->code<T>().forward(problem, results, executor, carver.rest().data());
  if (saved) std::fill_n(saved, stamp_size<T>, static_cast<T>(stamp_of(plan, sizes)));
  if (copies) finish_output(plan, results.output, outputs, sequences, executor);
}

}  // namespace

std::size_t workspace_bytes(const RecurrencePlan& plan, int threads) {
  const RecurrenceShape& s = plan.shape();
  return recur_bytes(plan.impl(), {s.batch, s.len, s.batch}, threads) + 63;
}

std::int64_t saved_states_size(const RecurrencePlan& plan, const RecurrenceInputs& inputs) {
  return saved_states_size(plan.impl(),
                           check_recurrence_inputs("saved_states_size", plan.impl(), inputs, false));
}

void recur(const RecurrencePlan& plan, const RecurrenceInputs& inputs, const RecurrenceOutputs& outputs,
           const CallResources& resources) {
  const RecurrencePlan::Impl& impl = plan.impl();
  const RecurrenceSizes sizes = check_recurrence_inputs(recur_name, impl, inputs, is_given(outputs.output));
  check_recurrence_outputs(recur_name, impl, inputs, outputs, sizes);
  Executor& executor = executor_of(resources, multiply_adds(impl, sizes));
  const std::span<std::byte> memory =
      workspace_of(recur_name, resources.workspace, recur_bytes(impl, sizes, executor.thread_count()));
  with_wide_type(impl.dtype,
                 [&](auto t) { run<decltype(t)>(impl, inputs, outputs, sizes, executor, memory); });
}

}  // namespace fovea

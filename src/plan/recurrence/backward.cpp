// recur_backward: checks, prepares and runs a call, and takes its gradients back to the caller's operands.
#include <algorithm>

#include "fovea/core/profile.h"
#include "kernels/recurrence/features.h"
#include "plan/recurrence/prepare.h"
#include "plan/recurrence/saved.h"
#include "plan/small_calls.h"
#include "plan/workspace.h"

namespace fovea {
namespace {

using kernels::Operand;
using kernels::TokenSequence;

constexpr const char* function = "recur_backward";

// The kernel's gradients where they are not the caller's memory: by features, and with a column for the sum
// of keys.
template <class T>
struct Copies {
  Operand<T*> d_output, query, key, value;
};

template <class T>
Copies<T> take_copies(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes, Carver& carver) {
  const RecurrenceShape& s = plan.shape;
  const auto take = [&](bool copies, std::int64_t heads, std::int64_t dim) {
    return copies && plan.copies() ? take_operand<T>(sizes, all_rows(sizes), heads, dim, carver)
                                   : Operand<T*>{};
  };
  return {take(plan.sums_keys(), s.num_output_heads(), plan.columns()),
          take(plan.maps_features(), s.num_query_heads, s.key_dim),
          take(plan.maps_features(), s.num_key_heads, s.key_dim),
          take(plan.sums_keys(), s.num_heads, plan.columns())};
}

template <class T>
std::size_t backward_bytes(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes, int threads) {
  Carver counting;
  make_sequences({}, sizes, counting);
  const auto problem = prepare_recurrence<T>(plan, {}, sizes, all_rows(sizes), {}, counting, nullptr);
  take_copies<T>(plan, sizes, counting);
  return counting.used_before_rest() + plan.candidate->code<T>().backward_bytes(problem, threads);
}

std::size_t bytes_of(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes, int threads) {
  return with_wide_type(plan.dtype,
                        [&](auto t) { return backward_bytes<decltype(t)>(plan, sizes, threads); });
}

// Derivatives by the kernel's output: o = num / den gives dnum = do / den and dden = -⟨do, o⟩ / den.
template <class T>
void copy_d_output(const RecurrencePlan::Impl& plan, const RecurrenceLoss& loss, const Operand<T*>& to,
                   std::span<const TokenSequence> sequences, Executor& executor) {
  const std::int64_t dim = plan.shape.value_dim;
  const Operand<const T*> denominators = weight_operand<T>(loss.denominator);
  for_token_rows({sequences, plan.shape.num_output_heads(), dim}, executor,
                 [&](std::int64_t b, std::int64_t h, std::int64_t r) {
                   T* row = to.row(b, h, r);
                   const T denominator = *denominators.row(b, h, r);
                   const bool widens = plan.dtype != dtype_of<T>;
                   if (widens) read_row(loss.d_output, b, h, r, row);
                   const T *d_output = widens ? row : row_pointer<T>(loss.d_output, b, h, r),
                           *output = widens ? nullptr : row_pointer<T>(loss.output, b, h, r);
                   // As many at a time for every dtype, so that sums have one order.
                   constexpr std::int64_t most = 64;
                   T sum = 0, piece[most];
                   for (std::int64_t d = 0; d < dim; d += most) {
                     const std::int64_t count = std::min(most, dim - d);
                     if (widens) read_row(loss.output.slice(3, d, count), b, h, r, piece);
                     sum += kernels::divide_backward(d_output + d, widens ? piece : output + d, denominator,
                                                     count, row + d);
                   }
                   row[dim] = -sum / denominator;
                 });
}

// What the kernel writes: the caller's memory, or a copy.
template <class T>
kernels::RecurrenceGradientProblem<T> gradient_problem(const RecurrencePlan::Impl& plan,
                                                       const RecurrenceLoss& loss,
                                                       const RecurrenceGradients& gradients,
                                                       const Copies<T>& copies) {
  kernels::RecurrenceGradientProblem<T> g;
  const auto target = [](const TensorView& view, const Operand<T*>& copy) {
    return view && copy.data ? stored_operand(copy) : stored_operand(view);
  };
  g.d_output = loss.d_output && copies.d_output.data ? read_only(stored_operand(copies.d_output))
                                                     : stored_operand(loss.d_output);
  if (loss.d_output && plan.sums_keys() && plan.kernel_maps) {
    g.output = stored_operand(loss.output);
    g.denominator = weight_operand<T>(loss.denominator);
  }
  if (loss.d_final_state) g.d_final_state = loss.d_final_state.template data<T>();
  g.query = target(gradients.query, copies.query);
  g.key = target(gradients.key, copies.key);
  g.value = target(gradients.value, copies.value);
  g.erase = stored_operand(gradients.erase);
  g.a = stored_operand(gradients.a);
  g.b = stored_operand(gradients.b);
  if (plan.decay() == DecayKind::constant && gradients.log_decay)
    g.constant_log_decay = gradients.log_decay.template data<T>();
  else
    g.log_decay = weight_operand<T>(gradients.log_decay);
  g.beta = weight_operand<T>(gradients.beta);
  g.self_weight = weight_operand<T>(gradients.self_weight);
  if (gradients.bonus) g.bonus = gradients.bonus.template data<T>();
  if (loss.saved_states) g.saved = loss.saved_states.template data<T>() + stamp_size<T>;
  if (gradients.initial_state) g.initial_state = gradients.initial_state.template data<T>();
  return g;
}

template <class T>
void finish_gradients(const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs,
                      const RecurrenceGradients& gradients, const Copies<T>& copies,
                      std::span<const TokenSequence> sequences, Executor& executor) {
  if (copies.query.data && gradients.query)
    features_backward(plan, inputs.query, copies.query, gradients.query, sequences, executor);
  if (copies.key.data && gradients.key)
    features_backward(plan, inputs.key, copies.key, gradients.key, sequences, executor);
  if (!copies.value.data || !gradients.value) return;
  for_token_rows({sequences, plan.shape.num_heads, plan.shape.value_dim}, executor,
                 [&](std::int64_t b, std::int64_t h, std::int64_t r) {
                   write_row(static_cast<const T*>(copies.value.row(b, h, r)), gradients.value, b, h, r);
                 });
}

template <class T>
void run(const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs, const RecurrenceLoss& loss,
         const RecurrenceGradients& gradients, const RecurrenceSizes& sizes, Executor& executor,
         std::span<std::byte> memory) {
  Carver carver(memory);
  const auto sequences = make_sequences(lists_of(inputs), sizes, carver);
  check_gates(function, plan, inputs, sequences, executor);
  const auto problem =
      prepare_recurrence<T>(plan, inputs, sizes, all_rows(sizes), sequences, carver, &executor);
  const Copies<T> copies = take_copies<T>(plan, sizes, carver);
  if (loss.d_output && copies.d_output.data) copy_d_output(plan, loss, copies.d_output, sequences, executor);
  if (!inputs.present.empty()) {
    for (const RecurrenceField& field : recurrence_fields) clear_rows(gradients.*field.gradient, executor);
  }
  const auto g = gradient_problem(plan, loss, gradients, copies);
  plan.candidate->code<T>().backward(problem, g, executor, carver.rest().data());
  finish_gradients(plan, inputs, gradients, copies, sequences, executor);
}

}  // namespace

std::size_t backward_workspace_bytes(const RecurrencePlan& plan, int threads) {
  check_threads("backward_workspace_bytes", threads);
  const RecurrenceShape& s = plan.shape();
  return bytes_of(plan.impl(), {s.batch, s.len, s.batch}, threads) + workspace_slack;
}

void recur_backward(const RecurrencePlan& plan, const RecurrenceInputs& inputs, const RecurrenceLoss& loss,
                    const RecurrenceGradients& gradients, const CallResources& resources) {
  const RecurrencePlan::Impl& impl = plan.impl();
  const RecurrenceSizes sizes = check_recurrence_inputs(function, impl, inputs, is_given(loss.d_output));
  check_recurrence_gradients(function, impl, inputs, loss, gradients, sizes);
  // Each token writes its state and reads it. The decay may be one number for many tokens.
  ProfileSpan::add({.multiply_adds = 3.0 * multiply_adds(impl, sizes) * 2.0 / 3.0});
  Executor& executor = executor_of(resources, 3.0 * multiply_adds(impl, sizes));
  const std::span<std::byte> memory =
      workspace_of(function, resources.workspace, bytes_of(impl, sizes, executor.thread_count()));
  with_wide_type(impl.dtype,
                 [&](auto t) { run<decltype(t)>(impl, inputs, loss, gradients, sizes, executor, memory); });
}

}  // namespace fovea

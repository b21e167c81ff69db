// recur: checks, prepares and runs a call.
#include <algorithm>

#include "fovea/core/profile.h"
#include "kernels/recurrence/features.h"
#include "plan/recurrence/prepare.h"
#include "plan/recurrence/saved.h"
#include "plan/recurrence/states.h"
#include "plan/small_calls.h"
#include "plan/workspace.h"

namespace fovea {
namespace {

using kernels::TokenSequence;

constexpr const char* recur_name = "recur";

// The memory that copies may take in a plain call. With copies of a whole call it grew with the tokens, to a
// GiB for 65,536 tokens of 16 heads of 64.
constexpr std::size_t bytes_of_copies = std::size_t{4} << 20;

// The problem of a call with copies of these rows, and their memory.
template <class T>
kernels::RecurrenceProblem<T> count_copies(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes,
                                           const TokenRows& rows, Carver& counting) {
  if (plan.sums_keys() && plan.copies())
    take_operand<T>(sizes, rows, plan.shape.num_output_heads(), plan.columns(), counting);
  return prepare_recurrence<T>(plan, {}, sizes, rows, {}, counting, nullptr);
}

// The tokens that copies are made of at a time: all of them, or as many as fit, at multiples of the kernel's
// chunk, so that results have the same bits. Only where rows of all entries are tokens of the same numbers,
// and not by the reference, whose state has more digits than a tensor.
std::int64_t tokens_at_once(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes,
                            const SequenceLists& lists) {
  const std::int64_t chunk = plan.candidate->chunk;
  if (!plan.copies() || chunk == 1 || !lists.starts.empty() || !lists.present.empty()) return sizes.len;
  const std::int64_t multiple = 4 * chunk;
  const std::size_t bytes = with_wide_type(plan.dtype, [&](auto t) {
    Carver counting;
    count_copies<decltype(t)>(plan, sizes, {0, multiple}, counting);
    return counting.used();
  });
  const auto fitting = static_cast<std::int64_t>(bytes_of_copies / std::max(bytes, std::size_t{1}));
  return std::min(sizes.len, std::max(fitting, std::int64_t{1}) * multiple);
}

std::int64_t elements_of_states(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes) {
  return sizes.sequences * plan.shape.num_heads * plan.shape.key_dim * plan.columns();
}

template <class T>
std::size_t forward_bytes(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes, std::int64_t tokens,
                          int threads) {
  Carver counting;
  make_sequences({}, sizes, counting);
  counting.take<TokenSequence>(sizes.sequences);
  make_state_places<T>({}, sizes.sequences, counting);
  // The states between pieces. Counted without pieces too, so that a plan's workspace is enough for all
  // calls.
  if (plan.copies()) counting.take<T>(elements_of_states(plan, sizes));
  const auto problem = count_copies<T>(plan, sizes, {0, tokens}, counting);
  return counting.used_before_rest() + plan.candidate->code<T>().forward_bytes(problem, threads);
}

std::size_t recur_bytes(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes, std::int64_t tokens,
                        int threads) {
  return with_wide_type(plan.dtype,
                        [&](auto t) { return forward_bytes<decltype(t)>(plan, sizes, tokens, threads); });
}

// The caller's output from the kernel's, whose last column is the sum of keys.
template <class T>
void finish_output(const RecurrencePlan::Impl& plan, const kernels::Operand<T*>& from,
                   const RecurrenceOutputs& outputs, std::span<const TokenSequence> sequences,
                   Executor& executor) {
  const std::int64_t dim = plan.shape.value_dim;
  const kernels::Operand<T*> denominators = weight_operand<T>(outputs.denominator);
  const bool is_t = outputs.output.dtype() == dtype_of<T>;
  for_token_runs({sequences, plan.shape.num_output_heads(), dim}, executor,
                 [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t count) {
                   for (std::int64_t r = first; r < first + count; ++r) {
                     T* row = from.row(b, h, r);
                     const T denominator = row[dim] + static_cast<T>(plan.epsilon());
                     if (denominators.data) *denominators.row(b, h, r) = denominator;
                     T* to = is_t ? row_pointer<T>(outputs.output, b, h, r) : row;
                     kernels::divide(row, denominator, dim, to);
                     if (!is_t) write_row(static_cast<const T*>(row), outputs.output, b, h, r);
                   }
                 });
}

// The tokens of these rows of every sequence, in the workspace.
std::span<const TokenSequence> tokens_of(std::span<const TokenSequence> sequences, const TokenRows& rows,
                                         Carver& carver) {
  TokenSequence* list = carver.take<TokenSequence>(static_cast<std::int64_t>(sequences.size()));
  for (std::size_t n = 0; n < sequences.size(); ++n) {
    list[n] = sequences[n];
    list[n].begin += rows.first;
    list[n].count = std::clamp<std::int64_t>(sequences[n].count - rows.first, 0, rows.count);
  }
  return {list, sequences.size()};
}

template <class T>
void run(const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs, const RecurrenceOutputs& outputs,
         const RecurrenceSizes& sizes, std::int64_t tokens, Executor& executor, std::span<std::byte> memory) {
  Carver carver(memory);
  const auto sequences = make_sequences(lists_of(inputs), sizes, carver);
  check_gates(recur_name, plan, inputs, sequences, executor);
  if (!inputs.present.empty()) {
    clear_rows(outputs.output, executor);
    clear_rows(outputs.denominator, executor);
  }
  T* saved = outputs.saved_states ? outputs.saved_states.template data<T>() : nullptr;
  kernels::RecurrenceResults<T> results;
  if (saved) results.saved = saved + stamp_size<T>;
  const auto places = make_state_places<T>(states_of(inputs, outputs), sizes.sequences, carver);
  results.final_state = places.final;
  if (tokens < sizes.len && !results.final_state)
    results.final_state.data = carver.take<T>(elements_of_states(plan, sizes));
  results.denominator = weight_operand<T>(outputs.denominator);
  const bool copies = plan.sums_keys() && outputs.output && plan.copies();
  kernels::Operand<T*> copy;
  std::int64_t first = 0;
  do {  // once for a call without tokens, whose states are copied
    const TokenRows rows{first, std::min(tokens, sizes.len - first)};
    Carver piece = carver;  // which all pieces use again
    const auto of_piece = tokens < sizes.len ? tokens_of(sequences, rows, piece) : sequences;
    auto problem = prepare_recurrence<T>(plan, inputs, sizes, rows, of_piece, piece, &executor);
    problem.initial_state = places.initial;
    if (first > 0) problem.initial_state = {results.final_state.data, results.final_state.each};
    if (copies) copy = take_operand<T>(sizes, rows, plan.shape.num_output_heads(), plan.columns(), piece);
    results.output = copies ? stored_operand(copy) : stored_operand(outputs.output);
    plan.candidate->code<T>().forward(problem, results, executor, piece.rest().data());
    if (copies) finish_output(plan, copy, outputs, of_piece, executor);
    first += tokens;
  } while (first < sizes.len);
  if (saved) std::fill_n(saved, stamp_size<T>, static_cast<T>(stamp_of(plan, sizes)));
}

}  // namespace

std::size_t workspace_bytes(const RecurrencePlan& plan, int threads) {
  check_threads("workspace_bytes", threads);
  const RecurrenceShape& s = plan.shape();
  return recur_bytes(plan.impl(), {s.batch, s.len, s.batch}, s.len, threads) + workspace_slack;
}

std::int64_t saved_states_size(const RecurrencePlan& plan, const RecurrenceInputs& inputs) {
  return saved_states_size(plan.impl(),
                           check_recurrence_inputs("saved_states_size", plan.impl(), inputs, false));
}

void recur(const RecurrencePlan& plan, const RecurrenceInputs& inputs, const RecurrenceOutputs& outputs,
           const CallResources& resources) {
  const RecurrencePlan::Impl& impl = plan.impl();
  const RecurrenceSizes sizes =
      check_recurrence_inputs(recur_name, impl, inputs, is_given(outputs.output), StateLists::taken);
  check_recurrence_outputs(recur_name, impl, inputs, outputs, sizes);
  // Each token writes its state and reads it. The decay may be one number for many tokens.
  ProfileSpan::add({.multiply_adds = multiply_adds(impl, sizes) * 2.0 / 3.0});
  Executor& executor = executor_of(resources, multiply_adds(impl, sizes));
  const std::int64_t tokens = tokens_at_once(impl, sizes, lists_of(inputs));
  const std::span<std::byte> memory = workspace_of(recur_name, resources.workspace,
                                                   recur_bytes(impl, sizes, tokens, executor.thread_count()));
  with_wide_type(impl.dtype,
                 [&](auto t) { run<decltype(t)>(impl, inputs, outputs, sizes, tokens, executor, memory); });
}

}  // namespace fovea

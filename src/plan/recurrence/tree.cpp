// Trees of tokens: calls of recur for pieces of neighbouring tokens, each from the state of its parent.
#include <algorithm>
#include <string>
#include <vector>

#include "fovea/plan/recurrence_tree.h"
#include "kernels/recurrence/chunked.h"
#include "plan/recurrence/prepare.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

// A plan that goes token by token, so that a cut between two tokens keeps the bits.
RecurrencePlan plan_of_steps(const RecurrencePlan& plan) {
  RecurrenceShape shape = plan.shape();
  shape.len = std::min(shape.len, kernels::recurrence_step_tokens);
  const std::string kernel(plan.kernel());
  // The reference rounds states at the end of a call, in f32 once for all its tokens.
  if (kernel == "reference") shape.len = 1;
  // The instruction set of the plan's kernel, whose best algorithm for few tokens runs.
  return make_recurrence_plan(plan.spec(), shape,
                              {.dtype = plan.dtype(), .kernel = kernel.substr(0, kernel.find(' '))});
}

void check_all_gates(const char* function, const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs,
                     const RecurrenceSizes& sizes, Executor& executor) {
  Carver counting;
  make_sequences({}, sizes, counting);
  std::vector<std::byte> memory(counting.used() + workspace_alignment);
  Carver carver{std::span<std::byte>(memory)};
  check_gates(function, plan, inputs, make_sequences({}, sizes, carver), executor);
}

RecurrenceSizes check_unpacked(const char* function, const RecurrencePlan& plan,
                               const RecurrenceInputs& inputs, bool reads) {
  if (!inputs.sequence_starts.empty())
    throw InvalidArgument(function, "sequence_starts", "none: every entry is one tree",
                          std::to_string(inputs.sequence_starts.size()) + " numbers");
  if (!inputs.present.empty())
    throw InvalidArgument(function, "present", "none: leave tokens out of the tree",
                          std::to_string(inputs.present.size()) + " numbers");
  return check_recurrence_inputs(function, plan.impl(), inputs, reads);
}

void check_parents(std::span<const std::int64_t> parents, std::int64_t len) {
  if (std::ssize(parents) != len)
    throw InvalidArgument("recur_tree", "parents", std::to_string(len) + " numbers, one for each token",
                          std::to_string(parents.size()));
  for (std::int64_t i = 0; i < len; ++i) {
    const std::int64_t parent = parents[static_cast<std::size_t>(i)];
    if (parent < -1 || parent >= i)
      throw InvalidArgument("recur_tree", "parents[" + std::to_string(i) + "]",
                            "-1 or the number of an earlier token", std::to_string(parent));
  }
}

}  // namespace

void recur_tree(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                std::span<const std::int64_t> parents, const TensorView& output,
                const CallResources& resources) {
  constexpr const char* function = "recur_tree";
  const RecurrenceSizes sizes = check_unpacked(function, plan, inputs, true);
  check_parents(parents, sizes.len);
  if (!is_given(output)) throw InvalidArgument(function, "output", "an output", "nothing");
  check_recurrence_outputs(function, plan.impl(), inputs, {.output = output}, sizes);
  check_all_gates(function, plan.impl(), inputs, sizes,
                  executor_of(resources, multiply_adds(plan.impl(), sizes)));
  if (sizes.entries == 0 || sizes.len == 0) return;
  const auto parent_of = [&](std::int64_t i) { return parents[static_cast<std::size_t>(i)]; };

  const RecurrencePlan steps = plan_of_steps(plan);
  const std::int64_t longest = steps.shape().len;
  const auto count = static_cast<std::size_t>(sizes.len);
  // The children of each token that begin a piece, and so read its state.
  std::vector<std::int64_t> first{0}, readers(count);
  std::vector<bool> branches(count);
  for (std::int64_t i = 1; i < sizes.len; ++i) {
    if (parent_of(i) >= 0 && parent_of(i) != i - 1) branches[static_cast<std::size_t>(parent_of(i))] = true;
  }
  for (std::int64_t i = 1; i < sizes.len; ++i) {
    const bool goes_on =
        parent_of(i) == i - 1 && !branches[static_cast<std::size_t>(i - 1)] && i - first.back() < longest;
    if (goes_on) continue;
    first.push_back(i);
    if (parent_of(i) >= 0) ++readers[static_cast<std::size_t>(parent_of(i))];
  }
  first.push_back(sizes.len);

  const CallResources own{.executor = resources.executor};
  std::vector<Tensor> states(count);
  for (std::size_t n = 0; n + 1 < first.size(); ++n) {
    const std::int64_t begin = first[n], tokens = first[n + 1] - begin, parent = parent_of(begin);
    RecurrenceInputs piece = tokens_of(inputs, begin, tokens);
    if (parent >= 0) piece.initial_state = states[static_cast<std::size_t>(parent)];
    const auto last = static_cast<std::size_t>(begin + tokens - 1);
    RecurrenceOutputs results{.output = output.slice(2, begin, tokens)};
    if (readers[last] > 0) {
      states[last] =
          Tensor(plan.impl().compute_dtype(), state_shape(plan.spec(), plan.shape(), sizes.sequences));
      results.final_state = states[last];
    }
    recur(steps, piece, results, own);
    if (parent >= 0 && --readers[static_cast<std::size_t>(parent)] == 0)
      states[static_cast<std::size_t>(parent)] = Tensor();
  }
}

void advance_along(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                   std::span<const std::int64_t> path, const TensorView& final_state,
                   const CallResources& resources) {
  constexpr const char* function = "advance_along";
  const RecurrenceSizes sizes = check_unpacked(function, plan, inputs, false);
  for (std::size_t n = 0; n < path.size(); ++n) {
    const std::int64_t least = n == 0 ? 0 : path[n - 1] + 1;
    if (path[n] < least || path[n] >= sizes.len)
      throw InvalidArgument(function, "path[" + std::to_string(n) + "]",
                            "a token in [" + std::to_string(least) + ", " + std::to_string(sizes.len) + ")",
                            std::to_string(path[n]));
  }
  if (!is_given(final_state)) throw InvalidArgument(function, "final_state", "a state", "nothing");
  check_recurrence_outputs(function, plan.impl(), inputs, {.output = {}, .final_state = final_state}, sizes);
  check_all_gates(function, plan.impl(), inputs, sizes,
                  executor_of(resources, multiply_adds(plan.impl(), sizes)));

  const bool in_place = is_given(inputs.initial_state) && inputs.initial_state.raw() == final_state.raw();
  if (is_given(inputs.initial_state) && !in_place)
    std::copy_n(inputs.initial_state.raw(), final_state.count() * size_of(final_state.dtype()),
                final_state.raw());
  else if (!in_place)
    std::fill_n(final_state.raw(), final_state.count() * size_of(final_state.dtype()), std::byte{0});
  const RecurrencePlan steps = plan_of_steps(plan);
  const CallResources own{.executor = resources.executor};
  for (std::size_t n = 0; n < path.size();) {
    std::size_t end = n + 1;
    while (end < path.size() && path[end] == path[end - 1] + 1 &&
           static_cast<std::int64_t>(end - n) < steps.shape().len)
      ++end;
    RecurrenceInputs piece = tokens_of(inputs, path[n], static_cast<std::int64_t>(end - n));
    piece.initial_state = final_state;
    recur(steps, piece, {.output = {}, .final_state = final_state}, own);
    n = end;
  }
}

}  // namespace fovea

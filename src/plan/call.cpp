// attend: checks, prepares and runs a call.
#include <algorithm>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "plan/packed.h"
#include "plan/profiled_work.h"
#include "plan/rows.h"
#include "plan/run.h"
#include "plan/small_calls.h"
#include "plan/workspace.h"

namespace fovea {
namespace {

// The steps that run one after the other in a call. A step is null if its result is not wanted. `weights` is
// also null if the forward step writes the weights too.
struct Runs {
  const Step *forward = nullptr, *weights = nullptr;
};

// Weights of chosen rows, and weights alone, have a duty of their own: only the rows that are wanted are
// computed.
Runs runs_of(const AttentionPlan::Impl& plan, const AttentionOutputs& outputs, const CallSizes& sizes) {
  using kernels::Duty;
  const auto step = [&](Duty duty, std::int64_t queries) {
    return &plan.choice.rule(duty).of(queries, sizes.key_len);
  };
  Runs runs;
  if (outputs.output)
    runs.forward = step(sizes.cached ? Duty::forward_cached : Duty::forward, sizes.query_len);
  if (!outputs.weights) return runs;
  const bool chosen = !outputs.weight_rows.empty();
  runs.weights = chosen           ? step(Duty::weights_alone, 1)
                 : outputs.output ? step(sizes.cached ? Duty::weights_cached : Duty::weights, sizes.query_len)
                                  : step(Duty::weights_alone, sizes.query_len);
  if (runs.forward &&
      (runs.forward->candidate->whole_rows || runs.forward->candidate == runs.weights->candidate))
    runs.weights = nullptr;
  return runs;
}

CacheReading reading_of(std::initializer_list<const Step*> runs) {
  const auto gathers = [](const Step* run) { return run && !run->candidate->reads_cache; };
  return std::any_of(runs.begin(), runs.end(), gathers) ? CacheReading::gathered : CacheReading::in_place;
}

// Calls for weights are given operands in f32, because one of their two steps may read nothing else.
kernels::In16Bits stored_of(const Runs& runs, const AttentionOutputs& outputs) {
  return outputs.weights ? kernels::In16Bits::nothing : runs.forward->stored;
}

// Bytes of a call that runs these steps. The problem is prepared once for all of them.
template <class T>
std::size_t forward_bytes(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads,
                          std::initializer_list<const Step*> runs, kernels::In16Bits stored,
                          CacheReading reading) {
  Carver counting;
  auto prepared = prepare<T>(plan, {.inputs = {}}, sizes, counting, nullptr, stored, nullptr, reading);
  if (plan.dtype != plan.compute_dtype() && stored != kernels::In16Bits::everything)
    counting.take<T>(sizes.batch * plan.shape.num_query_heads * sizes.query_len * plan.shape.value_dim);
  std::size_t most = 0;
  for (const Step* run : runs) {
    if (!run) continue;
    prepared.problem.whole_row = plan.whole_row() || run->candidate->whole_rows;
    most = std::max(most, run->candidate->code<T>().forward_bytes(prepared.problem, threads));
  }
  return counting.used_before_rest() + most;
}

std::size_t bytes_of(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads,
                     std::initializer_list<const Step*> runs, kernels::In16Bits stored,
                     CacheReading reading) {
  return with_wide_type(plan.dtype, [&](auto t) {
    return forward_bytes<decltype(t)>(plan, sizes, threads, runs, stored, reading);
  });
}

template <class T>
void run_candidate(const AttentionPlan::Impl& plan, const kernels::Candidate& candidate,
                   kernels::Problem<T>& problem, const kernels::ForwardOutputs<T>& out, Executor& executor,
                   std::span<std::byte> memory) {
  problem.whole_row = plan.whole_row() || candidate.whole_rows;
  candidate.code<T>().forward(problem, out, executor, memory.data());
}

template <class T>
void run(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs, const Runs& runs,
         const CallSizes& sizes, Executor& executor, std::span<std::byte> memory) {
  Carver carver(memory);
  const kernels::In16Bits stored = stored_of(runs, outputs);
  auto prepared = prepare<T>(plan, call, sizes, carver, &executor, stored,
                             outputs.output ? nullptr : &outputs, reading_of({runs.forward, runs.weights}));
  kernels::ForwardOutputs<T> out;
  const bool narrowed =
      outputs.output && plan.dtype != plan.compute_dtype() && stored != kernels::In16Bits::everything;
  if (narrowed) {
    out.output = contiguous_operand<T*>(carver.take<T>(outputs.output.count()), plan.shape.num_query_heads,
                                        sizes.query_len, plan.shape.value_dim);
  } else if (stored == kernels::In16Bits::everything) {
    out.stored_output = {reinterpret_cast<std::uint16_t*>(outputs.output.raw()), outputs.output.stride(0),
                         outputs.output.stride(1), outputs.output.stride(2)};
  } else if (outputs.output) {
    out.output = operand_of<T>(outputs.output);
  }
  if (outputs.log_sum_exp) out.log_sum_exp = outputs.log_sum_exp.data<T>();
  if (!runs.weights || !runs.forward) {
    if (outputs.weights) out.weights = operand_of<T>(outputs.weights);
    out.weight_heads = outputs.weight_heads;
    out.weight_rows = outputs.weight_rows;
  }
  const Step& first = runs.forward ? *runs.forward : *runs.weights;
  run_candidate(plan, *first.candidate, prepared.problem, out, executor, carver.rest());
  if (runs.forward && runs.weights) {
    kernels::ForwardOutputs<T> weights;
    weights.weights = operand_of<T>(outputs.weights);
    weights.weight_heads = outputs.weight_heads;
    weights.weight_rows = outputs.weight_rows;
    run_candidate(plan, *runs.weights->candidate, prepared.problem, weights, executor, carver.rest());
  }
  if (narrowed) copy_rows(view_of(out.output, outputs.output.shape()), outputs.output, executor);
}

void check_forward_output(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                          const AttentionOutputs& outputs, const CallSizes& sizes) {
  const AttentionShape& s = plan.shape;
  if (s.value_dim > 0) {
    check_output("attend", "output", outputs.output, plan.dtype,
                 {sizes.batch, s.num_query_heads, sizes.query_len, s.value_dim}, inputs);
  } else if (outputs.output || !outputs.weights) {
    throw InvalidArgument("attend", outputs.output ? "output" : "weights",
                          "weights and no output: the plan has no values (value_dim 0)",
                          outputs.output ? to_string(outputs.output.shape()) : "nothing");
  }
}

void check_outputs(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                   const AttentionOutputs& outputs, const CallSizes& sizes) {
  const char* function = "attend";
  const AttentionShape& s = plan.shape;
  if (outputs.output || !outputs.weights || s.value_dim == 0)
    check_forward_output(plan, inputs, outputs, sizes);
  if (outputs.log_sum_exp) {
    check_output(function, "log_sum_exp", outputs.log_sum_exp, plan.compute_dtype(),
                 {sizes.batch, s.num_query_heads, sizes.query_len}, inputs);
    check_is_contiguous(function, "log_sum_exp", outputs.log_sum_exp);
  }
  check_chosen(function, "weight_heads", outputs.weight_heads, s.num_query_heads);
  check_chosen(function, "weight_rows", outputs.weight_rows, sizes.query_len);
  check_all_rows(function, inputs, outputs.weight_rows);
  if (!outputs.weights && !outputs.weight_rows.empty())
    throw InvalidArgument(function, "weights", "a tensor for the weights of the chosen rows", "nothing");
  if (outputs.weights) {
    check_output(function, "weights", outputs.weights, plan.compute_dtype(),
                 weights_shape(plan, sizes, outputs.weight_heads, outputs.weight_rows), inputs);
  }
  OverlapCheck memory(function);
  memory.writes("output", outputs.output);
  memory.writes("log_sum_exp", outputs.log_sum_exp);
  memory.writes("weights", outputs.weights);
  memory.reads(inputs.arguments);
  memory.check();
}

// Whether a call with these outputs may run this duty. Null outputs stand for any call.
bool may_have(const AttentionOutputs* outputs, kernels::Duty duty) {
  using kernels::Duty;
  if (!outputs) return true;
  if (duty == Duty::forward || duty == Duty::forward_cached) return bool(outputs->output);
  const bool alone = !outputs->output || !outputs->weight_rows.empty();
  return outputs->weights && alone == (duty == Duty::weights_alone);
}

}  // namespace

void write_fully_masked(const AttentionPlan::Impl& plan, const AttentionOutputs& outputs) {
  clear_rows(outputs.output);
  const TensorView& sums = outputs.log_sum_exp;
  if (!sums) return;
  with_wide_type(plan.dtype, [&](auto t) {
    using T = decltype(t);
    for (std::int64_t n = 0; n < sums.size(0) * sums.size(1); ++n) {
      std::fill_n(sums.data<T>() + n / sums.size(1) * sums.stride(0) + n % sums.size(1) * sums.stride(1),
                  sums.size(2), -std::numeric_limits<T>::infinity());
    }
  });
}

std::size_t most_forward_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads,
                               const AttentionOutputs* outputs) {
  using kernels::Duty;
  using kernels::In16Bits;
  std::size_t bytes = 0;
  for (const Duty duty : {most.cached ? Duty::forward_cached : Duty::forward,
                          most.cached ? Duty::weights_cached : Duty::weights, Duty::weights_alone}) {
    if (!may_have(outputs, duty)) continue;
    for (const Step& step : plan.choice.rule(duty).steps()) {
      // Chosen rows run as calls of one query, but their number may be as large as query_len.
      const std::int64_t queries =
          duty == Duty::weights_alone ? most.query_len : std::min(step.last, most.query_len);
      const std::int64_t keys = step.most_keys > 0 ? std::min(step.most_keys, most.key_len) : most.key_len;
      const auto count = [&](In16Bits stored, CacheReading reading) {
        bytes = std::max(bytes, bytes_of(plan, {most.batch, queries, keys, most.cached}, threads, {&step},
                                         stored, reading));
      };
      // A call for weights too runs two steps on one problem, and gathers a cache if either step needs that.
      const bool may_gather = most.cached && (!outputs || outputs->weights);
      for (const In16Bits stored : {In16Bits::nothing, step.stored}) {
        // As stored_of.
        if (outputs && stored != (outputs->weights ? In16Bits::nothing : step.stored)) continue;
        count(stored, reading_of({&step}));
        if (may_gather && stored == In16Bits::nothing) count(stored, CacheReading::gathered);
      }
      if (step.last >= most.query_len && step.most_keys == 0 && duty != Duty::weights_alone) break;
    }
  }
  return bytes;
}

void run_forward(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
                 const CallSizes& sizes, Executor& executor, std::span<std::byte> memory) {
  const Runs runs = runs_of(plan, outputs, sizes);
  with_wide_type(plan.dtype,
                 [&](auto t) { run<decltype(t)>(plan, call, outputs, runs, sizes, executor, memory); });
}

std::size_t workspace_bytes(const AttentionPlan& plan, int threads) {
  check_threads("workspace_bytes", threads);
  const AttentionPlan::Impl& impl = plan.impl();
  const AttentionShape& s = impl.shape;
  return std::max(most_forward_bytes(impl, {s.batch, s.query_len, s.key_len}, threads, nullptr),
                  std::max(packed_bytes(impl, threads, false), packed_bytes(impl, threads, true)));
}

void attend(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionOutputs& outputs,
            const CallResources& resources) {
  const AttentionPlan::Impl& impl = plan.impl();
  const Call call = call_of("attend", impl, inputs);
  const CallSizes sizes = check_inputs("attend", impl, call);
  check_outputs(impl, inputs, outputs, result_sizes(inputs, sizes));
  if (sizes.batch == 0 || sizes.query_len == 0) return;
  if (sizes.key_len == 0) return write_fully_masked(impl, outputs);
  add_attention_work(impl, inputs, sizes);
  if (PackedBatch(inputs)) return attend_packed(impl, call, outputs, resources);
  const Runs runs = runs_of(impl, outputs, sizes);
  Executor& executor = executor_of(resources, multiply_adds(impl, sizes));
  const std::size_t bytes = bytes_of(impl, sizes, executor.thread_count(), {runs.forward, runs.weights},
                                     stored_of(runs, outputs), reading_of({runs.forward, runs.weights}));
  const std::span<std::byte> memory = workspace_of("attend", resources.workspace, bytes);
  with_wide_type(impl.dtype,
                 [&](auto t) { run<decltype(t)>(impl, call, outputs, runs, sizes, executor, memory); });
}

void attend(const AttentionPlan& plan, ConstTensorView query, ConstTensorView key, ConstTensorView value,
            TensorView output) {
  attend(plan, AttentionInputs{.query = query, .key = key, .value = value},
         AttentionOutputs{.output = output});
}

}  // namespace fovea

// attend_backward: runs the kernel, which gives the gradients of the mapped queries and keys, and passes
// these gradients back through the mapping.
#include "plan/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/packed.h"
#include "plan/profiled_work.h"
#include "plan/projection.h"
#include "plan/rows.h"
#include "plan/run.h"
#include "plan/small_calls.h"
#include "plan/workspace.h"

namespace fovea {
namespace {

constexpr const char* function = "attend_backward";

// Where the gradient of one operand is written: to the caller's tensor, or to a scratch buffer if the result
// has 16 bits or must still pass back through a mapping.
template <class T>
struct Target {
  kernels::Operand<T*> kernel;  // the kernel's output
  T* scratch = nullptr;         // null: the kernel writes to the caller's tensor
};

template <class T>
struct Scratch {
  Target<T> query, key, value;
  T *query_back = nullptr, *key_back = nullptr;  // gradients after the mapping, before rounding to 16 bits
  kernels::Operand<T*> wide_output, wide_d_output;
  kernels::Operand<const T*> output, d_output;
  T* mean = nullptr;        // of whole rows: Σ P·dP of each row
  T* normalizer = nullptr;  // of whole rows: the gradients of the normaliser's arguments for each query head
  T* gains = nullptr;       // [num_query_heads, score_dim], first for queries, then for
                            // keys
};

template <class T>
Target<T> target_of(const TensorView& wanted, bool direct, const RowSizes& rows, std::int64_t dim,
                    Carver& carver) {
  if (direct) return {wanted ? operand_of<T>(wanted) : kernels::Operand<T*>{}, nullptr};
  T* scratch = carver.take<T>(rows.batch * rows.heads * rows.rows * dim);
  return {contiguous_operand<T*>(scratch, rows.heads, rows.rows, dim), scratch};
}

// Counts (or takes) all scratch memory. `everything`: counts as if all gradients were wanted and all
// arguments given.
template <class T>
Scratch<T> scratch_of(const AttentionPlan::Impl& plan, const Call& call, const AttentionGradients& g,
                      const CallSizes& sizes, Carver& carver, bool everything, bool whole_row) {
  const AttentionShape& s = plan.shape;
  const ScoreDefinition& score = plan.score();
  const bool narrowed = plan.dtype != plan.compute_dtype();
  const RowSizes queries{sizes.batch, s.num_query_heads, sizes.query_len},
      keys{sizes.batch, s.num_kv_heads, sizes.key_len};
  // A matrix that the call leaves out is the identity, so its operand needs no scratch buffer.
  const auto is_mapped = [&](const RowMap& map) {
    if (everything || map.norm != RowMap::Norm::none)
      return map.matrix >= 0 || map.bias >= 0 || map.norm != RowMap::Norm::none;
    return bool(call.arguments[map.matrix]) || bool(call.gradients[map.bias]);
  };
  const bool query_projected = is_mapped(score.query),
             key_projected = is_mapped(score.key) || score.key_rows >= 0;
  Scratch<T> scratch;
  scratch.query = target_of<T>(g.query, !narrowed && !query_projected, queries, plan.score_dim(), carver);
  scratch.key = target_of<T>(g.key, !narrowed && !key_projected, keys, plan.score_dim(), carver);
  scratch.value = target_of<T>(g.value, !narrowed, keys, s.value_dim, carver);
  if (whole_row) {
    scratch.mean = carver.take<T>(queries.batch * queries.heads * queries.rows);
    std::int64_t elements = 0;
    for (const ArgumentDeclaration& declaration : arguments(plan.spec.normalizer))
      elements += elements_of_a_head(declaration);
    scratch.normalizer = carver.take<T>(s.num_query_heads * elements);
  }
  if (score.query.gain >= 0 || score.key.gain >= 0)
    scratch.gains = carver.take<T>(s.num_query_heads * plan.score_dim());
  if (narrowed) {
    scratch.query_back = carver.take<T>(queries.batch * queries.heads * queries.rows * s.head_dim);
    scratch.key_back = carver.take<T>(keys.batch * keys.heads * keys.rows * s.key_dim);
    const std::int64_t count = queries.batch * queries.heads * queries.rows * s.value_dim;
    scratch.wide_output =
        contiguous_operand<T*>(carver.take<T>(count), queries.heads, queries.rows, s.value_dim);
    scratch.wide_d_output =
        contiguous_operand<T*>(carver.take<T>(count), queries.heads, queries.rows, s.value_dim);
  }
  return scratch;
}

const Rule& rule_of(const AttentionPlan::Impl& plan, LossOf loss_of) {
  return plan.choice.rule(loss_of == LossOf::weights ? kernels::Duty::backward_of_weights
                                                     : kernels::Duty::backward);
}

template <class T>
std::size_t bytes_of(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads,
                     const kernels::Candidate& candidate, bool whole_row) {
  Carver counting;
  auto prepared = prepare<T>(plan, {.inputs = {}, .backward = true}, sizes, counting, nullptr);
  prepared.problem.whole_row = whole_row;
  scratch_of<T>(plan, {.inputs = {}}, {}, sizes, counting, true, whole_row);
  return counting.used_before_rest() + candidate.code<T>().backward_bytes(prepared.problem, threads);
}

std::size_t backward_bytes(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads,
                           LossOf loss_of) {
  const kernels::Candidate& candidate = *rule_of(plan, loss_of).of(sizes.query_len, sizes.key_len).candidate;
  const bool whole = whole_row(plan, loss_of) || candidate.whole_rows;
  return with_wide_type(
      plan.dtype, [&](auto t) { return bytes_of<decltype(t)>(plan, sizes, threads, candidate, whole); });
}

template <class T>
void store(const kernels::Operand<T*>& from, const TensorView& to, Executor& executor) {
  if (to) copy_rows(view_of(from, to.shape()), to, executor);
}

// One operand of the score: turns the gradient of the mapped rows into the gradients of the operand and of
// its arguments.
template <class T>
struct Side {
  const RowMap& map;
  RowSizes rows;
  std::int64_t dim;  // elements of a row of the operand
  kernels::Operand<const T*> operand;
  const Target<T>* from;
  T* back;
  TensorView wanted;
};

template <class T>
void finish_side(const AttentionPlan::Impl& plan, const Call& call, const Side<T>& side, T* gains,
                 Executor& executor) {
  const RowMap& map = side.map;
  const auto d_mapped = read_only<T>(side.from->kernel);
  if (const TensorView& d_bias = call.gradients[map.bias])
    bias_gradient<T>(side.rows, plan.score_dim(), d_mapped, d_bias.data<T>(), executor);
  const ConstTensorView& matrix = call.arguments[map.matrix];
  const bool normalized = map.norm != RowMap::Norm::none;
  if (!matrix && !normalized) {
    if (side.from->scratch) store<T>(side.from->kernel, side.wanted, executor);
    return;
  }
  const RowNorm norm{map, side.dim, call.arguments[map.gain]};
  const Projection<T> projection = projection_of<T>(matrix, plan.score_dim(), side.dim);
  if (const TensorView& d_matrix = call.gradients[map.matrix])
    weight_gradient<T>(side.rows, projection, d_mapped, side.operand, d_matrix.data<T>(), executor);
  if (const TensorView& d_gain = call.gradients[map.gain])
    gain_gradient<T>(side.rows, norm, side.operand, d_mapped, gains, d_gain, executor);
  if (!side.wanted) return;
  const auto target = side.back ? contiguous_operand<T*>(side.back, side.rows.heads, side.rows.rows, side.dim)
                                : operand_of<T>(side.wanted);
  if (normalized)
    normalize_rows_back<T>(side.rows, norm, side.operand, d_mapped, target, executor);
  else
    project_back<T>(side.rows, projection, d_mapped, target, executor);
  if (side.back) store<T>(target, side.wanted, executor);
}

// d sink_h = -Σ (weight of the sink) · D over the rows of the head, in their order. D is ⟨dO, O⟩, or the
// kernel's result in `mean`.
template <class T>
void sink_gradient(const CallSizes& sizes, std::int64_t heads, std::int64_t dim, const T* sink,
                   const T* log_sum_exp, const Scratch<T>& scratch, T* gradient, Executor& executor) {
  executor.parallel_for(heads, [&](std::int64_t h, int) {
    T sum{0};
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      for (std::int64_t r = 0; r < sizes.query_len; ++r) {
        const std::int64_t row = (b * heads + h) * sizes.query_len + r;
        const T lse = log_sum_exp[row];
        if (lse == -std::numeric_limits<T>::infinity()) continue;  // O is 0, and dO may be NaN
        T mean = scratch.mean ? scratch.mean[row] : T{0};
        if (!scratch.mean) {
          const T *o = scratch.output.row(b, h, r), *d = scratch.d_output.row(b, h, r);
          for (std::int64_t e = 0; e < dim; ++e) mean += o[e] * d[e];
        }
        sum -= mean / (T{1} + std::exp(lse - sink[h]));
      }
    }
    gradient[h] = sum;
  });
}

// The output and its derivative as the kernel reads them: widened copies, or the caller's tensors.
template <class T>
void take_outputs(const AttentionPlan::Impl& plan, const AttentionLoss& loss, Scratch<T>& scratch,
                  Executor& executor) {
  const auto take = [&](const ConstTensorView& view, kernels::Operand<T*>& widened) {
    if (!view) return kernels::Operand<const T*>();
    if (plan.dtype == plan.compute_dtype()) return operand_of<T>(view);
    copy_rows(view, view_of(widened, view.shape()), executor);
    return read_only<T>(widened);
  };
  scratch.output = take(loss.output, scratch.wide_output);
  scratch.d_output = take(loss.d_output, scratch.wide_d_output);
}

// The gradient of the argument that replaces keys. Row j sums the gradients of key j over batch entries and
// heads, in their order.
template <class T>
void key_rows_gradient(const CallSizes& sizes, std::int64_t heads, std::int64_t dim,
                       const kernels::Operand<T*>& d_key, const TensorView& d_rows, Executor& executor) {
  executor.parallel_for(d_rows.size(0), [&](std::int64_t j, int) {
    T* to = d_rows.data<T>() + j * dim;
    std::fill_n(to, dim, T{0});
    for (std::int64_t n = 0; j < sizes.key_len && n < sizes.batch * heads; ++n) {
      const T* from = d_key.row(n / heads, n % heads, j);
      for (std::int64_t d = 0; d < dim; ++d) to[d] += from[d];
    }
  });
}

bool wants_normalizer_gradients(const AttentionPlan::Impl& plan, const Call& call) {
  if (counts_keys(plan.spec.normalizer)) return false;  // that of a mod
  const auto count = static_cast<int>(arguments(plan.spec.normalizer).size());
  for (int n = 0; n < count; ++n) {
    if (call.gradients[plan.first_normalizer_argument + n]) return true;
  }
  return false;
}

// The gradients of the normaliser's arguments, from those of each query head. What heads share is summed in
// their order.
template <class T>
void normalizer_gradients(const AttentionPlan::Impl& plan, const Call& call, const kernels::Problem<T>& p,
                          const T* of_heads) {
  const std::span<const ArgumentDeclaration> declared = arguments(plan.spec.normalizer);
  for (std::size_t n = 0; n < declared.size(); ++n) {
    const std::int64_t elements = p.normalizer_arguments.at(n).elements;
    if (const TensorView& to = call.gradients[plan.first_normalizer_argument + static_cast<int>(n)]) {
      std::fill_n(to.data<T>(), to.count(), T{0});
      const std::int64_t stride = is_by_head(declared[n], to.rank()) ? elements : 0;
      for (std::int64_t h = 0; h < p.query_heads; ++h) {
        for (std::int64_t e = 0; e < elements; ++e)
          to.data<T>()[h * stride + e] += of_heads[h * p.normalizer_elements + e];
      }
    }
    of_heads += elements;
  }
}

template <class T>
void run(const AttentionPlan::Impl& plan, const Call& call, const AttentionLoss& loss,
         const AttentionGradients& g, const CallSizes& sizes, Executor& executor,
         std::span<std::byte> memory) {
  Carver carver(memory);
  auto prepared = prepare<T>(plan, call, sizes, carver, &executor);
  const kernels::Candidate& candidate =
      *rule_of(plan, loss_of(loss)).of(sizes.query_len, sizes.key_len).candidate;
  prepared.problem.whole_row = whole_row(plan, loss_of(loss)) || candidate.whole_rows;
  Scratch<T> scratch = scratch_of<T>(plan, call, g, sizes, carver, false, prepared.problem.whole_row);
  const AttentionShape& s = plan.shape;
  const ScoreDefinition& score = plan.score();
  const T* sink = kernels::sink_of(prepared.problem, 0);
  const TensorView d_sink = sink ? call.gradients[plan.first_normalizer_argument] : TensorView();
  const bool has_gradients = !sink && wants_normalizer_gradients(plan, call);
  take_outputs(plan, loss, scratch, executor);
  const T* log_sum_exp = data_or_null<T>(loss.log_sum_exp);
  kernels::BackwardProblem<T> backward{
      .output = scratch.output,
      .d_output = scratch.d_output,
      .log_sum_exp = log_sum_exp,
      .d_query = scratch.query.kernel,
      .d_key = scratch.key.kernel,
      .d_value = loss.d_output ? scratch.value.kernel : kernels::Operand<T*>(),
      .d_additive_vector = data_or_null<T>(call.gradients[score.vector]),
      .d_coverage_vector = data_or_null<T>(call.gradients[score.coverage]),
      .d_normalizer = has_gradients ? scratch.normalizer : nullptr,
      .mean = scratch.mean,
      .advantage = data_or_null<T>(loss.advantage),
      .d_weights = {},
      .weight_heads = loss.weight_heads,
      .weight_rows = loss.weight_rows};
  if (loss.d_weights) backward.d_weights = operand_of<T>(loss.d_weights);
  candidate.code<T>().backward(prepared.problem, backward, executor, carver.rest().data());

  if (d_sink) {
    sink_gradient<T>(sizes, s.num_query_heads, s.value_dim, sink, log_sum_exp, scratch, d_sink.data<T>(),
                     executor);
  }
  if (has_gradients) normalizer_gradients<T>(plan, call, prepared.problem, scratch.normalizer);
  const RowSizes queries{sizes.batch, s.num_query_heads, sizes.query_len},
      keys{sizes.batch, s.num_kv_heads, sizes.key_len};
  finish_side<T>(
      plan, call,
      {score.query, queries, s.head_dim, prepared.query, &scratch.query, scratch.query_back, g.query},
      scratch.gains, executor);
  if (score.key_rows >= 0) {
    if (const TensorView& d_rows = call.gradients[score.key_rows])
      key_rows_gradient<T>(sizes, s.num_kv_heads, s.head_dim, scratch.key.kernel, d_rows, executor);
  } else {
    finish_side<T>(plan, call,
                   {score.key, keys, s.key_dim, prepared.key, &scratch.key, scratch.key_back, g.key},
                   scratch.gains, executor);
  }
  if (!loss.d_output)
    clear_rows(g.value);
  else if (scratch.value.scratch)
    store<T>(scratch.value.kernel, g.value, executor);
}

}  // namespace

std::size_t most_backward_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads,
                                LossOf loss_of) {
  std::size_t bytes = 0;
  for (const Step& step : rule_of(plan, loss_of).steps()) {
    const std::int64_t queries = std::min(step.last, most.query_len);
    const std::int64_t keys = step.most_keys > 0 ? std::min(step.most_keys, most.key_len) : most.key_len;
    bytes = std::max(bytes, backward_bytes(plan, {most.batch, queries, keys}, threads, loss_of));
    if (step.last >= most.query_len && step.most_keys == 0) break;
  }
  return bytes;
}

void run_backward(const AttentionPlan::Impl& plan, const Call& call, const AttentionLoss& loss,
                  const AttentionGradients& gradients, const CallSizes& sizes, Executor& executor,
                  std::span<std::byte> memory) {
  with_wide_type(plan.dtype,
                 [&](auto t) { run<decltype(t)>(plan, call, loss, gradients, sizes, executor, memory); });
}

std::size_t backward_workspace_bytes(const AttentionPlan& plan, int threads, LossOf loss_of) {
  check_threads("backward_workspace_bytes", threads);
  const AttentionPlan::Impl& impl = plan.impl();
  const AttentionShape& s = impl.shape;
  return std::max(most_backward_bytes(impl, {s.batch, s.query_len, s.key_len}, threads, loss_of),
                  packed_backward_bytes(impl, threads, loss_of));
}

void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionLoss& loss,
                     const AttentionGradients& gradients, const CallResources& resources) {
  const AttentionPlan::Impl& impl = plan.impl();
  if (!inputs.cache.empty())
    throw InvalidArgument(function, "cache", "nothing: gradients are those of key and value as tensors",
                          std::to_string(inputs.cache.size()) + " views");
  const Call call = call_of(function, impl, inputs, &gradients);
  const CallSizes sizes = check_inputs(function, impl, call);
  check_backward(impl, result_sizes(inputs, sizes), call, loss, gradients);
  if (sizes.batch == 0 || sizes.query_len == 0 || sizes.key_len == 0) {
    // All gradients are 0, and no kernel runs to write them.
    for (const TensorView* view : {&gradients.query, &gradients.key, &gradients.value}) clear_rows(*view);
    for (const NamedArgument<TensorView>& gradient : gradients.arguments.all()) clear_rows(gradient.view);
    return;
  }
  add_backward_work(impl, inputs, sizes);
  if (PackedBatch(inputs)) return attend_packed_backward(impl, call, loss, gradients, resources);
  Executor& executor = executor_of(resources, 2.5 * multiply_adds(impl, sizes));
  const std::size_t bytes = backward_bytes(impl, sizes, executor.thread_count(), loss_of(loss));
  const std::span<std::byte> memory = workspace_of(function, resources.workspace, bytes);
  run_backward(impl, call, loss, gradients, sizes, executor, memory);
}

void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, ConstTensorView output,
                     ConstTensorView log_sum_exp, ConstTensorView d_output,
                     const AttentionGradients& gradients, const CallResources& resources) {
  AttentionLoss loss;
  loss.output = output;
  loss.log_sum_exp = log_sum_exp;
  loss.d_output = d_output;
  attend_backward(plan, inputs, loss, gradients, resources);
}

}  // namespace fovea

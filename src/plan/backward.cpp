// attend_backward: the kernel's gradients of projected queries and keys, carried back through the
// projections.
#include "plan/backward.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/projection.h"
#include "plan/rows.h"

namespace fovea {
namespace {

constexpr const char* function = "attend_backward";

// Where one operand's gradient goes: straight to the caller, or to scratch first (16-bit results, or a
// projection to go back through).
template <class T>
struct Target {
  kernels::Operand<T*> kernel;  // what the kernel writes
  T* scratch = nullptr;         // null: the kernel writes the caller's tensor
};

template <class T>
struct Scratch {
  Target<T> query, key, value;
  T *query_back = nullptr, *key_back = nullptr;  // after the projection, before narrowing
  kernels::Operand<T*> wide_output, wide_d_output;
  kernels::Operand<const T*> output, d_output;
  T *mean = nullptr, *transitions = nullptr;  // of whole rows: Σ P·dP of each; [num_query_heads, 2, 2]
};

template <class T>
Target<T> target_of(const TensorView& wanted, bool direct, const RowSizes& rows, std::int64_t dim,
                    Carver& carver) {
  if (direct) return {wanted ? operand_of<T>(wanted) : kernels::Operand<T*>{}, nullptr};
  T* scratch = carver.take<T>(rows.batch * rows.heads * rows.rows * dim);
  return {packed<T*>(scratch, rows.heads, rows.rows, dim), scratch};
}

// Counts (or takes) all scratch; `everything` counts as if every gradient were wanted and every parameter
// given.
template <class T>
Scratch<T> scratch_of(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                      const AttentionGradients& g, const CallSizes& sizes, Carver& carver, bool everything,
                      bool whole_row) {
  const AttentionShape& s = plan.shape;
  const bool narrowed = plan.dtype != plan.compute_dtype();
  const RowSizes queries{sizes.batch, s.num_query_heads, sizes.query_len},
      keys{sizes.batch, s.num_kv_heads, sizes.key_len};
  const bool query_projected = everything ? plan.bilinear() || plan.additive() || plan.low_rank()
                                          : (inputs.parameters.W && !plan.location()) || g.b;
  const bool key_projected = everything ? plan.additive() || plan.low_rank() || plan.location()
                                        : inputs.parameters.U || plan.location();
  Scratch<T> scratch;
  scratch.query = target_of<T>(g.query, !narrowed && !query_projected, queries, plan.score_dim(), carver);
  scratch.key = target_of<T>(g.key, !narrowed && !key_projected, keys, plan.score_dim(), carver);
  scratch.value = target_of<T>(g.value, !narrowed, keys, s.value_dim, carver);
  if (whole_row) {
    scratch.mean = carver.take<T>(queries.batch * queries.heads * queries.rows);
    scratch.transitions = carver.take<T>(s.num_query_heads * 4);
  }
  if (narrowed) {
    scratch.query_back = carver.take<T>(queries.batch * queries.heads * queries.rows * s.head_dim);
    scratch.key_back = carver.take<T>(keys.batch * keys.heads * keys.rows * s.key_dim);
    const std::int64_t count = queries.batch * queries.heads * queries.rows * s.value_dim;
    scratch.wide_output = packed<T*>(carver.take<T>(count), queries.heads, queries.rows, s.value_dim);
    scratch.wide_d_output = packed<T*>(carver.take<T>(count), queries.heads, queries.rows, s.value_dim);
  }
  return scratch;
}

template <class T>
std::size_t kernel_workspace(const AttentionPlan::Impl& plan, const kernels::Problem<T>& problem,
                             int threads) {
  if constexpr (std::is_same_v<T, float>)
    return plan.kernel->backward_workspace(problem, threads);
  else
    return plan.kernel->backward_workspace_f64(problem, threads);
}

template <class T>
std::size_t bytes_of(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads, LossOf loss_of) {
  Carver counting;
  auto prepared = prepare<T>(plan, {}, sizes, counting, nullptr);
  prepared.problem.whole_row = whole_row(plan, loss_of);
  scratch_of<T>(plan, {}, {}, sizes, counting, true, prepared.problem.whole_row);
  return counting.used() + 128 + kernel_workspace<T>(plan, prepared.problem, threads);
}

std::size_t backward_bytes(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads,
                           LossOf loss_of) {
  return plan.compute_dtype() == DType::f64 ? bytes_of<double>(plan, sizes, threads, loss_of)
                                            : bytes_of<float>(plan, sizes, threads, loss_of);
}

template <class T>
void store(const kernels::Operand<T*>& from, const TensorView& to, Executor& executor) {
  if (to) copy_rows(view_of(from, to.shape()), to, executor);
}

template <class T>
kernels::Operand<const T*> readable(const kernels::Operand<T*>& operand) {
  return {operand.data, operand.batch_stride, operand.head_stride, operand.row_stride};
}

// One side of the score: gradient of the projected operand -> gradient of the operand, of the matrix and of
// the bias.
template <class T>
struct Side {
  RowSizes rows;
  Projection<T> projection;  // weight null: none
  kernels::Operand<const T*> operand;
  const Target<T>* from;
  T* back;
  TensorView wanted, d_weight, d_bias;
};

template <class T>
void finish_side(const AttentionPlan::Impl& plan, const Side<T>& side, Executor& executor) {
  const auto d_projected = readable<T>(side.from->kernel);
  if (side.d_bias) bias_gradient<T>(side.rows, plan.score_dim(), d_projected, side.d_bias.template data<T>());
  if (!side.projection.weight) {
    if (side.from->scratch) store<T>(side.from->kernel, side.wanted, executor);
    return;
  }
  if (side.d_weight)
    weight_gradient<T>(side.rows, side.projection, d_projected, side.operand,
                       side.d_weight.template data<T>(), executor);
  if (!side.wanted) return;
  const auto target = side.back ? packed<T*>(side.back, side.rows.heads, side.rows.rows, side.projection.in)
                                : operand_of<T>(side.wanted);
  project_back<T>(side.rows, side.projection, d_projected, target, executor);
  if (side.back) store<T>(target, side.wanted, executor);
}

template <class T>
Projection<T> projection_of(const ConstTensorView& weight, std::int64_t out, std::int64_t in) {
  if (!weight) return {};
  return {weight.data<T>(),  out, in, weight.stride(-2), weight.rank() == 3 ? weight.stride(0) : 0, nullptr,
          weight.rank() == 3};
}

// d sink_h = -Σ (weight of the sink) · D over the rows of the head, in their order. D is ⟨dO, O⟩, or as the
// kernel found it in `mean`.
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

// A call without queries has gradients of 0, which no kernel would write.
void zero(const TensorView& view) {
  if (!view || view.count() == 0) return;
  const std::int64_t width = view.rank() > 0 ? view.size(-1) : 1, rows = view.count() / width;
  const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
  for (std::int64_t n = 0; n < rows; ++n) {
    std::int64_t offset = 0, rest = n;
    for (int axis = view.rank() - 2; axis >= 0; --axis) {
      offset += rest % view.size(axis) * view.stride(axis);
      rest /= view.size(axis);
    }
    std::fill_n(view.raw() + offset * element, width * element, std::byte{0});
  }
}

// Output and its derivative as the kernel reads them: widened, or the caller's.
template <class T>
void take_outputs(const AttentionPlan::Impl& plan, const AttentionLoss& loss, Scratch<T>& scratch,
                  Executor& executor) {
  const auto take = [&](const ConstTensorView& view, kernels::Operand<T*>& widened) {
    if (!view) return kernels::Operand<const T*>();
    if (plan.dtype == plan.compute_dtype()) return operand_of<T>(view);
    copy_rows(view, view_of(widened, view.shape()), executor);
    return readable<T>(widened);
  };
  scratch.output = take(loss.output, scratch.wide_output);
  scratch.d_output = take(loss.d_output, scratch.wide_d_output);
}

// dW of a location score: row j is what key j got, over batch entries and heads in their order.
template <class T>
void location_gradient(const CallSizes& sizes, std::int64_t heads, std::int64_t dim,
                       const kernels::Operand<T*>& d_key, const TensorView& d_weight, Executor& executor) {
  executor.parallel_for(d_weight.size(0), [&](std::int64_t j, int) {
    T* to = d_weight.data<T>() + j * dim;
    std::fill_n(to, dim, T{0});
    for (std::int64_t n = 0; j < sizes.key_len && n < sizes.batch * heads; ++n) {
      const T* from = d_key.row(n / heads, n % heads, j);
      for (std::int64_t d = 0; d < dim; ++d) to[d] += from[d];
    }
  });
}

template <class T>
void transition_gradient(std::int64_t heads, const T* each_head, const TensorView& to) {
  T* sum = to.data<T>();
  std::copy_n(each_head, to.count(), sum);
  for (std::int64_t n = to.count(); n < heads * 4; ++n) sum[n % 4] += each_head[n];
}

template <class T>
void run(const AttentionPlan::Impl& plan, const AttentionInputs& inputs, const AttentionLoss& loss,
         const AttentionGradients& g, const CallSizes& sizes, Executor& executor,
         std::span<std::byte> memory) {
  Carver carver(memory);
  auto prepared = prepare<T>(plan, inputs, sizes, carver, &executor, &g);
  prepared.problem.whole_row = whole_row(plan, loss.d_weights ? LossOf::weights : LossOf::output);
  Scratch<T> scratch = scratch_of<T>(plan, inputs, g, sizes, carver, false, prepared.problem.whole_row);
  const AttentionShape& s = plan.shape;
  take_outputs(plan, loss, scratch, executor);
  const T* log_sum_exp = loss.log_sum_exp ? loss.log_sum_exp.data<T>() : nullptr;
  kernels::BackwardProblem<T> backward{
      .output = scratch.output,
      .d_output = scratch.d_output,
      .log_sum_exp = log_sum_exp,
      .d_query = scratch.query.kernel,
      .d_key = scratch.key.kernel,
      .d_value = loss.d_output ? scratch.value.kernel : kernels::Operand<T*>(),
      .d_additive_vector = g.v ? g.v.data<T>() : nullptr,
      .d_coverage_vector = g.w ? g.w.data<T>() : nullptr,
      .d_transitions = g.transitions ? scratch.transitions : nullptr,
      .mean = scratch.mean,
      .advantage = loss.advantage ? loss.advantage.data<T>() : nullptr,
      .d_weights = {},
      .weight_heads = loss.weight_heads,
      .weight_rows = loss.weight_rows};
  if (loss.d_weights) backward.d_weights = operand_of<T>(loss.d_weights);
  if constexpr (std::is_same_v<T, float>)
    plan.kernel->backward(prepared.problem, backward, executor, carver.rest());
  else
    plan.kernel->backward_f64(prepared.problem, backward, executor, carver.rest());

  if (g.sink) {
    sink_gradient<T>(sizes, s.num_query_heads, s.value_dim, inputs.sink.data<T>(), log_sum_exp, scratch,
                     g.sink.data<T>(), executor);
  }
  if (g.transitions) transition_gradient<T>(s.num_query_heads, scratch.transitions, g.transitions);
  const RowSizes queries{sizes.batch, s.num_query_heads, sizes.query_len},
      keys{sizes.batch, s.num_kv_heads, sizes.key_len};
  const ScoreParameters& given = inputs.parameters;
  if (plan.location()) {
    finish_side<T>(plan, {queries, {}, prepared.query, &scratch.query, scratch.query_back, g.query, {}, {}},
                   executor);
    if (g.W) location_gradient<T>(sizes, s.num_kv_heads, s.head_dim, scratch.key.kernel, g.W, executor);
  } else {
    finish_side<T>(plan,
                   {queries, projection_of<T>(given.W, plan.score_dim(), s.head_dim), prepared.query,
                    &scratch.query, scratch.query_back, g.query, g.W, g.b},
                   executor);
    finish_side<T>(plan,
                   {keys,
                    projection_of<T>(given.U, plan.score_dim(), s.key_dim),
                    prepared.key,
                    &scratch.key,
                    scratch.key_back,
                    g.key,
                    g.U,
                    {}},
                   executor);
  }
  if (!loss.d_output)
    zero(g.value);
  else if (scratch.value.scratch)
    store<T>(scratch.value.kernel, g.value, executor);
}

}  // namespace

std::size_t backward_workspace_bytes(const AttentionPlan& plan, int threads, LossOf loss_of) {
  const AttentionPlan::Impl& impl = plan.impl();
  return backward_bytes(impl, {impl.shape.batch, impl.shape.query_len, impl.shape.key_len}, threads, loss_of);
}

void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionLoss& loss,
                     const AttentionGradients& gradients, const CallResources& resources) {
  const AttentionPlan::Impl& impl = plan.impl();
  const CallSizes sizes = check_inputs(function, impl, inputs);
  check_mods(function, impl, sizes, inputs, &gradients);
  check_backward(impl, sizes, inputs, loss, gradients);
  if (sizes.batch == 0 || sizes.query_len == 0 || sizes.key_len == 0) {
    for (const TensorView* view :
         {&gradients.query, &gradients.key, &gradients.value, &gradients.W, &gradients.U, &gradients.v,
          &gradients.b, &gradients.w, &gradients.sink, &gradients.transitions}) {
      zero(*view);
    }
    for (const auto& list : {gradients.mod_arguments, gradients.weight_mod_arguments}) {
      for (const TensorView& view : list) zero(view);
    }
    return;
  }
  Executor& executor = resources.executor ? *resources.executor : default_executor();
  const std::size_t bytes =
      backward_bytes(impl, sizes, executor.thread_count(), loss.d_weights ? LossOf::weights : LossOf::output);
  const std::span<std::byte> memory = workspace_of(function, resources, bytes);
  impl.compute_dtype() == DType::f64 ? run<double>(impl, inputs, loss, gradients, sizes, executor, memory)
                                     : run<float>(impl, inputs, loss, gradients, sizes, executor, memory);
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

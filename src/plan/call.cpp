// attend: check, widen, project, run.
#include <algorithm>

#include "plan/impl.h"
#include "plan/projection.h"

namespace fovea {
namespace {

// 16-bit operands become f32 rows; the kernels know f32 and f64 only, so nothing multiplies.
template <class Narrow>
void widen(const ConstTensorView& from, float* to, Executor& executor) {
  const std::int64_t rows = from.size(2), dim = from.size(3), heads = from.size(1);
  const auto source = operand_of<Narrow>(from);
  executor.parallel_for(from.size(0) * heads, [&](std::int64_t unit, int) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const Narrow* row = source.row(unit / heads, unit % heads, r);
      float* wide = to + (unit * rows + r) * dim;
      for (std::int64_t d = 0; d < dim; ++d) wide[d] = static_cast<float>(row[d]);
    }
  });
}

template <class Narrow>
void narrow(const float* from, const TensorView& to) {
  const auto target = operand_of<Narrow>(to);
  const std::int64_t heads = to.size(1), rows = to.size(2), dim = to.size(3);
  for (std::int64_t n = 0; n < to.size(0) * heads * rows; ++n) {
    Narrow* row = target.row(n / rows / heads, n / rows % heads, n % rows);
    for (std::int64_t d = 0; d < dim; ++d) row[d] = Narrow(from[n * dim + d]);
  }
}

template <class T>
kernels::Operand<const T*> widened(const AttentionPlan::Impl& plan, const ConstTensorView& view,
                                   std::int64_t heads, std::int64_t rows, std::int64_t dim,
                                   std::int64_t batch, Carver& carver, Executor* executor) {
  if (plan.dtype == plan.compute_dtype())
    return executor ? operand_of<T>(view) : kernels::Operand<const T*>{};
  T* wide = carver.take<T>(batch * heads * rows * dim);
  if constexpr (std::is_same_v<T, float>) {
    if (executor)
      plan.dtype == DType::bf16 ? widen<bfloat16>(view, wide, *executor)
                                : widen<float16>(view, wide, *executor);
  }
  return packed<const T*>(wide, heads, rows, dim);
}

template <class T>
kernels::Operand<const T*> projected(const RowSizes& rows, const Projection<T>& projection,
                                     const kernels::Operand<const T*>& x, Carver& carver,
                                     Executor* executor) {
  T* y = carver.take<T>(rows.batch * rows.heads * rows.rows * projection.out);
  const auto target = packed<T*>(y, rows.heads, rows.rows, projection.out);
  if (executor) project(rows, projection, x, target, *executor);
  return packed<const T*>(y, rows.heads, rows.rows, projection.out);
}

// b alone, where the queries are already projected: y = x + b, as a projection by nothing would be.
template <class T>
kernels::Operand<const T*> shifted(const RowSizes& rows, const T* bias, std::int64_t dim,
                                   const kernels::Operand<const T*>& x, Carver& carver, Executor* executor) {
  T* y = carver.take<T>(rows.batch * rows.heads * rows.rows * dim);
  const auto target = packed<T*>(y, rows.heads, rows.rows, dim);
  if (executor) {
    executor->parallel_for(rows.batch * rows.heads, [&](std::int64_t unit, int) {
      for (std::int64_t r = 0; r < rows.rows; ++r) {
        const T* from = x.row(unit / rows.heads, unit % rows.heads, r);
        T* to = target.row(unit / rows.heads, unit % rows.heads, r);
        for (std::int64_t d = 0; d < dim; ++d) to[d] = from[d] + bias[d];
      }
    });
  }
  return packed<const T*>(y, rows.heads, rows.rows, dim);
}

template <class T>
const T* data_or_null(const ConstTensorView& view) {
  return view ? view.data<T>() : nullptr;
}

}  // namespace

template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const AttentionInputs& inputs, const CallSizes& sizes,
                    Carver& carver, Executor* executor, const char* function,
                    std::span<const TensorView> mod_gradients) {
  const AttentionShape& s = plan.shape;
  Prepared<T> result;
  result.problem.mods =
      executor ? mods_of<T>(function, plan, sizes, inputs.mod_arguments, mod_gradients) : mods_of<T>(plan);
  result.problem.has_mods = !result.problem.mods.empty();
  result.problem.shared_dense_gradient =
      result.problem.mods.shared_dense_gradient(sizes.batch, s.num_query_heads);
  result.query = widened<T>(plan, inputs.query, s.num_query_heads, sizes.query_len, s.head_dim, sizes.batch,
                            carver, executor);
  result.key =
      widened<T>(plan, inputs.key, s.num_kv_heads, sizes.key_len, s.key_dim, sizes.batch, carver, executor);
  kernels::Problem<T>& p = result.problem;
  p.batch = sizes.batch;
  p.query_heads = s.num_query_heads;
  p.kv_heads = s.num_kv_heads;
  p.query_len = sizes.query_len;
  p.key_len = sizes.key_len;
  p.score_dim = plan.score_dim();
  p.value_dim = s.value_dim;
  p.value = widened<T>(plan, inputs.value, s.num_kv_heads, sizes.key_len, s.value_dim, sizes.batch, carver,
                       executor);
  p.query = result.query;
  p.key = result.key;
  const ScoreParameters& given = inputs.parameters;
  const RowSizes queries{sizes.batch, s.num_query_heads, sizes.query_len},
      keys{sizes.batch, s.num_kv_heads, sizes.key_len};
  // With a counting carver the parameters are unknown: count as if all were given.
  if (plan.bilinear()) {
    const bool each_head = given.W.rank() == 3;
    p.query = projected<T>(queries,
                           {data_or_null<T>(given.W), s.key_dim, s.head_dim,
                            executor ? given.W.stride(-2) : 0, each_head ? given.W.stride(0) : 0},
                           result.query, carver, executor);
  } else if (plan.additive() || plan.low_rank()) {
    if (plan.additive()) p.score = kernels::ScoreKind::additive;
    p.additive_vector = data_or_null<T>(given.v);
    const T* bias = data_or_null<T>(given.b);
    if (!executor || given.W) {
      p.query = projected<T>(
          queries,
          {data_or_null<T>(given.W), s.hidden, s.head_dim, executor ? given.W.stride(0) : 0, 0, bias},
          result.query, carver, executor);
    } else if (bias) {
      p.query = shifted<T>(queries, bias, s.hidden, result.query, carver, executor);
    }
    if (!executor || given.U) {
      p.key = projected<T>(
          keys, {data_or_null<T>(given.U), s.hidden, s.key_dim, executor ? given.U.stride(0) : 0, 0},
          result.key, carver, executor);
    }
  }
  p.scale = plan.scale;
  p.sink = data_or_null<T>(inputs.sink);
  if (const auto* sigmoid = std::get_if<Sigmoid>(&plan.spec.normalizer)) {
    p.normalizer = kernels::NormalizerKind::sigmoid;
    p.sigmoid_bias = sigmoid->bias;
  }
  p.mask = &plan.spec.mask;
  p.key_lengths = inputs.key_lengths;
  p.query_offset = inputs.query_offset.value_or(sizes.key_len - sizes.query_len);
  p.dropout_rate = plan.spec.dropout.rate;
  p.dropout_seed = inputs.dropout_seed;
  return result;
}

template Prepared<float> prepare<float>(const AttentionPlan::Impl&, const AttentionInputs&, const CallSizes&,
                                        Carver&, Executor*, const char*, std::span<const TensorView>);
template Prepared<double> prepare<double>(const AttentionPlan::Impl&, const AttentionInputs&,
                                          const CallSizes&, Carver&, Executor*, const char*,
                                          std::span<const TensorView>);

namespace {

template <class T>
std::size_t kernel_workspace(const AttentionPlan::Impl& plan, const kernels::Problem<T>& problem,
                             int threads) {
  if constexpr (std::is_same_v<T, float>)
    return plan.kernel->forward_workspace(problem, threads);
  else
    return plan.kernel->forward_workspace_f64(problem, threads);
}

template <class T>
std::size_t forward_bytes(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads) {
  Carver counting;
  const auto prepared = prepare<T>(plan, {}, sizes, counting, nullptr);
  if (plan.dtype != plan.compute_dtype())
    counting.take<T>(sizes.batch * plan.shape.num_query_heads * sizes.query_len * plan.shape.value_dim);
  return counting.used() + 128 + kernel_workspace<T>(plan, prepared.problem, threads);
}

template <class T>
void run(const AttentionPlan::Impl& plan, const AttentionInputs& inputs, const AttentionOutputs& outputs,
         const CallSizes& sizes, Executor& executor, std::span<std::byte> memory) {
  Carver carver(memory);
  const auto prepared = prepare<T>(plan, inputs, sizes, carver, &executor);
  kernels::ForwardOutputs<T> out;
  const bool narrowed = plan.dtype != plan.compute_dtype();
  T* wide = nullptr;
  if (narrowed) {
    wide = carver.take<T>(outputs.output.count());
    out.output = packed<T*>(wide, plan.shape.num_query_heads, sizes.query_len, plan.shape.value_dim);
  } else {
    out.output = operand_of<T>(outputs.output);
  }
  if (outputs.log_sum_exp) out.log_sum_exp = outputs.log_sum_exp.data<T>();
  if (outputs.weights) out.weights = operand_of<T>(outputs.weights);
  out.weight_heads = outputs.weight_heads;
  if constexpr (std::is_same_v<T, float>) {
    plan.kernel->forward(prepared.problem, out, executor, carver.rest());
    if (narrowed)
      plan.dtype == DType::bf16 ? narrow<bfloat16>(wide, outputs.output)
                                : narrow<float16>(wide, outputs.output);
  } else {
    plan.kernel->forward_f64(prepared.problem, out, executor, carver.rest());
  }
}

void check_outputs(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                   const AttentionOutputs& outputs, const CallSizes& sizes) {
  const char* function = "attend";
  const AttentionShape& s = plan.shape;
  check_output(function, "output", outputs.output, plan.dtype,
               {sizes.batch, s.num_query_heads, sizes.query_len, s.value_dim}, inputs);
  if (outputs.log_sum_exp) {
    check_output(function, "log_sum_exp", outputs.log_sum_exp, plan.compute_dtype(),
                 {sizes.batch, s.num_query_heads, sizes.query_len}, inputs);
    if (!outputs.log_sum_exp.contiguous())
      throw InvalidArgument(function, "log_sum_exp", "a contiguous tensor", "a strided one");
  }
  for (const std::int64_t head : outputs.weight_heads) {
    if (head < 0 || head >= s.num_query_heads) {
      throw InvalidArgument(function, "weight_heads",
                            "heads in [0, " + std::to_string(s.num_query_heads) + ")", std::to_string(head));
    }
  }
  if (outputs.weights) {
    const auto heads = outputs.weight_heads.empty() ? s.num_query_heads
                                                    : static_cast<std::int64_t>(outputs.weight_heads.size());
    check_output(function, "weights", outputs.weights, plan.compute_dtype(),
                 {sizes.batch, heads, sizes.query_len, sizes.key_len}, inputs);
  }
  Apart apart(function);
  apart.writes("output", outputs.output);
  apart.writes("log_sum_exp", outputs.log_sum_exp);
  apart.writes("weights", outputs.weights);
  apart.reads(inputs);
  apart.check();
}

CallSizes capacity(const AttentionPlan::Impl& plan) {
  return {plan.shape.batch, plan.shape.query_len, plan.shape.key_len};
}

}  // namespace

std::size_t workspace_bytes(const AttentionPlan& plan, int threads) {
  const AttentionPlan::Impl& impl = plan.impl();
  return impl.compute_dtype() == DType::f64 ? forward_bytes<double>(impl, capacity(impl), threads)
                                            : forward_bytes<float>(impl, capacity(impl), threads);
}

void attend(const AttentionPlan& plan, const AttentionInputs& inputs, const AttentionOutputs& outputs,
            const CallResources& resources) {
  const AttentionPlan::Impl& impl = plan.impl();
  const CallSizes sizes = check_inputs("attend", impl, inputs);
  check_mods("attend", impl, sizes, inputs.mod_arguments, {});
  check_outputs(impl, inputs, outputs, sizes);
  if (sizes.batch == 0 || sizes.query_len == 0) return;
  Executor& executor = resources.executor ? *resources.executor : default_executor();
  const bool wide = impl.compute_dtype() == DType::f64;
  const std::size_t bytes = wide ? forward_bytes<double>(impl, sizes, executor.thread_count())
                                 : forward_bytes<float>(impl, sizes, executor.thread_count());
  const std::span<std::byte> memory = workspace_of("attend", resources, bytes);
  wide ? run<double>(impl, inputs, outputs, sizes, executor, memory)
       : run<float>(impl, inputs, outputs, sizes, executor, memory);
}

void attend(const AttentionPlan& plan, ConstTensorView query, ConstTensorView key, ConstTensorView value,
            TensorView output) {
  attend(plan, AttentionInputs{.query = query, .key = key, .value = value},
         AttentionOutputs{.output = output});
}

}  // namespace fovea

// attend_backward: the kernel's gradients of projected queries and keys, carried back through the
// projections.
#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/impl.h"
#include "plan/projection.h"

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
  kernels::Operand<const T*> output, d_output;
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
                      const AttentionGradients& g, const CallSizes& sizes, Carver& carver, bool everything) {
  const AttentionShape& s = plan.shape;
  const bool narrowed = plan.dtype != plan.compute_dtype();
  const RowSizes queries{sizes.batch, s.num_query_heads, sizes.query_len},
      keys{sizes.batch, s.num_kv_heads, sizes.key_len};
  const bool query_projected =
      everything ? plan.bilinear() || plan.additive() || plan.low_rank() : bool(inputs.parameters.W) || g.b;
  const bool key_projected = everything ? plan.additive() || plan.low_rank() : bool(inputs.parameters.U);
  Scratch<T> scratch;
  scratch.query = target_of<T>(g.query, !narrowed && !query_projected, queries, plan.score_dim(), carver);
  scratch.key = target_of<T>(g.key, !narrowed && !key_projected, keys, plan.score_dim(), carver);
  scratch.value = target_of<T>(g.value, !narrowed, keys, s.value_dim, carver);
  if (narrowed) {
    scratch.query_back = carver.take<T>(queries.batch * queries.heads * queries.rows * s.head_dim);
    scratch.key_back = carver.take<T>(keys.batch * keys.heads * keys.rows * s.key_dim);
    const std::int64_t count = queries.batch * queries.heads * queries.rows * s.value_dim;
    scratch.output = packed<const T*>(carver.take<T>(count), queries.heads, queries.rows, s.value_dim);
    scratch.d_output = packed<const T*>(carver.take<T>(count), queries.heads, queries.rows, s.value_dim);
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
std::size_t backward_bytes(const AttentionPlan::Impl& plan, const CallSizes& sizes, int threads) {
  Carver counting;
  const auto prepared = prepare<T>(plan, {}, sizes, counting, nullptr);
  scratch_of<T>(plan, {}, {}, sizes, counting, true);
  return counting.used() + 128 + kernel_workspace<T>(plan, prepared.problem, threads);
}

template <class T>
float as_float(T value) {
  return static_cast<float>(value);
}

template <class Narrow, class T>
void convert(const kernels::Operand<const T*>& from, const TensorView& to) {
  const auto target = operand_of<Narrow>(to);
  for (std::int64_t b = 0; b < to.size(0); ++b) {
    for (std::int64_t h = 0; h < to.size(1); ++h) {
      for (std::int64_t r = 0; r < to.size(2); ++r) {
        for (std::int64_t d = 0; d < to.size(3); ++d)
          target.row(b, h, r)[d] = Narrow(as_float(from.row(b, h, r)[d]));
      }
    }
  }
}

template <class Narrow, class T>
void copy_wide(const ConstTensorView& from, T* to) {
  const auto source = operand_of<Narrow>(from);
  for (std::int64_t b = 0; b < from.size(0); ++b) {
    for (std::int64_t h = 0; h < from.size(1); ++h) {
      for (std::int64_t r = 0; r < from.size(2); ++r) {
        for (std::int64_t d = 0; d < from.size(3); ++d)
          *to++ = static_cast<T>(static_cast<float>(source.row(b, h, r)[d]));
      }
    }
  }
}

template <class T>
void store(const AttentionPlan::Impl& plan, const kernels::Operand<const T*>& from, const TensorView& to) {
  if (!to) return;
  if (plan.dtype == DType::bf16) return convert<bfloat16>(from, to);
  if (plan.dtype == DType::f16) return convert<float16>(from, to);
  const auto target = operand_of<T>(to);
  for (std::int64_t b = 0; b < to.size(0); ++b) {
    for (std::int64_t h = 0; h < to.size(1); ++h) {
      for (std::int64_t r = 0; r < to.size(2); ++r)
        std::copy_n(from.row(b, h, r), to.size(3), target.row(b, h, r));
    }
  }
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
    if (side.from->scratch) store<T>(plan, d_projected, side.wanted);
    return;
  }
  if (side.d_weight)
    weight_gradient<T>(side.rows, side.projection, d_projected, side.operand,
                       side.d_weight.template data<T>(), executor);
  if (!side.wanted) return;
  const auto target = side.back ? packed<T*>(side.back, side.rows.heads, side.rows.rows, side.projection.in)
                                : operand_of<T>(side.wanted);
  project_back<T>(side.rows, side.projection, d_projected, target, executor);
  if (side.back) store<T>(plan, readable<T>(target), side.wanted);
}

template <class T>
Projection<T> projection_of(const ConstTensorView& weight, std::int64_t out, std::int64_t in) {
  if (!weight) return {};
  return {weight.data<T>(),  out, in, weight.stride(-2), weight.rank() == 3 ? weight.stride(0) : 0, nullptr,
          weight.rank() == 3};
}

// d sink_h = -Σ (weight of the sink) · ⟨dO, O⟩ over the rows of the head, in their order.
template <class T>
void sink_gradient(const CallSizes& sizes, std::int64_t heads, std::int64_t dim, const T* sink,
                   const T* log_sum_exp, const kernels::Operand<const T*>& output,
                   const kernels::Operand<const T*>& d_output, T* gradient, Executor& executor) {
  executor.parallel_for(heads, [&](std::int64_t h, int) {
    T sum{0};
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      for (std::int64_t r = 0; r < sizes.query_len; ++r) {
        const T lse = log_sum_exp[(b * heads + h) * sizes.query_len + r];
        if (lse == -std::numeric_limits<T>::infinity()) continue;  // O is 0, and dO may be NaN
        const T *o = output.row(b, h, r), *d = d_output.row(b, h, r);
        T dot{0};
        for (std::int64_t e = 0; e < dim; ++e) dot += o[e] * d[e];
        sum -= dot / (T{1} + std::exp(lse - sink[h]));
      }
    }
    gradient[h] = sum;
  });
}

template <class T>
void run(const AttentionPlan::Impl& plan, const AttentionInputs& inputs, ConstTensorView output,
         ConstTensorView log_sum_exp, ConstTensorView d_output, const AttentionGradients& g,
         const CallSizes& sizes, Executor& executor, std::span<std::byte> memory) {
  Carver carver(memory);
  const auto prepared = prepare<T>(plan, inputs, sizes, carver, &executor, function, g.mod_arguments);
  Scratch<T> scratch = scratch_of<T>(plan, inputs, g, sizes, carver, false);
  const AttentionShape& s = plan.shape;
  if (plan.dtype == DType::bf16) {
    copy_wide<bfloat16>(output, const_cast<T*>(scratch.output.data));
    copy_wide<bfloat16>(d_output, const_cast<T*>(scratch.d_output.data));
  } else if (plan.dtype == DType::f16) {
    copy_wide<float16>(output, const_cast<T*>(scratch.output.data));
    copy_wide<float16>(d_output, const_cast<T*>(scratch.d_output.data));
  } else {
    scratch.output = operand_of<T>(output);
    scratch.d_output = operand_of<T>(d_output);
  }
  const kernels::BackwardProblem<T> backward{.output = scratch.output,
                                             .d_output = scratch.d_output,
                                             .log_sum_exp = log_sum_exp.data<T>(),
                                             .d_query = scratch.query.kernel,
                                             .d_key = scratch.key.kernel,
                                             .d_value = scratch.value.kernel,
                                             .d_additive_vector = g.v ? g.v.data<T>() : nullptr};
  if constexpr (std::is_same_v<T, float>)
    plan.kernel->backward(prepared.problem, backward, executor, carver.rest());
  else
    plan.kernel->backward_f64(prepared.problem, backward, executor, carver.rest());

  if (g.sink) {
    sink_gradient<T>(sizes, s.num_query_heads, s.value_dim, inputs.sink.data<T>(), log_sum_exp.data<T>(),
                     scratch.output, scratch.d_output, g.sink.data<T>(), executor);
  }
  const RowSizes queries{sizes.batch, s.num_query_heads, sizes.query_len},
      keys{sizes.batch, s.num_kv_heads, sizes.key_len};
  finish_side<T>(plan,
                 {queries, projection_of<T>(inputs.parameters.W, plan.score_dim(), s.head_dim),
                  prepared.query, &scratch.query, scratch.query_back, g.query, g.W, g.b},
                 executor);
  finish_side<T>(plan,
                 {keys,
                  projection_of<T>(inputs.parameters.U, plan.score_dim(), s.key_dim),
                  prepared.key,
                  &scratch.key,
                  scratch.key_back,
                  g.key,
                  g.U,
                  {}},
                 executor);
  if (scratch.value.scratch) store<T>(plan, readable<T>(scratch.value.kernel), g.value);
}

void check_gradients(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                     const AttentionGradients& g) {
  const auto check = [&](const char* argument, const TensorView& view, const ConstTensorView& like,
                         DType dtype) {
    if (!view) return;
    if (!like)
      throw InvalidArgument(function, argument, "no gradient of a parameter that was not given",
                            to_string(view.shape()));
    check_output(function, argument, view, dtype, like.shape(), inputs);
  };
  check("gradients.query", g.query, inputs.query, plan.dtype);
  check("gradients.key", g.key, inputs.key, plan.dtype);
  check("gradients.value", g.value, inputs.value, plan.dtype);
  const auto parameter = [&](const char* argument, const TensorView& view, const ConstTensorView& like) {
    check(argument, view, like, plan.compute_dtype());
    if (view && !view.contiguous())
      throw InvalidArgument(function, argument, "a contiguous tensor", "a strided one");
  };
  parameter("gradients.W", g.W, inputs.parameters.W);
  parameter("gradients.U", g.U, inputs.parameters.U);
  parameter("gradients.v", g.v, inputs.parameters.v);
  parameter("gradients.b", g.b, inputs.parameters.b);
  parameter("gradients.sink", g.sink, inputs.sink);
  for (std::size_t n = 0; n < std::min(g.mod_arguments.size(), inputs.mod_arguments.size()); ++n)
    check("gradients.mod_arguments", g.mod_arguments[n], inputs.mod_arguments[n], plan.compute_dtype());
}

void check_apart(const AttentionInputs& inputs, const AttentionGradients& g, const ConstTensorView& output,
                 const ConstTensorView& log_sum_exp, const ConstTensorView& d_output) {
  Apart apart(function);
  apart.writes("gradients.query", g.query);
  apart.writes("gradients.key", g.key);
  apart.writes("gradients.value", g.value);
  apart.writes("gradients.W", g.W);
  apart.writes("gradients.U", g.U);
  apart.writes("gradients.v", g.v);
  apart.writes("gradients.b", g.b);
  apart.writes("gradients.sink", g.sink);
  for (const TensorView& view : g.mod_arguments) apart.writes("gradients.mod_arguments", view);
  apart.reads("output", output);
  apart.reads("log_sum_exp", log_sum_exp);
  apart.reads("d_output", d_output);
  apart.reads(inputs);
  apart.check();
}

void check_saved(const AttentionPlan::Impl& plan, const CallSizes& sizes, const ConstTensorView& output,
                 const ConstTensorView& log_sum_exp, const ConstTensorView& d_output) {
  const AttentionShape& s = plan.shape;
  const Shape outputs{sizes.batch, s.num_query_heads, sizes.query_len, s.value_dim};
  const auto check = [&](const char* argument, const ConstTensorView& view, DType dtype, const Shape& shape) {
    const bool fits =
        view.dtype() == dtype && view.shape() == shape && (view.empty() ? shape.count() == 0 : true);
    if (!fits || (view.rank() > 0 && view.size(-1) > 1 && view.stride(-1) != 1)) {
      throw InvalidArgument(
          function, argument,
          std::string(to_string(dtype)) + " " + to_string(shape) + ", innermost axis contiguous",
          std::string(to_string(view.dtype())) + " " + to_string(view.shape()));
    }
  };
  check("output", output, plan.dtype, outputs);
  check("d_output", d_output, plan.dtype, outputs);
  check("log_sum_exp", log_sum_exp, plan.compute_dtype(), {sizes.batch, s.num_query_heads, sizes.query_len});
  if (!log_sum_exp.contiguous())
    throw InvalidArgument(function, "log_sum_exp", "a contiguous tensor", "a strided one");
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

}  // namespace

std::size_t backward_workspace_bytes(const AttentionPlan& plan, int threads) {
  const AttentionPlan::Impl& impl = plan.impl();
  const CallSizes sizes{impl.shape.batch, impl.shape.query_len, impl.shape.key_len};
  return impl.compute_dtype() == DType::f64 ? backward_bytes<double>(impl, sizes, threads)
                                            : backward_bytes<float>(impl, sizes, threads);
}

void attend_backward(const AttentionPlan& plan, const AttentionInputs& inputs, ConstTensorView output,
                     ConstTensorView log_sum_exp, ConstTensorView d_output,
                     const AttentionGradients& gradients, const CallResources& resources) {
  const AttentionPlan::Impl& impl = plan.impl();
  const CallSizes sizes = check_inputs(function, impl, inputs);
  check_mods(function, impl, sizes, inputs.mod_arguments, gradients.mod_arguments);
  check_saved(impl, sizes, output, log_sum_exp, d_output);
  check_gradients(impl, inputs, gradients);
  check_apart(inputs, gradients, output, log_sum_exp, d_output);
  if (sizes.batch == 0 || sizes.query_len == 0 || sizes.key_len == 0) {
    for (const TensorView* view : {&gradients.query, &gradients.key, &gradients.value, &gradients.W,
                                   &gradients.U, &gradients.v, &gradients.b, &gradients.sink}) {
      zero(*view);
    }
    for (const TensorView& view : gradients.mod_arguments) zero(view);
    return;
  }
  Executor& executor = resources.executor ? *resources.executor : default_executor();
  const int threads = executor.thread_count();
  const bool wide = impl.compute_dtype() == DType::f64;
  const std::size_t bytes =
      wide ? backward_bytes<double>(impl, sizes, threads) : backward_bytes<float>(impl, sizes, threads);
  const std::span<std::byte> memory = workspace_of(function, resources, bytes);
  wide ? run<double>(impl, inputs, output, log_sum_exp, d_output, gradients, sizes, executor, memory)
       : run<float>(impl, inputs, output, log_sum_exp, d_output, gradients, sizes, executor, memory);
}

}  // namespace fovea

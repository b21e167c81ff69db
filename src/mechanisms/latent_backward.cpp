// Latent attention, backward: passes the gradients of the inner call of attend back through both matrices.
#include "mechanisms/gradient_checks.h"
#include "mechanisms/latent_parts.h"
#include "plan/small_calls.h"

namespace fovea {
namespace latent {
namespace {

// One call, and the gradients of the inner operands; an empty tensor is not wanted.
struct Backward {
  const LatentPlan& plan;
  const LatentInputs& inputs;
  const Sizes& sizes;
  const LatentState& state;
  const LatentGradients& wanted;
  const Operands& operands;
  Executor& executor;
  Tensor d_query, d_key, d_value;
};

// dW_h = Σ y xᵀ for W [heads, out, in]. Rows of x that have no influence are 0, but y may hold anything
// there. So the sum runs over the elements of x that are not 0.
template <class T>
void weight_gradient_of_seen_rows(const RowSizes& rows, std::int64_t out, std::int64_t in,
                                  const kernels::Operand<const T*>& y, const kernels::Operand<const T*>& x,
                                  const TensorView& gradient, Executor& executor) {
  const Tensor transposed(dtype_of<T>, {rows.heads, in, out});
  const T* from = transposed.data<T>();
  T* to = gradient.data<T>();
  weight_gradient<T>(rows, {nullptr, in, out, 0, 0, nullptr, true}, x, y, transposed.data<T>(), executor);
  executor.parallel_for(rows.heads * out, [&](std::int64_t unit, int) {
    const std::int64_t h = unit / out, o = unit % out;
    for (std::int64_t i = 0; i < in; ++i) to[unit * in + i] = from[(h * in + i) * out + o];
  });
}

template <class T>
kernels::Operand<const T*> columns(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  return operand_of<T>(ConstTensorView(tensor).slice(3, begin, count));
}

// Runs the inner backward call. The rotary part of the query's gradient and the gradients of the arguments
// need no matrix and are complete after it.
template <class T>
void run_inside(Backward& c, const ConstTensorView& d_output, const CallResources& resources) {
  const LatentGradients& g = c.wanted;
  const bool absorbed = c.plan.execution == LatentExecution::absorbed;
  if (g.query_content || g.query_rotary || (absorbed && g.W_UK))
    c.d_query = Tensor(dtype_of<T>, c.operands.query.shape());
  if (g.cache || (!absorbed && g.W_UK)) c.d_key = Tensor(dtype_of<T>, c.operands.key.shape());
  if (g.cache || (!absorbed && g.W_UV)) c.d_value = Tensor(dtype_of<T>, c.operands.value.shape());
  AttentionGradients inside;
  if (c.d_query) inside.query = c.d_query;
  if (c.d_key) inside.key = c.d_key;
  if (c.d_value) inside.value = c.d_value;
  inside.arguments = g.arguments;
  attend_backward(c.plan.attention, c.operands.inputs(c.inputs), c.state.output, c.state.log_sum_exp,
                  d_output, inside, resources);
  if (g.query_rotary && c.sizes.rotary > 0) {
    const std::int64_t before = c.operands.query.size(3) - c.sizes.rotary;
    copy_rows(ConstTensorView(c.d_query).slice(3, before, c.sizes.rotary), g.query_rotary, c.executor);
  }
}

template <class T>
void absorbed_backward(Backward& c, const ConstTensorView& d_output, const CallResources& resources) {
  const Sizes& s = c.sizes;
  const LatentGradients& g = c.wanted;
  const auto by_output = operand_of<T>(d_output);
  const Tensor d_latents(dtype_of<T>, c.state.output.shape());
  project_back(s.query_rows(), projection_of<T>(c.inputs.W_UV), by_output, operand_of<T>(d_latents.view()),
               c.executor);
  run_inside<T>(c, d_latents, resources);
  if (g.W_UV)
    weight_gradient_of_seen_rows<T>(s.query_rows(), s.value, s.latent, by_output,
                                    columns<T>(c.state.output, 0, s.latent), g.W_UV, c.executor);
  if (g.W_UK)
    weight_gradient_of_seen_rows<T>(s.query_rows(), s.content, s.latent, operand_of<T>(c.operands.content),
                                    columns<T>(c.d_query, 0, s.latent), g.W_UK, c.executor);
  if (g.query_content) {
    const Tensor d_content(dtype_of<T>, g.query_content.shape());
    project(s.query_rows(), projection_of<T>(c.inputs.W_UK), columns<T>(c.d_query, 0, s.latent),
            operand_of<T>(d_content.view()), c.executor);
    copy_rows(d_content, g.query_content, c.executor);
  }
  if (!g.cache) return;
  add_rows(c.d_value, c.d_key.view().slice(3, 0, s.latent), c.executor);
  copy_rows(c.d_key, shared_by_heads(g.cache, 1), c.executor);
}

// dc = Σ_h (W_UKᵀ dk + W_UVᵀ dv) and dk_r = Σ_h dk_r, summed in the order of the heads.
template <class T>
void cache_gradient(const Backward& c) {
  const Sizes& s = c.sizes;
  const Tensor sum = Tensor::zeros(dtype_of<T>, {s.batch, 1, s.keys, s.latent + s.rotary}),
               share(dtype_of<T>, {s.batch, 1, s.keys, s.latent});
  const TensorView latents = sum.view().slice(3, 0, s.latent);
  const auto add_share = [&](const ConstTensorView& W, const Tensor& from, std::int64_t dim, std::int64_t h) {
    project_back({s.batch, 1, s.keys}, projection_of<T>(W.slice(0, h, 1)),
                 operand_of<T>(ConstTensorView(from).slice(1, h, 1).slice(3, 0, dim)),
                 operand_of<T>(share.view()), c.executor);
    add_rows(share, latents, c.executor);
  };
  for (std::int64_t h = 0; h < s.heads; ++h) {
    add_share(c.inputs.W_UK, c.d_key, s.content, h);
    add_share(c.inputs.W_UV, c.d_value, s.value, h);
    if (s.rotary > 0)
      add_rows(ConstTensorView(c.d_key).slice(1, h, 1).slice(3, s.content, s.rotary),
               sum.view().slice(3, s.latent, s.rotary), c.executor);
  }
  copy_rows(sum, shared_by_heads(c.wanted.cache, 1), c.executor);
}

template <class T>
void naive_backward(Backward& c, const ConstTensorView& d_output, const CallResources& resources) {
  const Sizes& s = c.sizes;
  const LatentGradients& g = c.wanted;
  run_inside<T>(c, d_output, resources);
  const ConstTensorView cache = shared_by_heads(c.operands.cache, s.heads);
  const auto latents = operand_of<T>(cache.slice(3, 0, s.latent));
  if (g.W_UK)
    weight_gradient(s.key_rows(), projection_of<T>(c.inputs.W_UK), columns<T>(c.d_key, 0, s.content), latents,
                    g.W_UK.data<T>(), c.executor);
  if (g.W_UV)
    weight_gradient(s.key_rows(), projection_of<T>(c.inputs.W_UV), columns<T>(c.d_value, 0, s.value), latents,
                    g.W_UV.data<T>(), c.executor);
  if (g.query_content)
    copy_rows(ConstTensorView(c.d_query).slice(3, 0, s.content), g.query_content, c.executor);
  if (g.cache) cache_gradient<T>(c);
}

void check_backward(const char* function, const LatentPlan& plan, const LatentInputs& in, const Sizes& s,
                    const LatentState& state, const ConstTensorView& d_output, const LatentGradients& g) {
  const DType wide = wide_dtype(plan.dtype);
  check_contiguous(function, "state.output", state.output, wide,
                   {s.batch, s.heads, s.queries, s.inner_value(plan.execution)});
  check_contiguous(function, "state.log_sum_exp", state.log_sum_exp, wide, {s.batch, s.heads, s.queries});
  check_view(function, "d_output", d_output, plan.dtype, {s.batch, s.heads, s.queries, s.value});
  GradientChecks checks(function, {.query = in.query_content, .key = in.query_rotary, .value = in.cache});
  checks.gradient("gradients.query_content", g.query_content, in.query_content);
  checks.gradient("gradients.query_rotary", g.query_rotary, in.query_rotary);
  checks.gradient("gradients.cache", g.cache, in.cache);
  checks.contiguous_gradient("gradients.W_UK", g.W_UK, in.W_UK);
  checks.contiguous_gradient("gradients.W_UV", g.W_UV, in.W_UV);
  OverlapCheck& memory = checks.memory;
  memory.writes(g.arguments);
  memory.reads("W_UK", in.W_UK);
  memory.reads("W_UV", in.W_UV);
  memory.reads("state.output", state.output);
  memory.reads("state.log_sum_exp", state.log_sum_exp);
  memory.reads("d_output", d_output);
  memory.reads(in.attention.arguments);
  memory.check();
}

template <class T>
void backward(const LatentPlan& plan, const LatentInputs& in, const Sizes& s, const LatentState& state,
              const ConstTensorView& d_output, const LatentGradients& g, const CallResources& resources) {
  Executor& executor = executor_of(resources);
  const Operands operands = operands_of<T>(plan, in, s, executor);
  Tensor memory;
  const ConstTensorView by_output = widened(d_output, memory, executor);
  Backward call{plan, in, s, state, g, operands, executor, {}, {}, {}};
  if (plan.execution == LatentExecution::absorbed)
    absorbed_backward<T>(call, by_output, resources);
  else
    naive_backward<T>(call, by_output, resources);
}

}  // namespace
}  // namespace latent

void attend_latent_backward(const LatentPlan& plan, const LatentInputs& inputs, const LatentState& state,
                            ConstTensorView d_output, const LatentGradients& gradients,
                            const CallResources& resources) {
  const char* function = "attend_latent_backward";
  AttentionGradients inside;
  inside.arguments = gradients.arguments;
  const latent::Sizes s = latent::check_inputs(function, plan, inputs, &inside);
  latent::check_backward(function, plan, inputs, s, state, d_output, gradients);
  with_wide_type(plan.dtype, [&](auto zero) {
    latent::backward<decltype(zero)>(plan, inputs, s, state, d_output, gradients, resources);
  });
}

}  // namespace fovea

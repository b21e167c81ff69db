// Latent attention, forward: makes the operands of one inner call of attend, and projects its output.
#include "fovea/mechanisms/latent.h"

#include <cmath>

#include "mechanisms/latent_parts.h"
#include "plan/small_calls.h"

namespace fovea {
namespace latent {
namespace {

void check_unused(const char* function, const char* argument, const ConstTensorView& view) {
  if (view)
    throw InvalidArgument(function, argument, "nothing: it follows from the latents", described(view));
}

void check_capacity(const char* function, const char* argument, std::int64_t size, std::int64_t capacity) {
  if (size > capacity)
    throw InvalidArgument(function, argument, "at most the plan's " + std::to_string(capacity),
                          std::to_string(size));
}

template <class T>
void absorb(const LatentInputs& in, const Sizes& s, Operands& o, Executor& executor) {
  o.query_memory = Tensor(dtype_of<T>, {s.batch, s.heads, s.queries, s.latent + s.rotary});
  const TensorView query = o.query_memory;
  project_back(s.query_rows(), projection_of<T>(in.W_UK), operand_of<T>(o.content),
               operand_of<T>(query.slice(3, 0, s.latent)), executor);
  if (s.rotary > 0) copy_rows(in.query_rotary, query.slice(3, s.latent, s.rotary), executor);
  o.query = query;
  o.key = shared_by_heads(o.cache, 1);
  o.value = o.key.slice(3, 0, s.latent);
}

template <class T>
void decompress(const LatentInputs& in, const Sizes& s, Operands& o, Executor& executor) {
  o.query_memory = Tensor(dtype_of<T>, {s.batch, s.heads, s.queries, s.content + s.rotary});
  o.key_memory = Tensor(dtype_of<T>, {s.batch, s.heads, s.keys, s.content + s.rotary});
  o.value_memory = Tensor(dtype_of<T>, {s.batch, s.heads, s.keys, s.value});
  const TensorView query = o.query_memory, key = o.key_memory, value = o.value_memory;
  const ConstTensorView cache = shared_by_heads(o.cache, s.heads);
  const auto latents = operand_of<T>(cache.slice(3, 0, s.latent));
  copy_rows(o.content, query.slice(3, 0, s.content), executor);
  project(s.key_rows(), projection_of<T>(in.W_UK), latents, operand_of<T>(key.slice(3, 0, s.content)),
          executor);
  project(s.key_rows(), projection_of<T>(in.W_UV), latents, operand_of<T>(value), executor);
  if (s.rotary > 0) {
    copy_rows(in.query_rotary, query.slice(3, s.content, s.rotary), executor);
    copy_rows(cache.slice(3, s.latent, s.rotary), key.slice(3, s.content, s.rotary), executor);
  }
  o.query = query;
  o.key = key;
  o.value = value;
}

}  // namespace

Sizes check_inputs(const char* function, const LatentPlan& plan, const LatentInputs& in,
                   const AttentionGradients* gradients) {
  const LatentShape& p = plan.shape;
  check_four_axes(function, "query_content", in.query_content,
                  "[batch, num_query_heads, query_len, content_dim]");
  if (in.cache.rank() != 3)
    throw InvalidArgument(function, "cache", "[batch, key_len, latent_dim + rotary_dim]",
                          described(in.cache));
  const Sizes s{in.query_content.size(0),
                p.num_query_heads,
                in.query_content.size(2),
                in.cache.size(1),
                p.content_dim,
                p.rotary_dim,
                p.latent_dim,
                p.value_dim};
  check_capacity(function, "query_content", s.batch, p.batch);
  check_capacity(function, "query_content", s.queries, p.query_len);
  check_capacity(function, "cache", s.keys, p.key_len);
  const DType wide = wide_dtype(plan.dtype);
  check_view(function, "query_content", in.query_content, plan.dtype,
             {s.batch, s.heads, s.queries, s.content});
  if (s.rotary > 0 || in.query_rotary)
    check_view(function, "query_rotary", in.query_rotary, plan.dtype,
               {s.batch, s.heads, s.queries, s.rotary});
  check_view(function, "cache", in.cache, plan.dtype, {s.batch, s.keys, s.latent + s.rotary});
  check_view(function, "W_UK", in.W_UK, wide, {s.heads, s.content, s.latent});
  check_view(function, "W_UV", in.W_UV, wide, {s.heads, s.value, s.latent});
  check_unused(function, "attention.query", in.attention.query);
  check_unused(function, "attention.key", in.attention.key);
  check_unused(function, "attention.value", in.attention.value);
  if (!in.attention.query_starts.empty() || !in.attention.key_starts.empty())
    throw InvalidArgument(function, "attention.query_starts", "none: latent attention takes padded batches",
                          "those of a packed batch");
  const AttentionPlan::Impl& inner = plan.attention.impl();
  const Call call = call_of(function, inner, in.attention, gradients);
  check_arguments(function, inner, {s.batch, s.queries, s.keys}, call);
  if (gradients) check_argument_gradients(function, inner, call);
  return s;
}

AttentionInputs Operands::inputs(const LatentInputs& from) const {
  AttentionInputs result = from.attention;
  result.query = query;
  result.key = key;
  result.value = value;
  return result;
}

template <class T>
Operands operands_of(const LatentPlan& plan, const LatentInputs& in, const Sizes& s, Executor& executor) {
  Operands o;
  o.content = widened(in.query_content, o.content_memory, executor);
  // Widens a 16-bit cache, as attend would.
  if (in.cache.dtype() == dtype_of<T>) {
    o.cache = in.cache;
  } else {
    o.cache_memory = Tensor(dtype_of<T>, in.cache.shape());
    copy_rows(shared_by_heads(in.cache, 1), shared_by_heads(o.cache_memory.view(), 1), executor);
    o.cache = o.cache_memory;
  }
  if (plan.execution == LatentExecution::absorbed)
    absorb<T>(in, s, o, executor);
  else
    decompress<T>(in, s, o, executor);
  return o;
}

template Operands operands_of<float>(const LatentPlan&, const LatentInputs&, const Sizes&, Executor&);
template Operands operands_of<double>(const LatentPlan&, const LatentInputs&, const Sizes&, Executor&);

namespace {

template <class T>
LatentState forward(const LatentPlan& plan, const LatentInputs& in, const Sizes& s, const TensorView& output,
                    const CallResources& resources) {
  Executor& executor = executor_of(resources);
  const Operands operands = operands_of<T>(plan, in, s, executor);
  LatentState state{Tensor(dtype_of<T>, {s.batch, s.heads, s.queries, s.inner_value(plan.execution)}),
                    Tensor(dtype_of<T>, {s.batch, s.heads, s.queries})};
  attend(plan.attention, operands.inputs(in), {.output = state.output, .log_sum_exp = state.log_sum_exp},
         resources);
  if (plan.execution == LatentExecution::naive) {
    copy_rows(state.output, output, executor);
    return state;
  }
  const bool narrow = output.dtype() != dtype_of<T>;
  const Tensor wide = narrow ? Tensor(dtype_of<T>, output.shape()) : Tensor();
  const TensorView to = narrow ? wide.view() : output;
  project(s.query_rows(), projection_of<T>(in.W_UV), operand_of<T>(ConstTensorView(state.output)),
          operand_of<T>(to), executor);
  if (narrow) copy_rows(to, output, executor);
  return state;
}

}  // namespace
}  // namespace latent

LatentPlan make_latent_plan(const AttentionSpec& spec, const LatentShape& shape, LatentExecution execution,
                            const PlanOptions& options) {
  const char* function = "make_latent_plan";
  if (!std::holds_alternative<ScaledDot>(spec.score))
    throw InvalidArgument(function, "spec.score", "the default: the mechanism sets it", "another score");
  if (spec.scale)
    throw InvalidArgument(function, "spec.scale", "none: the mechanism sets it", std::to_string(*spec.scale));
  constexpr std::int64_t widest = std::int64_t{1} << 32;  // so that sums of two do not overflow
  const std::pair<const char*, std::pair<std::int64_t, std::int64_t>> sizes[] = {
      {"shape.content_dim", {shape.content_dim, 1}},
      {"shape.rotary_dim", {shape.rotary_dim, 0}},
      {"shape.latent_dim", {shape.latent_dim, 1}},
      {"shape.value_dim", {shape.value_dim, 1}}};
  for (const auto& [argument, size] : sizes) {
    if (size.first < size.second || size.first > widest)
      throw InvalidArgument(function, argument,
                            "at least " + std::to_string(size.second) + " and at most 2^32",
                            std::to_string(size.first));
  }
  const bool absorbed = execution == LatentExecution::absorbed;
  AttentionSpec inside = spec;
  inside.scale = 1.0 / std::sqrt(static_cast<double>(shape.content_dim + shape.rotary_dim));
  PlanOptions wide = options;
  wide.dtype = wide_dtype(options.dtype);
  const AttentionShape inner{.batch = shape.batch,
                             .num_query_heads = shape.num_query_heads,
                             .num_kv_heads = absorbed ? 1 : shape.num_query_heads,
                             .query_len = shape.query_len,
                             .key_len = shape.key_len,
                             .head_dim = (absorbed ? shape.latent_dim : shape.content_dim) + shape.rotary_dim,
                             .value_dim = absorbed ? shape.latent_dim : shape.value_dim};
  return {shape, execution, options.dtype, make_plan(inside, inner, wide)};
}

LatentState attend_latent(const LatentPlan& plan, const LatentInputs& inputs, TensorView output,
                          const CallResources& resources) {
  const char* function = "attend_latent";
  const latent::Sizes s = latent::check_inputs(function, plan, inputs);
  check_output(function, "output", output, plan.dtype, {s.batch, s.heads, s.queries, s.value},
               {.query = inputs.query_content, .key = inputs.query_rotary, .value = inputs.cache});
  OverlapCheck memory(function);
  memory.writes("output", output);
  memory.reads("W_UK", inputs.W_UK);
  memory.reads("W_UV", inputs.W_UV);
  memory.reads(inputs.attention.arguments);
  memory.check();
  return with_wide_type(plan.dtype, [&](auto zero) {
    return latent::forward<decltype(zero)>(plan, inputs, s, output, resources);
  });
}

}  // namespace fovea

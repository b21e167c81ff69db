// Attention as an op: the engine's forward and backward on strided views of [B, L, heads * dim].
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>

#include "autograd/bf16_plan.h"
#include "autograd/heads.h"
#include "autograd/record.h"
#include "fovea/autograd/ops.h"
#include "fovea/autograd/plan_cache.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"
#include "fovea/plan/call_shape.h"
#include "fovea/plan/plan.h"
#include "kernels/simd/convert.h"

namespace fovea::autograd {
namespace {

void check(const char* argument, const Var& x, std::int64_t heads, std::int64_t batch) {
  if (x.shape().rank() != 3 || heads < 1 || x.size(2) % heads != 0 || x.size(0) != batch) {
    throw InvalidArgument(
        "attention", argument,
        "[" + std::to_string(batch) + ", length, a multiple of " + std::to_string(heads) + " heads]",
        to_string(x.shape()));
  }
}

// Copies of the lists of a call, which belong to the caller.
struct Lists {
  KeptVector<std::int64_t> key_lengths, query_offsets, query_starts, key_starts;
  explicit Lists(const AttentionCall& call)
      : key_lengths(call.key_lengths.begin(), call.key_lengths.end()),
        query_offsets(call.query_offsets.begin(), call.query_offsets.end()),
        query_starts(call.query_starts.begin(), call.query_starts.end()),
        key_starts(call.key_starts.begin(), call.key_starts.end()) {}
};

struct Saved {
  AttentionPlan plan;
  Lists lists;
  Tensor output, log_sum_exp;     // the output in the plan's dtype
  Tensor query, key, value = {};  // rounded to bf16, if that is the plan's dtype
};

Tensor rounded(const Tensor& x) {
  if (!x || x.dtype() == DType::bf16) return x;
  Tensor y(DType::bf16, x.shape());
  for_pieces(x.count(), [&](std::int64_t begin, std::int64_t end) {
    kernels::narrow(x.data<float>() + begin, end - begin, y.data<bfloat16>() + begin);
  });
  return y;
}

// The same numbers in f32; without a copy if they are f32.
Tensor widened(const Tensor& x) {
  if (!x || x.dtype() == DType::f32) return x;
  Tensor y(DType::f32, x.shape());
  for_pieces(x.count(), [&](std::int64_t begin, std::int64_t end) {
    kernels::widen(x.data<bfloat16>() + begin, end - begin, y.data<float>() + begin);
  });
  return y;
}

Arguments given(const AttentionCall& call) {
  Arguments arguments;
  for (const AttentionArgument& argument : call.arguments) {
    if (argument.value.empty()) continue;
    // `set` would replace the first one, whose gradient nobody would then write.
    if (!arguments[argument.name].empty())
      throw InvalidArgument("attention", "call.arguments", "each argument once",
                            "'" + argument.name + "' twice");
    arguments.set(argument.name, argument.value.value());
  }
  return arguments;
}

// `key` is empty where the score reads no keys, `value` where the weights are the result.
AttentionInputs inputs_of(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  const auto kv_heads = [&call](const Var& x) {
    return x.empty() ? ConstTensorView() : ConstTensorView(heads_of(x.value(), call.num_kv_heads));
  };
  return {.query = heads_of(query.value(), call.num_query_heads),
          .key = kv_heads(key),
          .value = kv_heads(value),
          .arguments = given(call),
          .key_lengths = call.key_lengths,
          .query_offset = call.query_offset,
          .query_offsets = call.query_offsets,
          .query_starts = call.query_starts,
          .key_starts = call.key_starts,
          .cache = call.cache,
          .dropout_seed = call.dropout_seed,
          .sample_seed = call.sample_seed};
}

// A gradient tensor in the shape of `x`, if x is recorded.
Tensor like(const Var& x, DType dtype = DType::f32) {
  return x.recorded() ? Tensor(dtype, x.shape()) : Tensor();
}

// Of the engine's work in the op, whose multiply-adds have the rate of the plan's operands.
const ProfileLabel& engine_label(const AttentionPlan& plan) {
  static constexpr ProfileLabel of_f32{"attention kernels", ProfilePart::attention},
      of_bf16{"attention kernels of bf16", ProfilePart::attention, ProfileOperands::bf16};
  return plan.multiplies_16_bits() ? of_bf16 : of_f32;
}

// `gradient`: of the output, or of the weights where there is no value.
void backward(const AttentionCall& call, const Saved& saved, const Var& query, const Var& key,
              const Var& value, const Tensor& gradient) {
  const DType dtype = saved.plan.dtype();
  const bool is_rounded = dtype == DType::bf16;
  const Tensor dq = like(query, dtype), dk = like(key, dtype), dv = like(value, dtype);
  KeptVector<Tensor> d_arguments;
  AttentionGradients gradients;
  if (dq) gradients.query = heads_of(dq, call.num_query_heads);
  if (dk) gradients.key = heads_of(dk, call.num_kv_heads);
  if (dv) gradients.value = heads_of(dv, call.num_kv_heads);
  for (const AttentionArgument& argument : call.arguments) {
    d_arguments.push_back(like(argument.value));
    if (d_arguments.back()) gradients.arguments.set(argument.name, d_arguments.back());
  }
  const AttentionInputs inputs =
      is_rounded ? inputs_of(call, saved.query, saved.key, saved.value) : inputs_of(call, query, key, value);
  const Tensor given = is_rounded ? rounded(gradient) : gradient;
  AttentionLoss loss{};
  if (value.empty()) {
    loss.d_weights = gradient;
  } else {
    loss.output = heads_of(saved.output, call.num_query_heads);
    loss.log_sum_exp = saved.log_sum_exp;
    loss.d_output = heads_of(given, call.num_query_heads);
  }
  if (call.advantage) loss.advantage = call.advantage;
  {
    const ProfileSpan span(engine_label(saved.plan), {}, true);
    attend_backward(saved.plan, inputs, loss, gradients);
  }
  accumulate(query, widened(dq));
  accumulate(key, widened(dk));
  accumulate(value, widened(dv));
  for (std::size_t n = 0; n < d_arguments.size(); ++n) accumulate(call.arguments[n].value, d_arguments[n]);
}

const AttentionSpec& spec_of(const AttentionCall& call) {
  return call.plan ? call.plan->spec() : call.spec;
}

void check(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  const std::int64_t batch = query.shape().rank() == 3 ? query.size(0) : 0;
  check("query", query, call.num_query_heads, batch);
  if (!key.empty()) check("key", key, call.num_kv_heads, batch);
  if (!value.empty()) check("value", value, call.num_kv_heads, batch);
}

// Whether the operands are bf16, all of them.
bool check_operands(const AttentionCall& call, std::initializer_list<const Var*> operands) {
  const auto is_bf16 = [](const Var* x) { return !x->empty() && x->value().dtype() == DType::bf16; };
  if (std::none_of(operands.begin(), operands.end(), is_bf16)) return false;
  for (const Var* x : operands) {
    if (x->recorded() || (!x->empty() && !is_bf16(x)) || !call.plan || call.plan->dtype() != DType::bf16)
      throw InvalidArgument("attention", "query, key, value",
                            "all in bf16, beside a call.plan of bf16, and none recorded, or all in f32",
                            x->recorded() ? "a recorded one" : "others beside one of bf16");
  }
  return true;
}

Tape* tape_of(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  Tape* tape = autograd::tape_of({&query, &key, &value});
  for (const AttentionArgument& argument : call.arguments) {
    if (!tape) tape = autograd::tape_of({&argument.value});
  }
  return tape;
}

AttentionPlan plan_of(const AttentionCall& call, const AttentionShape& shape) {
  if (call.plan) return *call.plan;
  return call.plans ? call.plans->of(call.spec, shape) : make_plan(call.spec, shape);
}

// The call as backward needs it. The caller's memory may be gone by then, so the lists are those in `saved`.
AttentionCall kept(AttentionCall call, const Saved& saved) {
  call.weights = nullptr;
  call.plans = nullptr;
  call.key_lengths = saved.lists.key_lengths;
  call.query_offsets = saved.lists.query_offsets;
  call.query_starts = saved.lists.query_starts;
  call.key_starts = saved.lists.key_starts;
  return call;
}

}  // namespace

// With 256 keys a call with its gradients takes 0.77 to 0.92 of the time in f32, with 20 of them 1.3 to 1.8
// times as long, the rounding included. Kernels that would widen the operands gain nothing.
Operands attention_operands(Operands products, const AttentionShape& shape) {
  constexpr std::int64_t enough_keys = 128;
  return shape.key_len < enough_keys ? Operands::f32 : products;
}

std::optional<AttentionPlan> bf16_plan(Operands operands, const AttentionSpec& spec,
                                       const AttentionShape& shape, PlanCache* plans) {
  if (operands != Operands::bf16 || shape.value_dim == AttentionShape::no_values) return std::nullopt;
  const PlanOptions options{.dtype = DType::bf16};
  AttentionPlan plan = plans ? plans->of(spec, shape, options) : make_plan(spec, shape, options);
  if (!plan.multiplies_16_bits()) return std::nullopt;
  return plan;
}

Var rounded(const Var& x) {
  static constexpr ProfileLabel label{"rounded", ProfilePart::elementwise};
  const ProfileSpan span(label);
  if (x.recorded()) throw InvalidArgument("rounded", "x", "one that is not recorded", "a recorded one");
  return rounded(x.value());
}

Var attention(const AttentionCall& call, const Var& query, const Var& key, const Var& value) {
  static constexpr ProfileLabel label{"attention", ProfilePart::attention};
  const ProfileSpan span(label);
  check(call, query, key, value);
  const bool is_bf16 = check_operands(call, {&query, &key, &value});
  AttentionInputs inputs = inputs_of(call, query, key, value);
  const AttentionShape shape = shape_of(spec_of(call), inputs);
  const std::int64_t batch = query.size(0), rows = query.size(1);
  Tape* tape = tape_of(call, query, key, value);
  if (tape && !call.cache.empty())
    throw InvalidArgument("attention", "call.cache",
                          "operands that are not recorded: a cache has no gradients", "a recorded one");
  if (call.plan && call.plan->dtype() != DType::f32 &&
      (call.plan->dtype() != DType::bf16 || !call.cache.empty() || key.value().empty() ||
       value.value().empty()))
    throw InvalidArgument("attention", "call.plan",
                          "an f32 plan, or one of bf16 where queries, keys and values are given",
                          "one of " + std::string(to_string(call.plan->dtype())));
  std::optional<AttentionPlan> in_bf16;
  if (!call.plan)
    in_bf16 = bf16_plan(attention_operands(operands_of(tape), shape), call.spec, shape, call.plans);
  AttentionPlan plan = in_bf16 ? *in_bf16 : plan_of(call, shape);
  Tensor rounded_query, rounded_key, rounded_value;
  if (plan.dtype() == DType::bf16) {
    rounded_query = rounded(query.value());
    rounded_key = rounded(key.value());
    rounded_value = rounded(value.value());
    inputs = inputs_of(call, rounded_query, rounded_key, rounded_value);
  }
  const Tensor output(plan.dtype(), {batch, rows, call.num_query_heads * shape.value_dim});
  AttentionOutputs outputs{.output = heads_of(output, call.num_query_heads)};
  Tensor log_sum_exp;
  if (tape) {
    log_sum_exp = Tensor(DType::f32, {batch, call.num_query_heads, rows});
    outputs.log_sum_exp = log_sum_exp;
  }
  if (call.weights) {
    *call.weights = Tensor(DType::f32, {batch, call.num_query_heads, rows, shape.key_len});
    outputs.weights = *call.weights;
  }
  {
    const ProfileSpan span_of_engine(engine_label(plan));
    attend(plan, inputs, outputs);
  }
  if (!tape) return is_bf16 ? output : widened(output);
  const auto saved = make_kept<Saved>(
      Saved{std::move(plan), Lists(call), output, log_sum_exp, rounded_query, rounded_key, rounded_value});
  return {widened(output), tape->record([=, call = kept(call, *saved)](const Tensor& d_output) {
            backward(call, *saved, query, key, value, d_output);
          })};
}

Var attention_weights(const AttentionCall& call, const Var& query, const Var& key) {
  static constexpr ProfileLabel label{"attention weights", ProfilePart::attention};
  const ProfileSpan span(label);
  const AttentionSpec& spec = spec_of(call);
  if (spec.dropout.rate > 0.0) {
    throw InvalidArgument("attention_weights", "call.spec.dropout", "none: weights are taken before dropout",
                          std::to_string(spec.dropout.rate));
  }
  check(call, query, key, {});
  const AttentionInputs inputs = inputs_of(call, query, key, {});
  const AttentionShape shape = shape_of(spec, inputs);
  Tape* tape = tape_of(call, query, key, {});
  AttentionPlan plan = plan_of(call, shape);
  const Tensor weights(DType::f32, {query.size(0), shape.num_query_heads, query.size(1), shape.key_len});
  AttentionOutputs outputs{};
  outputs.weights = weights;
  {
    const ProfileSpan span_of_engine(engine_label(plan));
    attend(plan, inputs, outputs);
  }
  if (call.weights) *call.weights = weights;
  if (!tape) return weights;
  const auto saved =
      make_kept<Saved>(Saved{std::move(plan), Lists(call), Tensor(), Tensor(), Tensor(), Tensor()});
  return {weights, tape->record([=, call = kept(call, *saved)](const Tensor& d_weights) {
            backward(call, *saved, query, key, {}, d_weights);
          })};
}

}  // namespace fovea::autograd

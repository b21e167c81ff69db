// Recurrences as an op: the engine's forward and backward on strided views of [B, L, heads * dim].
#include "fovea/autograd/recurrence.h"

#include <array>
#include <string>

#include "autograd/token_lists.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

// How an operand lies in memory.
enum class Layout : std::uint8_t {
  query_rows,  // [B, L, num_query_heads * dim]
  key_rows,    // [B, L, num_key_heads * dim]
  head_rows,   // [B, L, num_heads * dim]
  weights,     // [B, L, num_heads]
  gates,       // weights, head_rows or as it is, by the decay
  as_it_is
};

struct Field {
  const char* name;
  Var RecurrenceOperands::*operand;
  ConstTensorView RecurrenceInputs::*input;
  TensorView RecurrenceGradients::*gradient;
  Layout layout;
};

constexpr std::array<Field, 11> fields{{
    {"query", &RecurrenceOperands::query, &RecurrenceInputs::query, &RecurrenceGradients::query,
     Layout::query_rows},
    {"key", &RecurrenceOperands::key, &RecurrenceInputs::key, &RecurrenceGradients::key, Layout::key_rows},
    {"value", &RecurrenceOperands::value, &RecurrenceInputs::value, &RecurrenceGradients::value,
     Layout::head_rows},
    {"log_decay", &RecurrenceOperands::log_decay, &RecurrenceInputs::log_decay,
     &RecurrenceGradients::log_decay, Layout::gates},
    {"beta", &RecurrenceOperands::beta, &RecurrenceInputs::beta, &RecurrenceGradients::beta, Layout::weights},
    {"erase", &RecurrenceOperands::erase, &RecurrenceInputs::erase, &RecurrenceGradients::erase,
     Layout::head_rows},
    {"a", &RecurrenceOperands::a, &RecurrenceInputs::a, &RecurrenceGradients::a, Layout::head_rows},
    {"b", &RecurrenceOperands::b, &RecurrenceInputs::b, &RecurrenceGradients::b, Layout::head_rows},
    {"bonus", &RecurrenceOperands::bonus, &RecurrenceInputs::bonus, &RecurrenceGradients::bonus,
     Layout::as_it_is},
    {"self_weight", &RecurrenceOperands::self_weight, &RecurrenceInputs::self_weight,
     &RecurrenceGradients::self_weight, Layout::weights},
    {"initial_state", &RecurrenceOperands::initial_state, &RecurrenceInputs::initial_state,
     &RecurrenceGradients::initial_state, Layout::as_it_is},
}};

// What a call needs besides its operands, also in backward.
struct Saved {
  RecurrencePlan plan;
  KeptLists lists;
  Tensor output, denominator;  // of KeySum
  Tensor states;               // what backward would compute again; empty: it does
};

// Saved states take up to this many times the bytes of queries, keys, values and outputs: 1 at 64 channels
// and 2 at 128 for an additive write, a quarter or an eighth more for others.
constexpr std::int64_t most_saved = 3;

std::int64_t layout_heads(const RecurrenceShape& shape, const RecurrenceSpec& spec, Layout layout) {
  if (layout == Layout::query_rows) return shape.num_query_heads;
  if (layout == Layout::key_rows) return shape.num_key_heads;
  if (layout == Layout::gates && std::holds_alternative<ConstantDecay>(spec.decay)) return 0;
  return layout == Layout::as_it_is ? 0 : shape.num_heads;
}

// [B, L, heads * dim] seen as [B, heads, L, dim], or [B, L, heads] seen as [B, heads, L].
TensorView by_head(const Tensor& x, std::int64_t heads, bool has_dim) {
  const std::int64_t batch = x.size(0), len = x.size(1), width = x.size(2), dim = width / heads;
  const std::int64_t strides[] = {len * width, dim, width, 1};
  if (has_dim) return {x.raw(), x.dtype(), Shape{batch, heads, len, dim}, strides};
  return {x.raw(), x.dtype(), Shape{batch, heads, len}, std::span(strides).first(3)};
}

TensorView seen(const Saved& saved, const Field& field, const Tensor& x) {
  const RecurrenceSpec& spec = saved.plan.spec();
  const std::int64_t heads = layout_heads(saved.plan.shape(), spec, field.layout);
  if (heads == 0) return x;
  const bool has_dim = field.layout == Layout::gates ? std::holds_alternative<KeyDecay>(spec.decay)
                                                     : field.layout != Layout::weights;
  return by_head(x, heads, has_dim);
}

void expect_rows(const char* name, const Var& x, std::int64_t heads) {
  if (x.shape().rank() != 3 || heads < 1 || x.size(2) % heads != 0)
    throw InvalidArgument("recurrence", name,
                          "[batch, length, a multiple of " + std::to_string(heads) + " heads]",
                          to_string(x.shape()));
}

RecurrenceShape shape_of(const RecurrenceCall& call, const RecurrenceOperands& operands) {
  expect_rows("key", operands.key, call.num_key_heads);
  expect_rows("value", operands.value, call.num_heads);
  const Extent extent = extent_of(call.lists, operands.key.size(0), operands.key.size(1));
  return {.batch = extent.sequences,
          .num_query_heads = call.num_query_heads,
          .num_key_heads = call.num_key_heads,
          .num_heads = call.num_heads,
          .len = extent.longest,
          .key_dim = operands.key.size(2) / call.num_key_heads,
          .value_dim = operands.value.size(2) / call.num_heads};
}

void check_operands(const Saved& saved, const RecurrenceOperands& operands) {
  for (const Field& field : fields) {
    const Var& x = operands.*field.operand;
    const std::int64_t heads = layout_heads(saved.plan.shape(), saved.plan.spec(), field.layout);
    if (!x.empty() && heads > 0) expect_rows(field.name, x, heads);
  }
}

RecurrenceInputs inputs_of(const Saved& saved, const RecurrenceOperands& operands) {
  RecurrenceInputs inputs{};
  for (const Field& field : fields) {
    const Var& x = operands.*field.operand;
    if (!x.empty()) inputs.*field.input = seen(saved, field, x.value());
  }
  inputs.sequence_starts = saved.lists.starts;
  inputs.present = saved.lists.present;
  return inputs;
}

void backward(const Saved& saved, const RecurrenceOperands& operands, const Tensor& d_output,
              const Tensor& d_state) {
  RecurrenceGradients gradients;
  std::array<Tensor, fields.size()> made;
  for (std::size_t n = 0; n < fields.size(); ++n) {
    made[n] = gradient_like(operands.*fields[n].operand);
    if (made[n]) gradients.*fields[n].gradient = seen(saved, fields[n], made[n]);
  }
  RecurrenceLoss loss;
  const std::int64_t heads = saved.plan.shape().num_output_heads();
  if (d_output) {
    loss.d_output = by_head(d_output, heads, true);
    if (saved.denominator) {
      loss.output = by_head(saved.output, heads, true);
      loss.denominator = saved.denominator;
    }
  }
  if (d_state) loss.d_final_state = d_state;
  if (saved.states) loss.saved_states = saved.states;
  recur_backward(saved.plan, inputs_of(saved, operands), loss, gradients);
  for (std::size_t n = 0; n < fields.size(); ++n) accumulate(operands.*fields[n].operand, made[n]);
}

}  // namespace

OutputAndState recurrence(const RecurrenceCall& call, const RecurrenceOperands& operands) {
  static constexpr ProfileLabel label{"recurrence", ProfilePart::recurrence};
  const ProfileSpan span(label);
  const RecurrenceShape shape = shape_of(call, operands);
  const auto saved = make_kept<Saved>(Saved{
      call.plan ? *call.plan : make_recurrence_plan(call.spec, shape), KeptLists(call.lists), {}, {}, {}});
  check_operands(*saved, operands);
  for (const Field& field : fields) ProfileSpan::add(moved({&(operands.*field.operand)}));
  Tape* tape = nullptr;
  for (const Field& field : fields) {
    if (!tape) tape = tape_of({&(operands.*field.operand)});
  }
  check_unrecorded("recurrence", call.states, tape);
  const std::int64_t batch = operands.key.size(0), len = operands.key.size(1),
                     heads = shape.num_output_heads();
  const Tensor output(DType::f32, {batch, len, heads * shape.value_dim});
  Tensor state;
  RecurrenceOutputs outputs{.output = by_head(output, heads, true), .final_states = call.states.final};
  if (call.final_state == FinalState::wanted) {
    const Extent extent = extent_of(call.lists, batch, len);
    state = Tensor(DType::f32, state_shape(saved->plan.spec(), saved->plan.shape(), extent.sequences));
    outputs.final_state = state;
  }
  if (tape && std::holds_alternative<KeySum>(saved->plan.spec().normalizer)) {
    saved->output = output;
    saved->denominator = Tensor(DType::f32, {batch, heads, len});
    outputs.denominator = saved->denominator;
  }
  RecurrenceInputs inputs = inputs_of(*saved, operands);
  inputs.initial_states = call.states.initial;
  if (tape) {
    const std::int64_t size = saved_states_size(saved->plan, inputs),
                       rows = operands.query.value().count() + operands.key.value().count() +
                              operands.value.value().count() + output.count();
    if (size > 0 && size <= most_saved * rows) {
      saved->states = Tensor(DType::f32, {size});
      outputs.saved_states = saved->states;
    }
  }
  recur(saved->plan, inputs, outputs);
  return record_both(tape, output, state, [=](const Tensor& d_output, const Tensor& d_state) {
    backward(*saved, operands, d_output, d_state);
  });
}

Tensor recurrence_weights(const RecurrenceCall& call, const RecurrenceOperands& operands) {
  static constexpr ProfileLabel label{"recurrence weights", ProfilePart::recurrence};
  const ProfileSpan span(label);
  expect_rows("key", operands.key, call.num_key_heads);
  const std::int64_t batch = operands.key.size(0), len = operands.key.size(1);
  RecurrenceOperands plain;
  for (const Field& field : fields) plain.*field.operand = Var((operands.*field.operand).value());
  plain.initial_state = {};
  // With unit vectors as values, the output of a token is its row of weights.
  Tensor units = Tensor::zeros(DType::f32, {batch, len, call.num_heads * len});
  for (std::int64_t row = 0; row < batch * len; ++row) {
    float* to = units.data<float>() + row * call.num_heads * len;
    for (std::int64_t h = 0; h < call.num_heads; ++h) to[h * len + row % len] = 1.0f;
  }
  plain.value = Var(units);
  RecurrenceCall once{.spec = call.spec,
                      .num_query_heads = call.num_query_heads,
                      .num_key_heads = call.num_key_heads,
                      .num_heads = call.num_heads};
  const Tensor output = recurrence(once, plain).output.value();
  const std::int64_t heads = output.size(2) / std::max<std::int64_t>(len, 1);
  const std::int64_t strides[] = {len * heads * len, len, heads * len, 1};
  return Tensor::copy_of(ConstTensorView(output.raw(), DType::f32, Shape{batch, heads, len, len}, strides));
}

}  // namespace fovea::autograd

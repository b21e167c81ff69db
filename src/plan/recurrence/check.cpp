#include "plan/recurrence/check.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>

#include "core/shortest.h"
#include "kernels/recurrence/features.h"
#include "plan/recurrence/saved.h"
#include "plan/recurrence/states.h"
#include "plan/recurrence/token_rows.h"
#include "plan/rows.h"

namespace fovea {
namespace {

using Inputs = RecurrenceInputs;
using Gradients = RecurrenceGradients;

enum class Presence : std::uint8_t { required, optional, refused };

Presence presence_of(const RecurrencePlan::Impl& plan, const Inputs& inputs, const RecurrenceField& field,
                     bool reads) {
  const auto needed = [](bool used) { return used ? Presence::required : Presence::refused; };
  const auto input = field.input;
  if (input == &Inputs::query) return reads ? Presence::required : Presence::optional;
  if (input == &Inputs::log_decay) return needed(plan.decay() != DecayKind::none);
  if (input == &Inputs::a || input == &Inputs::b) return needed(plan.write() == WriteKind::low_rank);
  if (input == &Inputs::bonus) return needed(plan.read() == ReadKind::before_decay);
  if (input == &Inputs::self_weight) return needed(plan.read() == ReadKind::self_weight);
  if (input == &Inputs::initial_state) return Presence::optional;
  if (input != &Inputs::beta && input != &Inputs::erase) return Presence::required;
  if (plan.write() != WriteKind::delta) return Presence::refused;
  return input == &Inputs::beta && !is_given(inputs.erase) ? Presence::required : Presence::optional;
}

RecurrenceSizes sizes_of(const char* function, const RecurrencePlan::Impl& plan, const Inputs& inputs) {
  check_four_axes(function, "key", inputs.key, "[batch, num_key_heads, len, key_dim]");
  return check_sequences(function, "key", inputs.key, inputs.key.size(2), lists_of(inputs),
                         {plan.shape.batch, plan.shape.len});
}

// States and the bonus are read as contiguous memory. Of other tensors with four axes, rows are contiguous.
bool is_contiguous_field(const RecurrenceField& field) {
  return field.input == &Inputs::initial_state || field.input == &Inputs::bonus;
}

void check_field(const char* function, const char* name, const ConstTensorView& view, DType dtype,
                 const Shape& shape, bool contiguous) {
  if (contiguous || shape.rank() == 1) return check_contiguous(function, name, view, dtype, shape);
  if (shape.rank() == 4) return check_view(function, name, view, dtype, shape);
  // Gates and weights may be strided in every axis.
  if (view.dtype() != dtype || !(view.shape() == shape))
    throw InvalidArgument(function, name, std::string(to_string(dtype)) + " " + to_string(shape),
                          described(view));
  if (view.count() > 0 && view.empty())
    throw InvalidArgument(function, name, "data of " + to_string(shape), "a null pointer");
}

Shape output_shape(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes) {
  return {sizes.entries, plan.shape.num_output_heads(), sizes.len, plan.shape.value_dim};
}
Shape denominator_shape(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes) {
  return {sizes.entries, plan.shape.num_output_heads(), sizes.len};
}

void check_denominator(const char* function, const RecurrencePlan::Impl& plan, const ConstTensorView& view,
                       const RecurrenceSizes& sizes) {
  if (!plan.sums_keys())
    throw InvalidArgument(function, "denominator", "nothing, because the spec has no sum normaliser",
                          described(view));
  check_contiguous(function, "denominator", view, plan.compute_dtype(), denominator_shape(plan, sizes));
}

// The largest gate of one head of one sequence, or 0. Rows that follow each other come from memory and are
// searched in one go.
template <class T>
double largest_gate(const ConstTensorView& gates, const kernels::TokenSequence& sequence, std::int64_t head) {
  const std::int64_t dim = gates.rank() == 4 ? gates.size(3) : 1;
  const bool follow = !sequence.rows && gates.stride(2) == dim;
  const std::int64_t together = follow ? std::max(sequence.count, std::int64_t{1}) : 1;
  T most = T(0);
  for (std::int64_t i = 0; i < sequence.count; i += together) {
    const T* rows = gates.data<T>() + sequence.entry * gates.stride(0) + head * gates.stride(1) +
                    sequence.row(i) * gates.stride(2);
    most = std::max(most, together * dim == 1 ? *rows : kernels::largest(rows, together * dim));
  }
  return static_cast<double>(most);
}

[[noreturn]] void refuse_gate(const char* function, double gate) {
  throw InvalidArgument(function, "log_decay", "logarithms of decays, at most 0", shortest(gate));
}

}  // namespace

const std::array<RecurrenceField, 11> recurrence_fields{
    {{"query", "gradients.query", &Inputs::query, &Gradients::query},
     {"key", "gradients.key", &Inputs::key, &Gradients::key},
     {"value", "gradients.value", &Inputs::value, &Gradients::value},
     {"log_decay", "gradients.log_decay", &Inputs::log_decay, &Gradients::log_decay},
     {"beta", "gradients.beta", &Inputs::beta, &Gradients::beta},
     {"erase", "gradients.erase", &Inputs::erase, &Gradients::erase},
     {"a", "gradients.a", &Inputs::a, &Gradients::a},
     {"b", "gradients.b", &Inputs::b, &Gradients::b},
     {"bonus", "gradients.bonus", &Inputs::bonus, &Gradients::bonus},
     {"self_weight", "gradients.self_weight", &Inputs::self_weight, &Gradients::self_weight},
     {"initial_state", "gradients.initial_state", &Inputs::initial_state, &Gradients::initial_state}}};

RecurrenceInputs tokens_of(const RecurrenceInputs& inputs, std::int64_t begin, std::int64_t count) {
  RecurrenceInputs in = inputs;
  for (const RecurrenceField& field : recurrence_fields) {
    ConstTensorView& view = in.*field.input;
    const bool has_tokens = field.input != &RecurrenceInputs::initial_state &&
                            field.input != &RecurrenceInputs::bonus && view.rank() > 2;
    if (has_tokens) view = view.slice(2, begin, count);
  }
  if (!in.present.empty())
    in.present = in.present.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  return in;
}

Shape field_shape(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes,
                  const RecurrenceField& field) {
  const RecurrenceShape& s = plan.shape;
  const auto input = field.input;
  if (input == &Inputs::query) return {sizes.entries, s.num_query_heads, sizes.len, s.key_dim};
  if (input == &Inputs::key) return {sizes.entries, s.num_key_heads, sizes.len, s.key_dim};
  if (input == &Inputs::value) return {sizes.entries, s.num_heads, sizes.len, s.value_dim};
  if (input == &Inputs::bonus) return {s.num_heads, s.key_dim};
  if (input == &Inputs::initial_state) return state_shape(plan.spec, s, sizes.sequences);
  if (input == &Inputs::log_decay && plan.decay() == DecayKind::constant) return {s.num_heads};
  if (input == &Inputs::beta || input == &Inputs::self_weight ||
      (input == &Inputs::log_decay && plan.decay() == DecayKind::scalar))
    return {sizes.entries, s.num_heads, sizes.len};
  return {sizes.entries, s.num_heads, sizes.len, s.key_dim};
}

DType field_dtype(const RecurrencePlan::Impl& plan, const RecurrenceField& field) {
  const auto input = field.input;
  const bool stored = input == &Inputs::query || input == &Inputs::key || input == &Inputs::value ||
                      input == &Inputs::erase || input == &Inputs::a || input == &Inputs::b;
  return stored ? plan.dtype : plan.compute_dtype();
}

RecurrenceSizes check_recurrence_inputs(const char* function, const RecurrencePlan::Impl& plan,
                                        const RecurrenceInputs& inputs, bool reads, StateLists lists) {
  if (lists == StateLists::refused)
    refuse_state_list(function, "initial_states", inputs.initial_states.size());
  const RecurrenceSizes sizes = sizes_of(function, plan, inputs);
  for (const RecurrenceField& field : recurrence_fields) {
    const ConstTensorView& view = inputs.*field.input;
    const Presence presence = presence_of(plan, inputs, field, reads);
    const Shape shape = field_shape(plan, sizes, field);
    const DType dtype = field_dtype(plan, field);
    if (is_given(view)) {
      if (presence == Presence::refused)
        throw InvalidArgument(function, field.name, "nothing, because the spec is " + to_string(plan.spec),
                              described(view));
      check_field(function, field.name, view, dtype, shape, is_contiguous_field(field));
    } else if (presence == Presence::required) {
      const bool of_delta = field.input == &Inputs::beta;
      throw InvalidArgument(
          function, field.name,
          std::string(to_string(dtype)) + " " + to_string(shape) + (of_delta ? ", or an erase" : ""),
          "nothing");
    }
  }
  return sizes;
}

void check_recurrence_outputs(const char* function, const RecurrencePlan::Impl& plan,
                              const RecurrenceInputs& inputs, const RecurrenceOutputs& outputs,
                              const RecurrenceSizes& sizes) {
  const CallStates states = states_of(inputs, outputs);
  if (!is_given(outputs.output) && !states.wants_final())
    throw InvalidArgument(function, "output", "an output or a final state", "neither");
  if (is_given(outputs.output))
    check_written(function, "output", outputs.output, plan.dtype, output_shape(plan, sizes));
  check_states(function, states, plan.compute_dtype(), state_shape(plan.spec, plan.shape, sizes.sequences));
  if (is_given(outputs.denominator)) check_denominator(function, plan, outputs.denominator, sizes);
  if (is_given(outputs.saved_states)) check_saved_states(function, plan, outputs.saved_states, sizes);
  OverlapCheck overlaps(function);
  overlaps.writes("output", outputs.output);
  overlaps.writes("denominator", outputs.denominator);
  overlaps.writes("saved_states", outputs.saved_states);
  add_states(overlaps, states);
  for (const RecurrenceField& field : recurrence_fields) {
    if (field.input != &Inputs::initial_state) overlaps.reads(field.name, inputs.*field.input);
  }
  overlaps.check();
}

void check_recurrence_gradients(const char* function, const RecurrencePlan::Impl& plan,
                                const RecurrenceInputs& inputs, const RecurrenceLoss& loss,
                                const RecurrenceGradients& gradients, const RecurrenceSizes& sizes) {
  OverlapCheck overlaps(function);
  if (!is_given(loss.d_output) && !is_given(loss.d_final_state))
    throw InvalidArgument(function, "d_output", "a derivative by the output or by the final state",
                          "neither");
  if (is_given(loss.d_output)) {
    check_view(function, "d_output", loss.d_output, plan.dtype, output_shape(plan, sizes));
    if (plan.sums_keys()) {
      check_view(function, "output", loss.output, plan.dtype, output_shape(plan, sizes));
      check_denominator(function, plan, loss.denominator, sizes);
    }
  }
  const Shape states = state_shape(plan.spec, plan.shape, sizes.sequences);
  if (is_given(loss.d_final_state))
    check_contiguous(function, "d_final_state", loss.d_final_state, plan.compute_dtype(), states);
  if (is_given(loss.saved_states)) {
    check_saved_states(function, plan, loss.saved_states, sizes);
    check_stamp(function, plan, loss.saved_states, sizes);
  }
  for (const RecurrenceField& field : recurrence_fields) {
    const TensorView& view = gradients.*field.gradient;
    overlaps.reads(field.name, inputs.*field.input);
    if (!is_given(view)) continue;
    if (!is_given(inputs.*field.input) && field.input != &Inputs::initial_state)
      throw InvalidArgument(function, field.gradient_name,
                            std::string("nothing, because there is no ") + field.name, described(view));
    check_field(function, field.gradient_name, view, field_dtype(plan, field),
                field_shape(plan, sizes, field), is_contiguous_field(field));
    check_distinct_elements(function, field.gradient_name, view);
    overlaps.writes(field.gradient_name, view);
  }
  overlaps.reads("d_output", loss.d_output);
  overlaps.reads("d_final_state", loss.d_final_state);
  overlaps.reads("output", loss.output);
  overlaps.reads("denominator", loss.denominator);
  overlaps.reads("saved_states", loss.saved_states);
  overlaps.check();
}

void check_gates(const char* function, const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs,
                 std::span<const kernels::TokenSequence> sequences, Executor& executor) {
  const ConstTensorView& gates = inputs.log_decay;
  if (plan.decay() == DecayKind::none || sequences.empty()) return;
  if (plan.decay() == DecayKind::constant) {
    for (std::int64_t h = 0; h < gates.size(0); ++h) {
      const double gate =
          with_wide_type(gates.dtype(), [&](auto t) { return double(gates.at<decltype(t)>({h})); });
      if (gate > 0) refuse_gate(function, gate);
    }
    return;
  }
  const RowsOfTokens rows{sequences, plan.shape.num_heads, gates.rank() == 4 ? gates.size(3) : 1};
  std::atomic<double> found{0};
  for_heads_of_sequences(rows, executor, [&](const kernels::TokenSequence& sequence, std::int64_t head) {
    const double gate = with_wide_type(
        gates.dtype(), [&](auto t) { return largest_gate<decltype(t)>(gates, sequence, head); });
    if (gate > 0) found = gate;
  });
  if (found > 0) refuse_gate(function, found);
}

}  // namespace fovea

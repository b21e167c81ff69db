// The short convolution in front of a recurrence, and the scan of Mamba-1, as ops.
#include <string>

#include "autograd/token_lists.h"
#include "fovea/autograd/recurrence.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

struct SavedConv {
  CausalConvPlan plan;
  KeptLists lists;
};

CausalConvInputs inputs_of(const SavedConv& saved, const CausalConvOperands& operands) {
  return {.x = operands.x.value(),
          .weight = operands.weight.value(),
          .bias = view_of(operands.bias),
          .initial_state = view_of(operands.initial_state),
          .sequence_starts = saved.lists.starts,
          .present = saved.lists.present};
}

void expect_rank(const char* function, const char* argument, const Var& x, int rank, const char* expected) {
  if (x.shape().rank() != rank) throw InvalidArgument(function, argument, expected, to_string(x.shape()));
}

}  // namespace

OutputAndState causal_conv(const CausalConvCall& call, const CausalConvOperands& operands) {
  static constexpr ProfileLabel label{"causal conv", ProfilePart::recurrence};
  const ProfileSpan span(label, moved({&operands.x}, operands.x.value().count()));
  expect_rank("causal_conv", "x", operands.x, 3, "[batch, len, channels]");
  expect_rank("causal_conv", "weight", operands.weight, 2, "[channels, width]");
  const Extent extent = extent_of(call.lists, operands.x.size(0), operands.x.size(1));
  const CausalConvSpec spec{.width = operands.weight.size(1), .activation = call.activation};
  const CausalConvShape shape{
      .batch = extent.sequences, .len = extent.longest, .channels = operands.x.size(2)};
  const auto saved =
      make_kept<SavedConv>(SavedConv{make_causal_conv_plan(spec, shape), KeptLists(call.lists)});
  const Tensor output(DType::f32, operands.x.shape());
  Tensor state;
  if (call.final_state == FinalState::wanted)
    state = Tensor(DType::f32, state_shape(spec, shape, extent.sequences));
  Tape* tape = tape_of({&operands.x, &operands.weight, &operands.bias, &operands.initial_state});
  check_unrecorded("causal_conv", call.states, tape);
  CausalConvInputs inputs = inputs_of(*saved, operands);
  inputs.initial_states = call.states.initial;
  fovea::causal_conv(saved->plan, inputs,
                     {.output = output, .final_state = writable(state), .final_states = call.states.final});
  return record_both(tape, output, state, [=](const Tensor& d_output, const Tensor& d_state) {
    const Tensor dx = gradient_like(operands.x), d_weight = gradient_like(operands.weight),
                 d_bias = gradient_like(operands.bias), d_initial = gradient_like(operands.initial_state);
    CausalConvLoss loss;
    if (d_output) loss.d_output = d_output;
    if (d_state) loss.d_final_state = d_state;
    causal_conv_backward(saved->plan, inputs_of(*saved, operands), loss,
                         {.x = writable(dx),
                          .weight = writable(d_weight),
                          .bias = writable(d_bias),
                          .initial_state = writable(d_initial)});
    accumulate(operands.x, dx);
    accumulate(operands.weight, d_weight);
    accumulate(operands.bias, d_bias);
    accumulate(operands.initial_state, d_initial);
  });
}

namespace {

struct SavedScan {
  SelectiveScanPlan plan;
  KeptLists lists;
};

// [B, L, groups * state_dim] seen as [B, L, groups, state_dim].
TensorView by_group(const SavedScan& saved, const Tensor& x) {
  if (!x) return {};
  const SelectiveScanShape& shape = saved.plan.shape();
  return TensorView(x.reshape({x.size(0), x.size(1), shape.groups, shape.state_dim}));
}

SelectiveScanInputs inputs_of(const SavedScan& saved, const SelectiveScanOperands& operands) {
  return {.x = operands.x.value(),
          .delta = operands.delta.value(),
          .a = operands.a.value(),
          .b = by_group(saved, operands.b.value()),
          .c = by_group(saved, operands.c.value()),
          .d = view_of(operands.d),
          .z = view_of(operands.z),
          .delta_bias = view_of(operands.delta_bias),
          .initial_state = view_of(operands.initial_state),
          .sequence_starts = saved.lists.starts,
          .present = saved.lists.present};
}

void backward(const SavedScan& saved, const SelectiveScanOperands& operands, const Tensor& d_output,
              const Tensor& d_state) {
  const SelectiveScanOperands& o = operands;
  const Tensor dx = gradient_like(o.x), d_delta = gradient_like(o.delta), da = gradient_like(o.a),
               db = gradient_like(o.b), dc = gradient_like(o.c), dd = gradient_like(o.d),
               dz = gradient_like(o.z), d_bias = gradient_like(o.delta_bias),
               d_initial = gradient_like(o.initial_state);
  SelectiveScanLoss loss;
  if (d_output) loss.d_output = d_output;
  if (d_state) loss.d_final_state = d_state;
  selective_scan_backward(saved.plan, inputs_of(saved, o), loss,
                          {.x = writable(dx),
                           .delta = writable(d_delta),
                           .a = writable(da),
                           .b = by_group(saved, db),
                           .c = by_group(saved, dc),
                           .d = writable(dd),
                           .z = writable(dz),
                           .delta_bias = writable(d_bias),
                           .initial_state = writable(d_initial)});
  accumulate(o.x, dx);
  accumulate(o.delta, d_delta);
  accumulate(o.a, da);
  accumulate(o.b, db);
  accumulate(o.c, dc);
  accumulate(o.d, dd);
  accumulate(o.z, dz);
  accumulate(o.delta_bias, d_bias);
  accumulate(o.initial_state, d_initial);
}

SelectiveScanShape shape_of(const SelectiveScanCall& call, const SelectiveScanOperands& operands) {
  const char* function = "selective_scan";
  expect_rank(function, "x", operands.x, 3, "[batch, len, channels]");
  expect_rank(function, "a", operands.a, 2, "[channels, state_dim]");
  const std::int64_t state_dim = operands.a.size(1);
  for (const auto& [name, rows] : {std::pair{"b", &operands.b}, std::pair{"c", &operands.c}}) {
    if (rows->shape().rank() != 3 || state_dim < 1 || rows->size(2) % state_dim != 0)
      throw InvalidArgument(function, name,
                            "[batch, len, groups * " + std::to_string(state_dim) + "], as a has",
                            to_string(rows->shape()));
  }
  const Extent extent = extent_of(call.lists, operands.x.size(0), operands.x.size(1));
  return {.batch = extent.sequences,
          .len = extent.longest,
          .channels = operands.x.size(2),
          .groups = operands.b.size(2) / state_dim,
          .state_dim = state_dim};
}

}  // namespace

OutputAndState selective_scan(const SelectiveScanCall& call, const SelectiveScanOperands& operands) {
  static constexpr ProfileLabel label{"selective scan", ProfilePart::recurrence};
  const ProfileSpan span(label, moved({&operands.x}, operands.x.value().count()));
  const SelectiveScanShape shape = shape_of(call, operands);
  const auto saved = make_kept<SavedScan>(
      SavedScan{make_selective_scan_plan({.step_size = call.step_size}, shape), KeptLists(call.lists)});
  if (operands.c.size(2) != operands.b.size(2))
    throw InvalidArgument("selective_scan", "c", "the shape of b, " + to_string(operands.b.shape()),
                          to_string(operands.c.shape()));
  const Tensor output(DType::f32, operands.x.shape());
  Tensor state;
  if (call.final_state == FinalState::wanted) state = Tensor(DType::f32, state_shape(shape, shape.batch));
  const SelectiveScanOperands& o = operands;
  Tape* tape = tape_of({&o.x, &o.delta, &o.a, &o.b, &o.c, &o.d, &o.z, &o.delta_bias, &o.initial_state});
  check_unrecorded("selective_scan", call.states, tape);
  SelectiveScanInputs inputs = inputs_of(*saved, operands);
  inputs.initial_states = call.states.initial;
  fovea::selective_scan(
      saved->plan, inputs,
      {.output = output, .final_state = writable(state), .final_states = call.states.final});
  return record_both(tape, output, state, [=](const Tensor& d_output, const Tensor& d_state) {
    backward(*saved, operands, d_output, d_state);
  });
}

}  // namespace fovea::autograd

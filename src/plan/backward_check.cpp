#include <algorithm>

#include "plan/backward.h"
#include "plan/run.h"

namespace fovea {
namespace {

constexpr const char* attend_backward_name = "attend_backward";

void check_gradient(const char* caller, const char* argument, const TensorView& view,
                    const ConstTensorView& like, DType dtype, const AttentionInputs& inputs) {
  if (!view) return;
  if (!is_given(like))
    throw InvalidArgument(caller, argument, "no gradient of an argument that was not given",
                          to_string(view.shape()));
  check_output(caller, argument, view, dtype, like.shape(), inputs);
}

void check_gradients(const AttentionPlan::Impl& plan, const Call& call, const AttentionGradients& g) {
  const AttentionInputs& inputs = call.inputs;
  check_gradient(attend_backward_name, "gradients.query", g.query, inputs.query, plan.dtype, inputs);
  check_gradient(attend_backward_name, "gradients.key", g.key, inputs.key, plan.dtype, inputs);
  check_gradient(attend_backward_name, "gradients.value", g.value, inputs.value, plan.dtype, inputs);
  check_argument_gradients(attend_backward_name, plan, call);
}

// Refuses normalisers without a derivative, and those that need an input that is missing.
void check_differentiable(const AttentionPlan::Impl& plan, const Call& call, const AttentionLoss& loss,
                          const AttentionGradients& g) {
  bool of_scores = g.query || g.key;
  for (int n = 0; n < plan.first_weight_mod_argument; ++n) of_scores = of_scores || call.gradients[n];
  if (!of_scores) return;
  const WeightDerivative derivative = derivative_of(plan.spec.normalizer);
  if (derivative == WeightDerivative::none)
    throw InvalidArgument(attend_backward_name, "gradients",
                          "gradients of values and weight mods only: the weights of HardArgmax have no "
                          "derivative by the scores",
                          "a gradient by the scores");
  if (derivative == WeightDerivative::estimate && !loss.advantage)
    throw InvalidArgument(attend_backward_name, "loss.advantage",
                          "the loss of each row less a baseline, by which HardSample's estimate is weighted",
                          "nothing");
}

void check_apart(const AttentionInputs& inputs, const AttentionGradients& g, const AttentionLoss& loss) {
  OverlapCheck memory(attend_backward_name);
  memory.writes("gradients.query", g.query);
  memory.writes("gradients.key", g.key);
  memory.writes("gradients.value", g.value);
  memory.writes(g.arguments);
  memory.reads("output", loss.output);
  memory.reads("log_sum_exp", loss.log_sum_exp);
  memory.reads("d_output", loss.d_output);
  memory.reads("d_weights", loss.d_weights);
  memory.reads("advantage", loss.advantage);
  memory.reads(inputs.arguments);
  memory.check();
}

void check_loss(const AttentionPlan::Impl& plan, const CallSizes& sizes, const Call& call,
                const AttentionLoss& loss) {
  const AttentionShape& s = plan.shape;
  const Shape outputs{sizes.batch, s.num_query_heads, sizes.query_len, s.value_dim},
      rows{sizes.batch, s.num_query_heads, sizes.query_len};
  const auto check = [](const char* argument, const ConstTensorView& view, DType dtype, const Shape& shape) {
    check_view(attend_backward_name, argument, view, dtype, shape);
  };
  const auto contiguous = [&](const char* argument, const ConstTensorView& view) {
    check(argument, view, plan.compute_dtype(), rows);
    check_is_contiguous(attend_backward_name, argument, view);
  };
  // The forward's results are needed unless the kernel recomputes whole rows of scores. Sinks need the
  // log-sum-exp in any case.
  const bool whole = whole_row(plan, loss_of(loss));
  const bool reads_log_sum_exp = gradient_reads_log_sum_exp(plan.spec.normalizer);
  if (whole && plan.keys == Keys::part)
    throw InvalidArgument(attend_backward_name, loss.d_weights ? "d_weights" : "plan",
                          "gradients that need no whole rows: calls on parts of the keys do not see them",
                          loss.d_weights ? "a loss of weights" : "weight mods, or a table by query");
  if (!whole || loss.output) check("output", loss.output, plan.dtype, outputs);
  if (!whole || reads_log_sum_exp || loss.log_sum_exp) contiguous("log_sum_exp", loss.log_sum_exp);
  const bool sampled = derivative_of(plan.spec.normalizer) == WeightDerivative::estimate;
  const bool without_output = whole && (loss.d_weights || (sampled && loss.advantage));
  if (!without_output || loss.d_output) check("d_output", loss.d_output, plan.dtype, outputs);
  if (loss.advantage) contiguous("advantage", loss.advantage);
  if (loss.advantage && !sampled)
    throw InvalidArgument(attend_backward_name, "advantage", "nothing: only HardSample's estimate takes one",
                          described(loss.advantage));
  if (!loss.d_weights) {
    if (!loss.weight_heads.empty() || !loss.weight_rows.empty())
      throw InvalidArgument(attend_backward_name, "d_weights",
                            "the derivative by the weights of the chosen heads and rows", "nothing");
    return;
  }
  check_chosen(attend_backward_name, "weight_heads", loss.weight_heads, s.num_query_heads);
  check_chosen(attend_backward_name, "weight_rows", loss.weight_rows, sizes.query_len);
  check_all_rows(attend_backward_name, call.inputs, loss.weight_rows);
  check("d_weights", loss.d_weights, plan.compute_dtype(),
        weights_shape(plan, sizes, loss.weight_heads, loss.weight_rows));
}

}  // namespace

void check_argument_gradients(const char* caller, const AttentionPlan::Impl& plan, const Call& call) {
  for (int n = 0; n < call.gradients.count(); ++n) {
    const TensorView& view = call.gradients[n];
    if (!view) continue;
    const DeclaredArgument& argument = plan.arguments[static_cast<std::size_t>(n)];
    const std::string& name = plan.gradient_names[static_cast<std::size_t>(n)];
    if (!argument.declaration.learned)
      throw InvalidArgument(caller, name, "nothing: this argument has no gradient", described(view));
    check_gradient(caller, name.c_str(), view, call.arguments[n], plan.compute_dtype(), call.inputs);
    if (argument.declaration.layout != ArgumentDeclaration::Layout::any)
      check_is_contiguous(caller, name, view);
  }
}

bool whole_row(const AttentionPlan::Impl& plan, LossOf loss_of) {
  return plan.whole_row_backward() || loss_of == LossOf::weights;
}

void check_backward(const AttentionPlan::Impl& plan, const CallSizes& sizes, const Call& call,
                    const AttentionLoss& loss, const AttentionGradients& gradients) {
  check_loss(plan, sizes, call, loss);
  check_gradients(plan, call, gradients);
  check_differentiable(plan, call, loss, gradients);
  check_apart(call.inputs, gradients, loss);
}

}  // namespace fovea

#include <algorithm>

#include "plan/backward.h"

namespace fovea {
namespace {

constexpr const char* function = "attend_backward";

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
  parameter("gradients.w", g.w, inputs.parameters.w);
  parameter("gradients.sink", g.sink, inputs.sink);
  parameter("gradients.transitions", g.transitions, inputs.transitions);
  for (std::size_t n = 0; n < std::min(g.mod_arguments.size(), inputs.mod_arguments.size()); ++n)
    check("gradients.mod_arguments", g.mod_arguments[n], inputs.mod_arguments[n], plan.compute_dtype());
  const auto& weight = g.weight_mod_arguments;
  const auto& like = inputs.weight_mod_arguments;
  for (std::size_t n = 0; n < std::min(weight.size(), like.size()); ++n)
    check("gradients.weight_mod_arguments", weight[n], like[n], plan.compute_dtype());
}

// Derivatives that a normaliser does not have, or not without help.
void check_differentiable(const AttentionPlan::Impl& plan, const AttentionLoss& loss,
                          const AttentionGradients& g) {
  const auto given = [](const TensorView& view) { return bool(view); };
  const bool of_scores = g.query || g.key || g.W || g.U || g.v || g.b || g.w || g.sink ||
                         std::any_of(g.mod_arguments.begin(), g.mod_arguments.end(), given);
  if (!of_scores) return;
  if (std::holds_alternative<HardArgmax>(plan.spec.normalizer))
    throw InvalidArgument(function, "gradients",
                          "those of values and weight mods alone: the weights of HardArgmax are constant "
                          "wherever they have a derivative by the scores",
                          "one by the scores");
  if (std::holds_alternative<HardSample>(plan.spec.normalizer) && !loss.advantage)
    throw InvalidArgument(function, "loss.advantage",
                          "the loss of each row less a baseline, by which HardSample's estimate is weighted",
                          "nothing");
}

void check_apart(const AttentionInputs& inputs, const AttentionGradients& g, const AttentionLoss& loss) {
  Apart apart(function);
  apart.writes("gradients.query", g.query);
  apart.writes("gradients.key", g.key);
  apart.writes("gradients.value", g.value);
  apart.writes("gradients.W", g.W);
  apart.writes("gradients.U", g.U);
  apart.writes("gradients.v", g.v);
  apart.writes("gradients.b", g.b);
  apart.writes("gradients.w", g.w);
  apart.writes("gradients.sink", g.sink);
  apart.writes("gradients.transitions", g.transitions);
  for (const TensorView& view : g.mod_arguments) apart.writes("gradients.mod_arguments", view);
  for (const TensorView& view : g.weight_mod_arguments) apart.writes("gradients.weight_mod_arguments", view);
  apart.reads("output", loss.output);
  apart.reads("log_sum_exp", loss.log_sum_exp);
  apart.reads("d_output", loss.d_output);
  apart.reads("d_weights", loss.d_weights);
  apart.reads("advantage", loss.advantage);
  apart.reads(inputs);
  apart.check();
}

void check_loss(const AttentionPlan::Impl& plan, const CallSizes& sizes, const AttentionLoss& loss) {
  const AttentionShape& s = plan.shape;
  const Shape outputs{sizes.batch, s.num_query_heads, sizes.query_len, s.value_dim},
      rows{sizes.batch, s.num_query_heads, sizes.query_len};
  const auto check = [](const char* argument, const ConstTensorView& view, DType dtype, const Shape& shape) {
    check_view(function, argument, view, dtype, shape);
  };
  const auto contiguous = [&](const char* argument, const ConstTensorView& view) {
    check(argument, view, plan.compute_dtype(), rows);
    if (!view.contiguous()) throw InvalidArgument(function, argument, "a contiguous tensor", "a strided one");
  };
  // What attend wrote is needed where rows of scores are not made whole again, and the log-sum-exp by sinks.
  const bool whole = whole_row(plan, loss.d_weights ? LossOf::weights : LossOf::output);
  const bool sink = std::holds_alternative<SoftmaxWithSink>(plan.spec.normalizer);
  if (whole && plan.keys == Keys::part)
    throw InvalidArgument(function, loss.d_weights ? "d_weights" : "plan",
                          "gradients that need no whole rows: calls on parts of the keys have none",
                          loss.d_weights ? "a loss of weights" : "weight mods, or a table by query");
  if (!whole || loss.output) check("output", loss.output, plan.dtype, outputs);
  if (!whole || sink || loss.log_sum_exp) contiguous("log_sum_exp", loss.log_sum_exp);
  const bool sampled = std::holds_alternative<HardSample>(plan.spec.normalizer);
  const bool without_output = whole && (loss.d_weights || (sampled && loss.advantage));
  if (!without_output || loss.d_output) check("d_output", loss.d_output, plan.dtype, outputs);
  if (loss.advantage) contiguous("advantage", loss.advantage);
  if (loss.advantage && !sampled)
    throw InvalidArgument(function, "advantage", "nothing: only HardSample's estimate takes one",
                          described(loss.advantage));
  if (!loss.d_weights) {
    if (!loss.weight_heads.empty() || !loss.weight_rows.empty())
      throw InvalidArgument(function, "d_weights", "the derivative by the heads and rows chosen", "nothing");
    return;
  }
  check_chosen(function, "weight_heads", loss.weight_heads, s.num_query_heads);
  check_chosen(function, "weight_rows", loss.weight_rows, sizes.query_len);
  check("d_weights", loss.d_weights, plan.compute_dtype(),
        weights_shape(plan, sizes, loss.weight_heads, loss.weight_rows));
}

}  // namespace

bool whole_row(const AttentionPlan::Impl& plan, LossOf loss_of) {
  return plan.whole_row_backward() || loss_of == LossOf::weights;
}

void check_backward(const AttentionPlan::Impl& plan, const CallSizes& sizes, const AttentionInputs& inputs,
                    const AttentionLoss& loss, const AttentionGradients& gradients) {
  check_loss(plan, sizes, loss);
  check_gradients(plan, inputs, gradients);
  check_differentiable(plan, loss, gradients);
  check_apart(inputs, gradients, loss);
}

}  // namespace fovea

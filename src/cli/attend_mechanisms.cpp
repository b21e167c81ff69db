#include "cli/attend_mechanisms.h"

#include "fovea/mechanisms/differential.h"
#include "fovea/mechanisms/latent.h"

namespace fovea::cli {
namespace {

PlanOptions plan_options(const AttendOptions& o, const AttendCall& call) {
  return {.dtype = call.query.dtype(), .precision = parse_precision(o.precision), .kernel = o.kernel};
}

Tensor empty_output(const AttendCall& call) {
  const Shape rows = call.result_rows();
  return {call.query.dtype(), {rows[0], rows[1], rows[2], call.shape.value_dim}};
}

class Plain final : public Mechanism {
 public:
  Plain(const AttendOptions& o, const AttendCall& call)
      : o_(o), call_(call), plan_(make_plan(call.spec, call.shape, plan_options(o, call))) {}
  const AttentionPlan& plan() const override { return plan_; }

  AttendResults forward(Executor* executor) override {
    const AttentionShape& s = call_.shape;
    const Shape rows = call_.result_rows();
    const DType dtype = call_.query.dtype();
    // A loss on weights computes whole rows again; then only the normaliser's arguments may need the
    // log-sum-exp.
    const bool needs_lse = !o_.lse.empty() ||
                           (o_.has_gradients() &&
                            (o_.grad_weights.empty() || !arguments(call_.spec.normalizer).empty())),
               chosen = !o_.weight_heads.empty() || !o_.weight_rows.empty();
    AttendResults results;
    AttentionOutputs outputs;
    // If only chosen weights are asked for, the engine computes no other row. So the log-sum-exp needs the
    // output too.
    if (o_.has_output() || (needs_lse && s.value_dim > 0))
      outputs.output = results.output = empty_output(call_);
    if (needs_lse) outputs.log_sum_exp = results.log_sum_exp = Tensor(dtype, rows);
    if (needs_lse && chosen && s.value_dim == 0) {
      const Tensor all(dtype, {rows[0], rows[1], rows[2], s.key_len});
      outputs.weights = all;
      attend(plan_, call_.inputs, outputs, {.executor = executor});
      outputs.log_sum_exp = {};
    }
    if (!o_.weights.empty()) {
      const auto count = [](const std::vector<std::int64_t>& list, std::int64_t otherwise) {
        return list.empty() ? otherwise : static_cast<std::int64_t>(list.size());
      };
      outputs.weights = results.weights = Tensor(
          dtype, {rows[0], count(o_.weight_heads, rows[1]), count(o_.weight_rows, rows[2]), s.key_len});
      outputs.weight_heads = o_.weight_heads;
      outputs.weight_rows = o_.weight_rows;
    }
    attend(plan_, call_.inputs, outputs, {.executor = executor});
    return results;
  }
  void backward(const AttentionLoss& loss, const AttentionGradients& gradients, GradientFiles&,
                Executor* executor) override {
    attend_backward(plan_, call_.inputs, loss, gradients, {.executor = executor});
  }

 private:
  const AttendOptions& o_;
  const AttendCall& call_;
  AttentionPlan plan_;
};

class Differential final : public Mechanism {
 public:
  Differential(const AttendOptions& o, const AttendCall& call)
      : call_(call), plan_(make_plan(call.spec, call.shape, plan_options(o, call))) {}
  const AttentionPlan& plan() const override { return plan_; }

  AttendResults forward(Executor* executor) override {
    AttendResults results{.output = empty_output(call_), .log_sum_exp = {}, .weights = {}};
    state_ = attend_differential(plan_, inputs(), results.output, {.executor = executor});
    return results;
  }
  void backward(const AttentionLoss& loss, const AttentionGradients& gradients, GradientFiles& files,
                Executor* executor) override {
    attend_differential_backward(plan_, inputs(), state_, loss.d_output,
                                 {.attention = gradients, .lambda = files.like("lambda", call_.lambda)},
                                 {.executor = executor});
  }

 private:
  DifferentialInputs inputs() const { return {.attention = call_.inputs, .lambda = call_.lambda}; }
  const AttendCall& call_;
  AttentionPlan plan_;
  DifferentialState state_;
};

class Latent final : public Mechanism {
 public:
  Latent(const AttendOptions& o, const AttendCall& call)
      : call_(call),
        plan_(make_latent_plan(
            call.spec, shape_of(call),
            o.latent_execution == "naive" ? LatentExecution::naive : LatentExecution::absorbed,
            plan_options(o, call))) {}
  const AttentionPlan& plan() const override { return plan_.attention; }

  AttendResults forward(Executor* executor) override {
    AttendResults results{.output = empty_output(call_), .log_sum_exp = {}, .weights = {}};
    state_ = attend_latent(plan_, inputs(), results.output, {.executor = executor});
    results.log_sum_exp = state_.log_sum_exp;
    return results;
  }
  void backward(const AttentionLoss& loss, const AttentionGradients& g, GradientFiles& files,
                Executor* executor) override {
    LatentGradients wanted{.query_content = {},
                           .query_rotary = {},
                           .cache = {},
                           .W_UK = {},
                           .W_UV = files.like("latent.W_UV", call_.W_UV),
                           .arguments = g.arguments};
    if (call_.differentiable_by_scores()) {
      wanted.query_content = files.like("query", call_.query);
      if (call_.query_rotary) wanted.query_rotary = files.like("query_rotary", call_.query_rotary);
      wanted.cache = files.like("cache", call_.key);
      wanted.W_UK = files.like("latent.W_UK", call_.W_UK);
    }
    attend_latent_backward(plan_, inputs(), state_, loss.d_output, wanted, {.executor = executor});
  }

 private:
  static LatentShape shape_of(const AttendCall& call) {
    const AttentionShape& s = call.shape;
    return {.batch = s.batch,
            .num_query_heads = s.num_query_heads,
            .query_len = s.query_len,
            .key_len = s.key_len,
            .content_dim = s.head_dim,
            .rotary_dim = call.query_rotary ? call.query_rotary.size(3) : 0,
            .latent_dim = call.W_UK.size(2),
            .value_dim = s.value_dim};
  }
  LatentInputs inputs() const {
    LatentInputs in{.query_content = call_.query,
                    .query_rotary = {},
                    .cache = call_.key,
                    .W_UK = call_.W_UK,
                    .W_UV = call_.W_UV,
                    .attention = call_.inputs};
    if (call_.query_rotary) in.query_rotary = call_.query_rotary;
    return in;
  }
  const AttendCall& call_;
  LatentPlan plan_;
  LatentState state_;
};

}  // namespace

TensorView GradientFiles::like(const std::string& name, const ConstTensorView& view) {
  if (!view) return {};
  return files_.emplace_back(name, Tensor(view.dtype(), view.shape())).second.view();
}

TensorView GradientFiles::find(const std::string& name) const {
  for (const auto& [known, tensor] : files_) {
    if (known == name) return tensor;
  }
  return {};
}

std::unique_ptr<Mechanism> make_mechanism(const AttendOptions& o, const AttendCall& call) {
  if (o.is_latent()) return std::make_unique<Latent>(o, call);
  if (call.lambda) return std::make_unique<Differential>(o, call);
  return std::make_unique<Plain>(o, call);
}

}  // namespace fovea::cli

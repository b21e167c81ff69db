#include "fovea/mechanisms/differential.h"

#include <limits>
#include <utility>
#include <vector>

#include "plan/call.h"
#include "plan/rows.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

// Heads half, half + 2, half + 4, ...
template <class Byte>
BasicTensorView<Byte> half_of(const BasicTensorView<Byte>& view, int half) {
  if (!view) return view;
  const std::int64_t strides[] = {view.stride(0), 2 * view.stride(1), view.stride(2), view.stride(3)};
  return {view.raw() + half * view.stride(1) * static_cast<std::int64_t>(size_of(view.dtype())), view.dtype(),
          Shape{view.size(0), view.size(1) / 2, view.size(2), view.size(3)}, strides};
}

AttentionInputs half_of(const AttentionInputs& inputs, int half) {
  AttentionInputs result = inputs;
  result.query = half_of(inputs.query, half);
  result.key = half_of(inputs.key, half);
  return result;
}

void check_heads(const char* function, const char* argument, const ConstTensorView& view,
                 std::int64_t heads) {
  check_four_axes(function, argument, view, "[batch, twice the heads, length, dim]");
  if (view.size(1) != 2 * heads)
    throw InvalidArgument(function, argument, std::to_string(2 * heads) + " heads, twice the plan's",
                          std::to_string(view.size(1)));
}

Shape output_shape(const AttentionPlan& plan, const DifferentialInputs& inputs) {
  return {inputs.attention.query.size(0), plan.shape().num_query_heads, inputs.attention.query.size(2),
          plan.shape().value_dim};
}

void check_inputs(const char* function, const AttentionPlan& plan, const DifferentialInputs& inputs,
                  const AttentionGradients* gradients = nullptr) {
  check_heads(function, "query", inputs.attention.query, plan.shape().num_query_heads);
  check_heads(function, "key", inputs.attention.key, plan.shape().num_kv_heads);
  check_contiguous(function, "lambda", inputs.lambda, wide_dtype(plan.dtype()),
                   {plan.shape().num_query_heads});
  const AttentionInputs half = half_of(inputs.attention, 0);
  const Call call = call_of(function, plan.impl(), half, gradients);
  fovea::check_inputs(function, plan.impl(), call);
  if (gradients) check_argument_gradients(function, plan.impl(), call);
}

// to = first - lambda_h · second; if `first` is empty, -lambda_h · second.
template <class T>
void combine(const ConstTensorView* first, const ConstTensorView& second, const Wide<T>* lambda,
             const TensorView& to, Executor& executor) {
  const auto y = operand_of<T>(second);
  const auto x = first ? operand_of<T>(*first) : y;
  const auto result = operand_of<T>(to);
  const std::int64_t dim = to.size(3);
  for_rows(rows_of(to), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const Wide<T> taken = lambda[h] * static_cast<Wide<T>>(y.row(b, h, r)[d]),
                    from = first ? static_cast<Wide<T>>(x.row(b, h, r)[d]) : Wide<T>{0};
      result.row(b, h, r)[d] = static_cast<T>(from - taken);
    }
  });
}

// d lambda_h = -Σ ⟨dO, O_2⟩, summed in double, because many terms have opposite signs.
template <class T>
void lambda_gradient(const DifferentialState& state, const ConstTensorView& d_output, Wide<T>* gradient,
                     Executor& executor) {
  using W = Wide<T>;
  const auto d = operand_of<T>(d_output);
  const auto second = operand_of<T>(ConstTensorView(state.output[1]));
  const W* log_sum_exp = state.log_sum_exp[1].data<W>();
  const std::int64_t heads = d_output.size(1), rows = d_output.size(2), dim = d_output.size(3);
  executor.parallel_for(heads, [&](std::int64_t h, int) {
    double sum = 0.0;
    for (std::int64_t b = 0; b < d_output.size(0); ++b) {
      for (std::int64_t r = 0; r < rows; ++r) {
        // The row saw no key, and d_output may be NaN.
        if (log_sum_exp[(b * heads + h) * rows + r] == -std::numeric_limits<W>::infinity()) continue;
        for (std::int64_t e = 0; e < dim; ++e)
          sum -= static_cast<double>(static_cast<W>(d.row(b, h, r)[e])) *
                 static_cast<double>(static_cast<W>(second.row(b, h, r)[e]));
      }
    }
    gradient[h] = static_cast<W>(sum);
  });
}

// The gradients that are sums over both halves: those of the values and of the arguments. The first half
// writes to the caller's views, the second half to tensors of this object. `add` adds these tensors to the
// caller's views.
class SharedGradients {
 public:
  explicit SharedGradients(const AttentionGradients& first) {
    second_.value = own(first.value);
    for (const NamedArgument<TensorView>& gradient : first.arguments.all())
      second_.arguments.set(gradient.name, own(gradient.view));
  }
  const AttentionGradients& second() const { return second_; }
  void add(Executor& executor) const {
    for (const auto& [wanted, owned] : pairs_) add_rows(owned, wanted, executor);
  }

 private:
  TensorView own(const TensorView& wanted) {
    if (!wanted) return {};
    pairs_.emplace_back(wanted, Tensor(wanted.dtype(), wanted.shape()));
    return pairs_.back().second;
  }
  std::vector<std::pair<TensorView, Tensor>> pairs_;
  AttentionGradients second_;
};

void check_backward(const char* function, const AttentionPlan& plan, const DifferentialInputs& inputs,
                    const DifferentialState& state, const ConstTensorView& d_output,
                    const DifferentialGradients& gradients) {
  check_inputs(function, plan, inputs, &gradients.attention);
  const Shape outputs = output_shape(plan, inputs);
  const DType wide = wide_dtype(plan.dtype());
  for (int half = 0; half < 2; ++half) {
    check_contiguous(function, "state.output", state.output[half], plan.dtype(), outputs);
    check_contiguous(function, "state.log_sum_exp", state.log_sum_exp[half], wide,
                     {outputs[0], outputs[1], outputs[2]});
  }
  check_view(function, "d_output", d_output, plan.dtype(), outputs);
  if (const TensorView& query = gradients.attention.query; query)
    check_output(function, "gradients.query", query, plan.dtype(), inputs.attention.query.shape(),
                 inputs.attention);
  if (const TensorView& key = gradients.attention.key; key)
    check_output(function, "gradients.key", key, plan.dtype(), inputs.attention.key.shape(),
                 inputs.attention);
  OverlapCheck memory(function);
  if (gradients.lambda) {
    check_output(function, "gradients.lambda", gradients.lambda, wide, inputs.lambda.shape(),
                 inputs.attention);
    check_contiguous(function, "gradients.lambda", gradients.lambda, wide, inputs.lambda.shape());
    memory.writes("gradients.lambda", gradients.lambda);
  }
  memory.writes("gradients.query", gradients.attention.query);
  memory.writes("gradients.key", gradients.attention.key);
  memory.writes("gradients.value", gradients.attention.value);
  memory.reads("lambda", inputs.lambda);
  memory.reads("d_output", d_output);
  for (const Tensor& output : state.output) memory.reads("state.output", output);
  for (const Tensor& log_sum_exp : state.log_sum_exp) memory.reads("state.log_sum_exp", log_sum_exp);
  memory.check();
}

}  // namespace

DifferentialState attend_differential(const AttentionPlan& plan, const DifferentialInputs& inputs,
                                      TensorView output, const CallResources& resources) {
  const char* function = "attend_differential";
  check_inputs(function, plan, inputs);
  const Shape outputs = output_shape(plan, inputs);
  check_output(function, "output", output, plan.dtype(), outputs, inputs.attention);
  OverlapCheck memory(function);
  memory.writes("output", output);
  memory.reads("lambda", inputs.lambda);
  memory.reads(inputs.attention.arguments);
  memory.check();
  DifferentialState state;
  for (int half = 0; half < 2; ++half) {
    state.output[half] = Tensor(plan.dtype(), outputs);
    state.log_sum_exp[half] = Tensor(wide_dtype(plan.dtype()), {outputs[0], outputs[1], outputs[2]});
    attend(plan, half_of(inputs.attention, half),
           {.output = state.output[half], .log_sum_exp = state.log_sum_exp[half]}, resources);
  }
  Executor& executor = executor_of(resources);
  with_type(plan.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const ConstTensorView first = state.output[0];
    combine<T>(&first, state.output[1], inputs.lambda.data<Wide<T>>(), output, executor);
  });
  return state;
}

void attend_differential_backward(const AttentionPlan& plan, const DifferentialInputs& inputs,
                                  const DifferentialState& state, ConstTensorView d_output,
                                  const DifferentialGradients& gradients, const CallResources& resources) {
  check_backward("attend_differential_backward", plan, inputs, state, d_output, gradients);
  Executor& executor = executor_of(resources);
  const SharedGradients shared(gradients.attention);
  AttentionGradients first = gradients.attention, second = shared.second();
  first.query = half_of(gradients.attention.query, 0);
  first.key = half_of(gradients.attention.key, 0);
  second.query = half_of(gradients.attention.query, 1);
  second.key = half_of(gradients.attention.key, 1);
  attend_backward(plan, half_of(inputs.attention, 0), state.output[0], state.log_sum_exp[0], d_output, first,
                  resources);
  const Tensor d_second(plan.dtype(), d_output.shape());
  with_type(plan.dtype(), [&](auto zero) {
    using T = decltype(zero);
    combine<T>(nullptr, d_output, inputs.lambda.data<Wide<T>>(), d_second, executor);
  });
  attend_backward(plan, half_of(inputs.attention, 1), state.output[1], state.log_sum_exp[1], d_second, second,
                  resources);
  shared.add(executor);
  if (!gradients.lambda) return;
  with_type(plan.dtype(), [&](auto zero) {
    using T = decltype(zero);
    lambda_gradient<T>(state, d_output, gradients.lambda.data<Wide<T>>(), executor);
  });
}

}  // namespace fovea

#include "fovea/mechanisms/gate.h"

#include <cmath>
#include <initializer_list>
#include <utility>

#include "plan/call.h"
#include "plan/rows.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

// σ(x) and its derivative, without overflow and without cancellation.
template <class W>
struct SigmoidAt {
  W value{0}, slope{0};
  SigmoidAt() = default;
  explicit SigmoidAt(W x) {
    const W e = std::exp(-std::abs(x)), sum = W{1} + e;
    value = (x < W{0} ? e : W{1}) / sum;
    slope = e / (sum * sum);
  }
};

void check_inputs(const char* function, const ConstTensorView& output, const ConstTensorView& gate) {
  check_four_axes(function, "output", output, "[batch, heads, query_len, value_dim]");
  check_view(function, "output", output, output.dtype(), output.shape());
  check_four_axes(function, "gate", gate, "[batch, heads, query_len, value_dim or 1]");
  const std::int64_t width = gate.size(3) == 1 ? 1 : output.size(3);
  check_view(function, "gate", gate, output.dtype(), {output.size(0), output.size(1), output.size(2), width});
}

// An element is read before it is written, so the written view may be the same as `may_be`.
void check_written(const char* function, const char* argument, const TensorView& written,
                   const ConstTensorView& like, const ConstTensorView& may_be,
                   std::initializer_list<std::pair<const char*, ConstTensorView>> read) {
  check_output(function, argument, written, like.dtype(), like.shape(), {});
  OverlapCheck memory(function);
  memory.writes(argument, written);
  for (const auto& [name, view] : read) {
    if (!(same_view(view, may_be) && same_view(view, written))) memory.reads(name, view);
  }
  memory.check();
}

template <class T>
void forward(const ConstTensorView& output, const ConstTensorView& gate, const TensorView& gated,
             Executor& executor) {
  using W = Wide<T>;
  const auto o = operand_of<T>(output), g = operand_of<T>(gate);
  const auto y = operand_of<T>(gated);
  const std::int64_t dim = output.size(3);
  const bool headwise = gate.size(3) == 1;
  for_rows(rows_of(output), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    SigmoidAt<W> sigmoid;
    for (std::int64_t d = 0; d < dim; ++d) {
      if (d == 0 || !headwise) sigmoid = SigmoidAt<W>(static_cast<W>(g.row(b, h, r)[d]));
      y.row(b, h, r)[d] = static_cast<T>(static_cast<W>(o.row(b, h, r)[d]) * sigmoid.value);
    }
  });
}

template <class T>
void backward(const ConstTensorView& output, const ConstTensorView& gate, const ConstTensorView& d_gated,
              const GateGradients& gradients, Executor& executor) {
  using W = Wide<T>;
  const auto o = operand_of<T>(output), g = operand_of<T>(gate), dy = operand_of<T>(d_gated);
  const auto d_output = gradients.output ? operand_of<T>(gradients.output) : kernels::Operand<T*>{};
  const auto d_gate = gradients.gate ? operand_of<T>(gradients.gate) : kernels::Operand<T*>{};
  const std::int64_t dim = output.size(3);
  const bool headwise = gate.size(3) == 1;
  for_rows(rows_of(output), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    W sum{0};
    SigmoidAt<W> sigmoid;
    for (std::int64_t d = 0; d < dim; ++d) {
      if (d == 0 || !headwise) sigmoid = SigmoidAt<W>(static_cast<W>(g.row(b, h, r)[d]));
      const W from = static_cast<W>(dy.row(b, h, r)[d]),
              by_gate = from * static_cast<W>(o.row(b, h, r)[d]) * sigmoid.slope;
      if (d_output.data) d_output.row(b, h, r)[d] = static_cast<T>(from * sigmoid.value);
      if (d_gate.data && !headwise) d_gate.row(b, h, r)[d] = static_cast<T>(by_gate);
      sum += by_gate;
    }
    if (d_gate.data && headwise) d_gate.row(b, h, r)[0] = static_cast<T>(sum);
  });
}

}  // namespace

void gate_output(ConstTensorView output, ConstTensorView gate, TensorView gated,
                 const CallResources& resources) {
  const char* function = "gate_output";
  check_inputs(function, output, gate);
  check_written(function, "gated", gated, output, output, {{"output", output}, {"gate", gate}});
  Executor& executor = executor_of(resources);
  with_type(output.dtype(), [&](auto zero) { forward<decltype(zero)>(output, gate, gated, executor); });
}

void gate_output_backward(ConstTensorView output, ConstTensorView gate, ConstTensorView d_gated,
                          const GateGradients& gradients, const CallResources& resources) {
  const char* function = "gate_output_backward";
  check_inputs(function, output, gate);
  check_view(function, "d_gated", d_gated, output.dtype(), output.shape());
  if (gradients.output)
    check_written(
        function, "gradients.output", gradients.output, output, d_gated,
        {{"output", output}, {"gate", gate}, {"d_gated", d_gated}, {"gradients.gate", gradients.gate}});
  if (gradients.gate)
    check_written(function, "gradients.gate", gradients.gate, gate, {},
                  {{"output", output}, {"gate", gate}, {"d_gated", d_gated}});
  Executor& executor = executor_of(resources);
  with_type(output.dtype(),
            [&](auto zero) { backward<decltype(zero)>(output, gate, d_gated, gradients, executor); });
}

}  // namespace fovea

// The gate on attention's output: its limits, its definition, and central differences, also through the
// attention.
#include "fovea/mechanisms/gate.h"

#include <gtest/gtest.h>

#include "plan/differences.h"

namespace fovea::testing {
namespace {

const Shape rows{2, 3, 40, 5}, one_a_head{2, 3, 40, 1};

TEST(Gate, IsItsDefinition) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f64, 1e-15}, {DType::f32, 1e-6}, {DType::f16, 1e-3}, {DType::bf16, 8e-3}}) {
    for (const Shape& shape : {rows, one_a_head}) {
      const Tensor output = random_tensor(dtype, rows, 1), gate = random_tensor(dtype, shape, 2),
                   gated = unwritten(dtype, rows);
      for (std::int64_t i = 0; i < gate.count(); ++i) set_element(gate, i, 8 * element(gate, i));
      gate_output(output, gate, gated);
      for (std::int64_t i = 0; i < output.count(); ++i) {
        const double g = element(gate, i / (rows[3] / shape[3]));
        ASSERT_NEAR(element(gated, i), element(output, i) / (1 + std::exp(-g)), tolerance) << i;
      }
    }
  }
}

// An open gate gives plain attention to the bit, a closed gate 0. Neither overflows, forward or backward.
TEST(Gate, AnOpenGateIsPlainAttention) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor output = random_tensor(dtype, rows, 1), d_gated = random_tensor(dtype, rows, 2),
                 zero = Tensor::zeros(dtype, rows);
    for (const double at : {60000.0, -60000.0}) {
      Tensor gate(dtype, rows);
      gate.fill(at);
      const Tensor gated = unwritten(dtype, rows), d_output = unwritten(dtype, rows),
                   d_gate = unwritten(dtype, rows);
      gate_output(output, gate, gated);
      gate_output_backward(output, gate, d_gated, {.output = d_output, .gate = d_gate});
      expect_near(gated, at > 0 ? output : zero, 0.0, "gated");
      expect_near(d_output, at > 0 ? d_gated : zero, 0.0, "d_output");
      expect_near(d_gate, zero, 0.0, "d_gate");
    }
  }
}

// The derivatives by query, key, value and gate, through the attention below.
TEST(Gate, GradientsAreDerivatives) {
  const std::int64_t B = 1, H = 2, Q = 4, K = 6, D = 3;
  const Shape queries{B, H, Q, D}, keys{B, H, K, D};
  const AttentionPlan plan = make_plan({.mask = Causal{}},
                                       {.batch = B,
                                        .num_query_heads = H,
                                        .num_kv_heads = H,
                                        .query_len = Q,
                                        .key_len = K,
                                        .head_dim = D,
                                        .value_dim = D},
                                       {.dtype = DType::f64});
  for (const std::int64_t width : {D, std::int64_t{1}}) {
    const Tensor query = random_tensor(DType::f64, queries, 1), key = random_tensor(DType::f64, keys, 2),
                 value = random_tensor(DType::f64, keys, 3),
                 gate = random_tensor(DType::f64, {B, H, Q, width}, 4),
                 d_gated = random_tensor(DType::f64, queries, 5), output(DType::f64, queries),
                 lse(DType::f64, {B, H, Q}), gated(DType::f64, queries);
    const AttentionInputs in{.query = query, .key = key, .value = value};
    const auto loss = [&] {
      attend(plan, in, {.output = output, .log_sum_exp = lse});
      gate_output(output, gate, gated);
      return inner_product(gated, d_gated);
    };
    loss();
    const Tensor d_query = unwritten_like(query), d_key = unwritten_like(key),
                 d_value = unwritten_like(value), d_gate = unwritten_like(gate), d_output = d_gated.clone();
    gate_output_backward(output, gate, d_output, {.output = d_output, .gate = d_gate});  // in place
    attend_backward(plan, in, output, lse, d_output, {.query = d_query, .key = d_key, .value = d_value});
    expect_derivatives(
        loss,
        {{"query", query, d_query}, {"key", key, d_key}, {"value", value, d_value}, {"gate", gate, d_gate}});
  }
}

TEST(Gate, SameBitsForEveryThreadCount) {
  expect_same_bits_for_every_thread_count([](Executor& executor) {
    const Tensor output = random_tensor(DType::f32, rows, 1), gate = random_tensor(DType::f32, one_a_head, 2),
                 gated = output.clone(), d_output = unwritten_like(output), d_gate = unwritten_like(gate);
    gate_output(gated, gate, gated, {.executor = &executor});  // in place
    gate_output_backward(output, gate, gated, {.output = d_output, .gate = d_gate}, {.executor = &executor});
    return std::vector<Tensor>{gated, d_output, d_gate};
  });
}

TEST(Gate, RefusesInvalidArguments) {
  const Tensor output(DType::f32, rows), gate(DType::f32, one_a_head), gated(DType::f32, rows),
      two(DType::f32, {2, 3, 40, 2}), wide(DType::f64, rows), flat(DType::f32, {2, 3, 40});
  const auto forward = [](const ConstTensorView& o, const ConstTensorView& g, const TensorView& y) {
    return [=] { gate_output(o, g, y); };
  };
  EXPECT_NO_THROW(forward(output, gate, gated)());
  expect_refused(forward(flat, gate, gated), "gate_output", "output");
  expect_refused(forward(output, two, gated), "gate_output", "gate");
  expect_refused(forward(output, wide, gated), "gate_output", "gate");
  expect_refused(forward(output, flat, gated), "gate_output", "gate");
  expect_refused(forward(output, gate, two), "gate_output", "gated");
  expect_refused(forward(output, gated, gated), "gate_output", "gated");
  const auto backward = [&](const ConstTensorView& d, const GateGradients& g) {
    return [&output, &gate, d, g] { gate_output_backward(output, gate, d, g); };
  };
  const char* name = "gate_output_backward";
  const Tensor d_gate(DType::f32, one_a_head);
  EXPECT_NO_THROW(backward(gated, {.output = gated, .gate = d_gate})());
  expect_refused(backward(two, {}), name, "d_gated");
  expect_refused(backward(gated, {.output = two, .gate = {}}), name, "gradients.output");
  expect_refused(backward(gated, {.output = output, .gate = {}}), name, "gradients.output");
  expect_refused(backward(gated, {.output = {}, .gate = gated}), name, "gradients.gate");
  expect_refused(backward(gated, {.output = {}, .gate = gate}), name, "gradients.gate");
}

}  // namespace
}  // namespace fovea::testing

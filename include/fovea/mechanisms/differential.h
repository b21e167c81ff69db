// Here are mechanisms that are composed of calls of attend, with their backward passes. Their layers are in
// nn/. Open gate.h first: it is the shortest.
//
// Differential attention subtracts two softmaxes, so that the noise common to both cancels (Ye et al. 2024,
// arXiv 2410.05258, section 2.1): O_h = (A(q_2h, k_2h) - lambda_h A(q_2h+1, k_2h+1)) V_h.
#pragma once

#include <array>

#include "fovea/plan/plan.h"

namespace fovea {

/// Heads 2h and 2h + 1 of query and key are the first and the second half of head h. The plan is made for the
/// H heads of the output, so that its mask, mods, parameters, sink and dropout serve both halves alike.
struct DifferentialInputs {
  /// query [batch, 2·num_query_heads, query_len, head_dim], key [batch, 2·num_kv_heads, key_len, key_dim],
  /// value [batch, num_kv_heads, key_len, value_dim]. Everything else is as in a call of attend.
  AttentionInputs attention;
  /// [num_query_heads], f32 (f64 for f64), contiguous. The caller computes the paper's exp(λ_q1·λ_k1) -
  /// exp(λ_q2·λ_k2) + λ_init.
  ConstTensorView lambda;
};

/// The results of both halves, which the backward pass needs: [batch, num_query_heads, query_len, value_dim]
/// each in the plan's dtype, and their log-sum-exps in f32 (f64 for f64).
struct DifferentialState {
  std::array<Tensor, 2> output, log_sum_exp;
};

/// The gradients of attend_backward, query and key with the doubled heads of the inputs. Inputs that both
/// halves share (value, parameters, sink, arguments of mods) get the sum of both gradients.
struct DifferentialGradients {
  AttentionGradients attention;
  TensorView lambda = {};  ///< [num_query_heads], f32 (f64 for f64), contiguous
};

/// output [batch, num_query_heads, query_len, value_dim] ← the difference. Nothing is copied: the halves are
/// views with a doubled head stride. A row that sees no key gives 0. Dropout decides by position, hence alike
/// in both halves. Allocates only the state and attend's own workspace. Throws InvalidArgument for inputs
/// that do not fit the plan. If only one half shows the error, the text is attend's.
DifferentialState attend_differential(const AttentionPlan& plan, const DifferentialInputs& inputs,
                                      TensorView output, const CallResources& resources = {});

/// Gradients of a scalar loss whose derivative by the output is `d_output`. Leave a view empty if its
/// gradient is not wanted. The bits do not depend on the number of threads. Allocates the second half's
/// d_output and a second copy of the gradients that both halves share.
void attend_differential_backward(const AttentionPlan& plan, const DifferentialInputs& inputs,
                                  const DifferentialState& state, ConstTensorView d_output,
                                  const DifferentialGradients& gradients,
                                  const CallResources& resources = {});

}  // namespace fovea

// Differential attention: what two softmaxes have in common is noise, and is taken away (Ye et al. 2024,
// arXiv 2410.05258, section 2.1): O_h = (A(q_2h, k_2h) - lambda_h A(q_2h+1, k_2h+1)) V_h.
#pragma once

#include <array>

#include "fovea/plan/plan.h"

namespace fovea {

/// Heads 2h and 2h + 1 of query and key are the first and the second half of head h; the plan is one for the
/// H heads of the output, so that its mask, mods, parameters, sink and dropout serve both halves alike.
struct DifferentialInputs {
  /// query [batch, 2·num_query_heads, query_len, head_dim], key [batch, 2·num_kv_heads, key_len, key_dim],
  /// value [batch, num_kv_heads, key_len, value_dim]; everything else as in a call of attend.
  AttentionInputs attention;
  /// [num_query_heads], f32 (f64 for f64), contiguous. The paper's exp(λ_q1·λ_k1) - exp(λ_q2·λ_k2) + λ_init
  /// is the caller's.
  ConstTensorView lambda;
};

/// Both halves' results, which the backward needs: [batch, num_query_heads, query_len, value_dim] each in the
/// plan's dtype, and their log-sum-exps in f32 (f64 for f64).
struct DifferentialState {
  std::array<Tensor, 2> output, log_sum_exp;
};

/// Those of attend_backward, query and key with the doubled heads of the inputs. What both halves share
/// (value, parameters, sink, arguments of mods) gets the sum of both.
struct DifferentialGradients {
  AttentionGradients attention;
  TensorView lambda = {};  ///< [num_query_heads], f32 (f64 for f64), contiguous
};

/// output [batch, num_query_heads, query_len, value_dim] ← the difference. Nothing is copied: the halves are
/// views with a doubled head stride. A row that sees no key gives 0. Dropout decides by position, hence alike
/// in both halves. The state is the only memory taken (and attend's own workspace). Throws InvalidArgument
/// for what does not fit the plan; what only one half shows, in the words of attend.
DifferentialState attend_differential(const AttentionPlan& plan, const DifferentialInputs& inputs,
                                      TensorView output, const CallResources& resources = {});

/// Gradients of a scalar loss whose derivative by the output is `d_output`. An empty view is "not wanted".
/// Same bits for every thread count; takes memory for the second half's d_output and what both halves share.
void attend_differential_backward(const AttentionPlan& plan, const DifferentialInputs& inputs,
                                  const DifferentialState& state, ConstTensorView d_output,
                                  const DifferentialGradients& gradients,
                                  const CallResources& resources = {});

}  // namespace fovea

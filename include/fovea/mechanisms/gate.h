// Gated attention multiplies the output by a sigmoid of a gate computed from the query's token (Qiu et al.
// 2025, arXiv 2505.06708, section 2.2, "G1"): Y = O ∘ σ(G). The caller computes G = X W_g.
#pragma once

#include "fovea/plan/plan.h"

namespace fovea {

/// gated ← output ∘ σ(gate). output and gated are [batch, num_query_heads, query_len, value_dim]. gate has
/// the same shape ("elementwise"), or is [batch, num_query_heads, query_len, 1] ("headwise"). All have one
/// dtype (f32, f64, bf16, f16) and any strides with contiguous innermost axes. Computed in f32 (f64 for f64).
/// gated may be the same view as output if no gradient is wanted. Allocates nothing. Throws InvalidArgument
/// for wrong shapes, dtypes or strides, and for any other shared memory.
void gate_output(ConstTensorView output, ConstTensorView gate, TensorView gated,
                 const CallResources& resources = {});

/// Leave a view empty if its gradient is not wanted.
struct GateGradients {
  TensorView output;  ///< the shape of output; attend_backward takes it as its d_output
  TensorView gate;    ///< the shape of gate
};

/// Gradients of a scalar loss whose derivative by gated is `d_gated`. output is the input of gate_output.
/// gradients.output may be the same view as d_gated. Allocates nothing. The bits do not depend on the number
/// of threads.
void gate_output_backward(ConstTensorView output, ConstTensorView gate, ConstTensorView d_gated,
                          const GateGradients& gradients, const CallResources& resources = {});

}  // namespace fovea

// Gated attention: the output times a sigmoid of a gate that the query's token sets (Qiu et al. 2025, arXiv
// 2505.06708, section 2.2, "G1"): Y = O ∘ σ(G), with G = X W_g the caller's.
#pragma once

#include "fovea/plan/plan.h"

namespace fovea {

/// gated ← output ∘ σ(gate). output and gated [batch, num_query_heads, query_len, value_dim]; gate the same
/// ("elementwise"), or [batch, num_query_heads, query_len, 1] ("headwise"); all of one dtype (f32, f64, bf16,
/// f16), any strides with contiguous innermost axes; computed in f32 (f64 for f64). gated may be the very
/// view of output where no gradient is wanted. Takes no memory. Throws InvalidArgument for shapes, dtypes,
/// strides or memory shared otherwise.
void gate_output(ConstTensorView output, ConstTensorView gate, TensorView gated,
                 const CallResources& resources = {});

/// An empty view is "not wanted".
struct GateGradients {
  TensorView output;  ///< the shape of output: what attend_backward takes as its d_output
  TensorView gate;    ///< the shape of gate
};

/// Gradients of a scalar loss whose derivative by gated is `d_gated`; output is what gate_output was given.
/// gradients.output may be the very view of d_gated. Takes no memory; same bits for every thread count.
void gate_output_backward(ConstTensorView output, ConstTensorView gate, ConstTensorView d_gated,
                          const GateGradients& gradients, const CallResources& resources = {});

}  // namespace fovea

// The centers of Luong's local-p attention, which say where a query looks (Luong et al. 2015, arXiv
// 1508.04025, section 3.2, eq. 9): p = S·σ(vᵀ tanh(W q)). The mods LocalWindow and LocalGaussian take the
// centers as an argument. They make the window |j - p| ≤ D and multiply the weights by exp(-(j - p)² / 2σ²).
#pragma once

#include <cstdint>
#include <span>

#include "fovea/plan/plan.h"

namespace fovea {

struct LocalInputs {
  ConstTensorView query;  ///< [batch, heads, query_len, head_dim], f32, f64, bf16 or f16
  /// W_p: [hidden, head_dim], or [heads, hidden, head_dim]; f32 (f64 for f64), contiguous innermost axis.
  ConstTensorView W;
  ConstTensorView v;  ///< v_p: [hidden], or [heads, hidden]; dtype as W
  /// S, the length of every batch entry, in keys.
  std::int64_t key_len = 0;
  /// S of each batch entry if they differ, in [0, key_len].
  std::span<const std::int64_t> key_lengths = {};
};

/// The centers [batch, heads, query_len, 1], f32 (f64 for f64), in (0, S), counted in keys: an argument of a
/// mod. Allocates `hidden` elements a query. Throws InvalidArgument for wrong shapes, dtypes, strides and
/// lengths.
Tensor local_centers(const LocalInputs& inputs, const CallResources& resources = {});

/// Each has the shape of its input and is contiguous (query: any strides with contiguous innermost axis).
/// Leave a view empty if its gradient is not wanted.
struct LocalGradients {
  TensorView query;  ///< in the dtype of the query
  TensorView W, v;   ///< f32 (f64 for f64)
  /// Is added to the gradient written to `query`: the derivative by the same query along another path, such
  /// as its scores. May be the same view as `query`. Empty: nothing is added.
  ConstTensorView query_before = {};
};

/// Gradients of a scalar loss whose derivative by the centers is `d_centers`: [batch, heads, query_len, 1],
/// contiguous, as attend_backward gives it for the argument of a mod. A query whose d_centers is 0 adds
/// nothing, whatever it holds. The bits do not depend on the number of threads.
void local_centers_backward(const LocalInputs& inputs, ConstTensorView d_centers,
                            const LocalGradients& gradients, const CallResources& resources = {});

}  // namespace fovea

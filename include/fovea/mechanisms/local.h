// Where a query looks: the centres of Luong's local-p attention (Luong et al. 2015, arXiv 1508.04025, section
// 3.2, eq. 9): p = S·σ(vᵀ tanh(W q)). Mods that take centres as their argument make the window |j - p| ≤ D
// and the weights' factor exp(-(j - p)² / 2σ²) of them.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/plan/plan.h"

namespace fovea {

struct LocalInputs {
  ConstTensorView query;  ///< [batch, heads, query_len, head_dim], f32, f64, bf16 or f16
  /// W_p: [hidden, head_dim], or [heads, hidden, head_dim]; f32 (f64 for f64), contiguous innermost axis.
  ConstTensorView W;
  ConstTensorView v;  ///< v_p: [hidden], or [heads, hidden], as W
  /// S, the length of every batch entry in keys.
  std::int64_t key_len = 0;
  /// S for each batch entry where they differ, in [0, key_len].
  std::span<const std::int64_t> key_lengths = {};
};

/// centres [batch, heads, query_len, 1], f32 (f64 for f64), in (0, S), counted in keys: an argument of a mod.
/// Takes hidden elements a query of memory. Throws InvalidArgument for shapes, dtypes, strides and lengths.
Tensor local_centers(const LocalInputs& inputs, const CallResources& resources = {});

/// Each in the shape of its input and contiguous (query: any strides with contiguous innermost axis); an
/// empty view is "not wanted".
struct LocalGradients {
  TensorView query;  ///< in the dtype of the query
  TensorView W, v;   ///< f32 (f64 for f64)
  /// Added to what is written to `query`: the derivative by the same query along another way, such as its
  /// scores. May be the very view of `query`; empty: nothing.
  ConstTensorView query_before = {};
};

/// Gradients of a scalar loss whose derivative by the centres is `d_centers`, as attend_backward gives it for
/// the argument of a mod: [batch, heads, query_len, 1], contiguous. A query whose d_centers is 0 adds
/// nothing, whatever it holds. Same bits for every thread count.
void local_centers_backward(const LocalInputs& inputs, ConstTensorView d_centers,
                            const LocalGradients& gradients, const CallResources& resources = {});

}  // namespace fovea

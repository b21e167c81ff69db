// Relative keys: a separate score for every query and every distance, as the argument of the mod
// RelativeKeyBias. Transformer-XL (Dai et al. 2019, arXiv 1901.02860, section 3.3) scores a key at distance i
// - j by (q_i + u)·k_j + (q_i + w)·r_{i-j}:
//
//   const AttentionSpec spec{.mods = {RelativeKeyBias{max_distance}}, .mask = Causal{}};
//   const Tensor shifted = shifted_query(query, u);
//   const Tensor table = relative_key_table({.query = query, .offsets = r, .bias = w});
//   AttentionInputs inputs{.query = shifted, .key = key, .value = value};
//   inputs.arguments = {{"mods[0].table", table}};
//
// Without u and w it is Shaw et al. 2018 (arXiv 1803.02155), eq. 5. Mods come after the scale, so
// relative_key_table multiplies by the same scale. The score is scale·(q + u)·k + scale·(q + w)·r.
//
// Backward: attend_backward gives d_shifted and, for the mod's argument, d_table. relative_key_table_backward
// then gives the whole d_query, with d_shifted as its query_before.
#pragma once

#include <optional>

#include "fovea/plan/plan.h"

namespace fovea {

struct RelativeKeyInputs {
  ConstTensorView query;  ///< [batch, heads, query_len, head_dim], f32, f64, bf16 or f16
  /// r: [heads or 1, 2·max_distance + 1, head_dim], f32 (f64 for f64), contiguous innermost axis. Row
  /// max_distance + d belongs to keys d positions behind the query (ahead of it for negative d). The first
  /// and the last row also serve all keys that are farther away.
  ConstTensorView offsets;
  ConstTensorView bias = {};  ///< w: [heads, head_dim], dtype as offsets; empty: 0
  /// The scale of the spec. The default is 1/sqrt(head_dim), which is ScaledDot's (Dot's is 1).
  std::optional<double> scale = std::nullopt;
};

/// scale·(q + w)·r: [batch, heads, query_len, 2·max_distance + 1], f32 (f64 for f64). Allocates a copy of the
/// queries. Throws InvalidArgument for wrong shapes, dtypes and strides, and for a scale that is not finite.
Tensor relative_key_table(const RelativeKeyInputs& inputs, const CallResources& resources = {});

/// Each has the shape of its input and is contiguous (query: any strides with contiguous innermost axis).
/// Leave a view empty if its gradient is not wanted.
struct RelativeKeyGradients {
  TensorView query;          ///< in the dtype of the query
  TensorView offsets, bias;  ///< f32 (f64 for f64)
  /// Is added to the gradient written to `query`: d_shifted, the derivative along the products. May be the
  /// same view as `query`. Empty: nothing is added.
  ConstTensorView query_before = {};
};

/// Gradients of a scalar loss whose derivative by the table is `d_table`, contiguous, in the table's shape
/// and dtype. A query whose row of d_table is 0 adds nothing to the other gradients, whatever it holds. The
/// bits do not depend on the number of threads.
void relative_key_table_backward(const RelativeKeyInputs& inputs, ConstTensorView d_table,
                                 const RelativeKeyGradients& gradients, const CallResources& resources = {});

/// q + u in the dtype of the query: [batch, heads, query_len, head_dim] and [heads, head_dim], f32 (f64 for
/// f64). The derivative by q equals d_shifted. Throws InvalidArgument.
Tensor shifted_query(ConstTensorView query, ConstTensorView bias, const CallResources& resources = {});

/// d_bias [heads, head_dim], f32 (f64 for f64), contiguous ← Σ d_shifted over entries and rows, in their
/// order. This is the gradient of u.
void shifted_query_backward(ConstTensorView d_shifted, TensorView d_bias,
                            const CallResources& resources = {});

}  // namespace fovea

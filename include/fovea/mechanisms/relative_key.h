// Relative keys: a score of its own for every query and every distance, the argument of mod RelativeKeyBias.
// Transformer-XL (Dai et al. 2019, arXiv 1901.02860, section 3.3) scores a key at distance i - j by
// (q_i + u)·k_j + (q_i + w)·r_{i-j}:
//
//   const AttentionSpec spec{.mods = {RelativeKeyBias{max_distance}}, .mask = Causal{}};
//   const Tensor shifted = shifted_query(query, u);
//   const Tensor table = relative_key_table({.query = query, .offsets = r, .bias = w});
//   AttentionInputs inputs{.query = shifted, .key = key, .value = value};
//   inputs.arguments = {{"mods[0].table", table}};
//
// Without u and w it is Shaw et al. 2018 (arXiv 1803.02155), eq. 5. Mods come after the scale, so the table
// is scaled here, by what scales the products: the score is scale·(q + u)·k + scale·(q + w)·r.
//
// Backward: attend_backward gives d_shifted and, for the mod's argument, d_table;
// relative_key_table_backward with d_shifted as its query_before then gives the whole d_query.
#pragma once

#include <optional>

#include "fovea/plan/plan.h"

namespace fovea {

struct RelativeKeyInputs {
  ConstTensorView query;  ///< [batch, heads, query_len, head_dim], f32, f64, bf16 or f16
  /// r: [heads or 1, 2·max_distance + 1, head_dim], f32 (f64 for f64), contiguous innermost axis. Row
  /// max_distance + d belongs to keys d behind the query's position (ahead of it for negative d), the first
  /// and the last one to all that are farther too.
  ConstTensorView offsets;
  ConstTensorView bias = {};  ///< w: [heads, head_dim], as offsets; empty: 0
  /// That of the spec; by default 1/sqrt(head_dim), which is ScaledDot's (Dot's is 1).
  std::optional<double> scale = std::nullopt;
};

/// scale·(q + w)·r: [batch, heads, query_len, 2·max_distance + 1], f32 (f64 for f64). Takes the queries once
/// more of memory. Throws InvalidArgument for shapes, dtypes, strides and a scale that is not finite.
Tensor relative_key_table(const RelativeKeyInputs& inputs, const CallResources& resources = {});

/// Each in the shape of its input, contiguous (query: any strides with contiguous innermost axis); an empty
/// view is "not wanted".
struct RelativeKeyGradients {
  TensorView query;          ///< in the dtype of the query
  TensorView offsets, bias;  ///< f32 (f64 for f64)
  /// Added to what is written to `query`: d_shifted, the derivative along the products. May be the very view
  /// of `query`; empty: nothing.
  ConstTensorView query_before = {};
};

/// Gradients of a scalar loss whose derivative by the table is `d_table`, in the table's shape and dtype,
/// contiguous. A query whose row of d_table is 0 adds nothing to the others, whatever it holds. Same bits for
/// every thread count.
void relative_key_table_backward(const RelativeKeyInputs& inputs, ConstTensorView d_table,
                                 const RelativeKeyGradients& gradients, const CallResources& resources = {});

/// q + u in the dtype of the query: [batch, heads, query_len, head_dim] and [heads, head_dim], f32 (f64 for
/// f64). Its derivative by q is d_shifted itself. Throws InvalidArgument.
Tensor shifted_query(ConstTensorView query, ConstTensorView bias, const CallResources& resources = {});

/// d_bias [heads, head_dim], f32 (f64 for f64), contiguous ← Σ d_shifted over entries and rows, in their
/// order: what belongs to u.
void shifted_query_backward(ConstTensorView d_shifted, TensorView d_bias,
                            const CallResources& resources = {});

}  // namespace fovea

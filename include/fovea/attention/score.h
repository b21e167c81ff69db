// Scores: s(q, k), one number for a query and a key. A dot-like score (Dot, ScaledDot, Bilinear) is a matrix
// product; a pair score (Additive) has a kernel of its own. Parameters are tensors and arrive with each call
// (ScoreParameters), so that a plan can be shared while a model learns.
#pragma once

#include <variant>

#include "fovea/core/tensor.h"

namespace fovea {

/// s = q·k (Luong et al. 2015, arXiv 1508.04025, "dot"). Query and key have head_dim elements.
struct Dot {
  friend bool operator==(const Dot&, const Dot&) = default;
};

/// s = q·k / sqrt(head_dim) (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).
struct ScaledDot {
  friend bool operator==(const ScaledDot&, const ScaledDot&) = default;
};

/// s = kᵀ W q; W is [key_dim, query_dim], or [num_query_heads, key_dim, query_dim]. Luong's "general" W_a is
/// Wᵀ. Not symmetric in q and k.
struct Bilinear {
  friend bool operator==(const Bilinear&, const Bilinear&) = default;
};

/// s = vᵀ tanh(W q + U k + b) (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2). W is [hidden,
/// query_dim], U [hidden, key_dim], v [hidden], b [hidden]. Leave W (or U) out where the queries (or keys)
/// are already projected: then query_dim (or key_dim) is `hidden`, and a decoder pays for U k once a sentence
/// instead of once a step.
struct Additive {
  friend bool operator==(const Additive&, const Additive&) = default;
};

/// s = (U k)ᵀ(W q), a bilinear score whose matrix has rank `hidden` (Kim et al. 2016, arXiv 1610.04325): W is
/// [hidden, query_dim], U [hidden, key_dim]. Not symmetric in q and k.
struct LowRankBilinear {
  friend bool operator==(const LowRankBilinear&, const LowRankBilinear&) = default;
};

/// s_ij = (W q_i)_j: no keys are read (Luong et al. 2015, arXiv 1508.04025, "location"). W is [keys at most,
/// query_dim]; inputs.key stays empty.
struct Location {
  friend bool operator==(const Location&, const Location&) = default;
};

/// s_ij = vᵀ tanh(W q_i + U k_j + b + w c_ij), c_ij = Σ_{i' < i} P_i'j: what earlier queries of the call
/// looked at (See et al. 2017, arXiv 1704.04368, eq. 11). The rows of a head follow one another, backward
/// through them as through time, keeping about 2·√queries rows of keys a thread. Tensors as for Additive, and
/// w [hidden].
struct Coverage {
  friend bool operator==(const Coverage&, const Coverage&) = default;
};

using Score = std::variant<ScaledDot, Dot, Bilinear, Additive, LowRankBilinear, Location, Coverage>;

/// The tensors of a score; an empty view is "not given". Names of their gradients: "score.W", "score.U",
/// "score.v", "score.b", "score.w".
struct ScoreParameters {
  ConstTensorView W;  ///< Bilinear: [key_dim, query_dim] (or one a query head). Additive, LowRankBilinear:
                      ///< [hidden, query_dim]. Location: [at least key_len, query_dim].
  ConstTensorView U;  ///< Additive, LowRankBilinear: [hidden, key_dim].
  ConstTensorView v;  ///< Additive: [hidden].
  ConstTensorView b;  ///< Additive: [hidden], optional.
  ConstTensorView w = {};  ///< Coverage: [hidden].
};

/// The concat score, vᵀ tanh(W [q; k]) (Luong et al. 2015, arXiv 1508.04025), is the additive one with W
/// [hidden, query_dim + key_dim] cut in two. Views, so gradients go the same way.
inline ScoreParameters concat_parameters(ConstTensorView W, ConstTensorView v, std::int64_t query_dim) {
  if (W.rank() != 2 || query_dim < 0 || query_dim > W.size(1))
    throw InvalidArgument("concat_parameters", "query_dim",
                          "at most the columns of W " + to_string(W.shape()), std::to_string(query_dim));
  return {.W = W.slice(1, 0, query_dim), .U = W.slice(1, query_dim, W.size(1) - query_dim), .v = v, .b = {}};
}

}  // namespace fovea

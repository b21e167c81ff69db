// Scores: s(q, k), one number for a query and a key. Each is a struct with a definition: its name in the text
// form, its arguments, how rows of queries and keys are mapped, and how a kernel combines two rows. No other
// list of scores exists. Arguments are tensors that arrive with each call (argument.h), so that a plan can be
// shared while a model learns.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "fovea/attention/arguments.h"

namespace fovea {

struct ScoreDefinition;  // score_definition.h

/// s = q·k (Luong et al. 2015, arXiv 1508.04025, "dot"). Query and key have head_dim elements.
struct Dot {
  static const ScoreDefinition& definition();
  friend bool operator==(const Dot&, const Dot&) = default;
};

/// s = q·k / sqrt(head_dim) (Vaswani et al. 2017, arXiv 1706.03762, eq. 1).
struct ScaledDot {
  static const ScoreDefinition& definition();
  friend bool operator==(const ScaledDot&, const ScaledDot&) = default;
};

/// s = kᵀ W q; W is [key_dim, query_dim], or [num_query_heads, key_dim, query_dim]. Luong's "general" W_a is
/// Wᵀ. Not symmetric in q and k.
struct Bilinear {
  static const ScoreDefinition& definition();
  friend bool operator==(const Bilinear&, const Bilinear&) = default;
};

/// s = kᵀ(W q + b): a bilinear score, and a term by which a key may be attended to by any query (Dozat and
/// Manning 2017, arXiv 1611.01734, eq. 6, where b is u). W is [key_dim, query_dim], or
/// [num_query_heads, key_dim, query_dim], b [key_dim].
struct Biaffine {
  static const ScoreDefinition& definition();
  friend bool operator==(const Biaffine&, const Biaffine&) = default;
};

/// s = vᵀ tanh(W q + U k + b) (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2). W is [hidden,
/// query_dim], U [hidden, key_dim], v [hidden], b [hidden].
///
/// Leave W (or U) out if the queries (or keys) are already projected: then query_dim (or key_dim) is
/// `hidden`. A decoder then computes U k once a sentence instead of once a step.
struct Additive {
  static const ScoreDefinition& definition();
  friend bool operator==(const Additive&, const Additive&) = default;
};

/// s = (U k)ᵀ(W q), a bilinear score whose matrix has rank `hidden` (Kim et al. 2016, arXiv 1610.04325): W is
/// [hidden, query_dim], U [hidden, key_dim]. Not symmetric in q and k.
struct LowRankBilinear {
  static const ScoreDefinition& definition();
  friend bool operator==(const LowRankBilinear&, const LowRankBilinear&) = default;
};

/// s_ij = (W q_i)_j: no keys are read (Luong et al. 2015, arXiv 1508.04025, "location"). W is [n, query_dim],
/// where n is the most keys; the call has no key.
struct Location {
  static const ScoreDefinition& definition();
  friend bool operator==(const Location&, const Location&) = default;
};

/// s_ij = vᵀ tanh(W q_i + U k_j + b + w c_ij) with c_ij = Σ_{i' < i} P_i'j, the weight that earlier queries
/// of the call gave to key j (See et al. 2017, arXiv 1704.04368, eq. 11). Tensors as for Additive, and w
/// [hidden].
///
/// The rows of a head are computed one after the other. Backward goes through them in reverse order, as
/// through time, and keeps about 2·√queries rows of keys a thread.
struct Coverage {
  static const ScoreDefinition& definition();
  friend bool operator==(const Coverage&, const Coverage&) = default;
};

/// s = cos(q, k) / max(temperature, 0.01), with a learned temperature a query head (Swin Transformer V2, Liu
/// et al. 2022, arXiv 2111.09883, eq. 2). temperature is [num_query_heads]. A row of zeros has cosine 0 with
/// every row.
struct Cosine {
  static const ScoreDefinition& definition();
  friend bool operator==(const Cosine&, const Cosine&) = default;
};

/// s = (g_q ∘ q / rms(q))·(g_k ∘ k / rms(k)) / sqrt(head_dim), rms(x) = sqrt(mean x² + 1e-6). Queries and
/// keys are normalised, with learned gains that all heads share. Henry et al. 2020 (arXiv 2010.04245)
/// normalise by the length; Qwen3 and Gemma 3 by the root mean square. query_gain and key_gain are
/// [head_dim].
struct QkNorm {
  static const ScoreDefinition& definition();
  friend bool operator==(const QkNorm&, const QkNorm&) = default;
};

using Score = std::variant<ScaledDot, Dot, Bilinear, Biaffine, Additive, LowRankBilinear, Location, Coverage,
                           Cosine, QkNorm>;

inline const ScoreDefinition& definition(const Score& score) {
  return std::visit([]<class S>(const S&) -> const ScoreDefinition& { return S::definition(); }, score);
}

/// AttentionShape::hidden, as the given arguments of a score imply it; 0 if none of them does.
std::int64_t hidden_of(const Score& score, const Arguments& given);

/// The arguments of Additive that make the concat score, vᵀ tanh(W [q; k]) (Luong et al. 2015, arXiv
/// 1508.04025): W [hidden, query_dim + key_dim] is cut in two. The parts are views, so their gradients can be
/// views of one tensor too.
inline Arguments concat_arguments(ConstTensorView W, ConstTensorView v, std::int64_t query_dim) {
  if (W.rank() != 2 || query_dim < 0 || query_dim > W.size(1))
    throw InvalidArgument("concat_arguments", "query_dim", "at most the columns of W " + to_string(W.shape()),
                          std::to_string(query_dim));
  return {{"score.W", W.slice(1, 0, query_dim)},
          {"score.U", W.slice(1, query_dim, W.size(1) - query_dim)},
          {"score.v", v}};
}

}  // namespace fovea

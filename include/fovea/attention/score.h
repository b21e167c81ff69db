// Scores: s(q, k), one number for a query and a key. Each is a struct with a definition: its name in the text
// form, its arguments, how rows of queries and keys are mapped, and how a kernel combines two rows. No other
// list of scores exists. Arguments are tensors that arrive with each call (argument.h), so that a plan can be
// shared while a model learns.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "fovea/attention/argument.h"

namespace fovea {

/// How a kernel combines a row x made from the query and a row y made from the key.
enum class PairKind : std::uint8_t {
  product,   ///< x·y
  additive,  ///< vᵀ tanh(x + y); v is the argument `vector`
  coverage   ///< vᵀ tanh(x + y + w c); w is the argument `coverage`, c the sum of the weights of earlier
             ///< queries
};

/// How the rows of one operand are mapped before the kernel sees them: by a matrix, by a norm, or not at all.
/// The numbers are indices into ScoreDefinition::arguments; -1: there is none.
struct RowMap {
  enum class Norm : std::uint8_t {
    none,
    unit_length,      ///< x / max(|x|, 1e-12)
    root_mean_square  ///< x / sqrt(mean x² + 1e-6) (Zhang and Sennrich 2019, arXiv 1910.07467)
  };
  enum class Gain : std::uint8_t {
    factor,  ///< the normalised row is multiplied by the gain, [row_dim]
    divisor  ///< the normalised row is divided by max(gain, 0.01); the gain has one number a query head
  };
  int matrix = -1;  ///< W [out, in]: x becomes W x
  int bias = -1;    ///< b [out], is added
  Norm norm = Norm::none;
  int gain = -1;
  Gain gain_is = Gain::factor;
};

struct ScoreDefinition {
  const char* name = "";  ///< in the text form
  PairKind pair = PairKind::product;
  bool scaled_by_dim = false;  ///< the default scale is 1/sqrt(head_dim), not 1
  std::vector<ArgumentDeclaration> arguments = {};
  RowMap query = {}, key = {};
  int vector = -1, coverage = -1;  ///< arguments for PairKind
  int key_rows = -1;               ///< the argument whose rows replace the keys; the call then has no key

  /// Whether a matrix maps queries or keys, so that key_dim may differ from head_dim.
  bool has_matrix() const { return query.matrix >= 0 || key.matrix >= 0; }
  /// Whether the shape of an argument depends on AttentionShape::hidden.
  bool has_hidden() const;
};

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

using Score =
    std::variant<ScaledDot, Dot, Bilinear, Additive, LowRankBilinear, Location, Coverage, Cosine, QkNorm>;

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

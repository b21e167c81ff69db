// What defines a score.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/attention/score.h"

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

}  // namespace fovea

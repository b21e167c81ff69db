// Recurrences. A head keeps a matrix S [key_dim, value_dim], its state. Each token decays
// the state, writes to it and reads from it:
//
//   D = diag(e^g) S       g <= 0, the logarithm of the decay
//   S = D + write         from the token's key and value
//   o = scale · S^T q     the output of the token
//
// A mechanism is a choice of the parts below (RecurrenceSpec), as an attention is a choice of score, mask and
// normaliser. Nothing here computes; fovea/plan/recurrence.h does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "fovea/core/tensor.h"

namespace fovea {

/// The loops that kernels have: each part below says which of them computes it.
enum class WriteKind : std::uint8_t { additive, delta, low_rank };
enum class DecayKind : std::uint8_t { none, constant, scalar, key };
enum class ReadKind : std::uint8_t { after_write, before_decay, self_weight };

/// Queries and keys as they are.
struct IdentityFeatures {
  friend bool operator==(const IdentityFeatures&, const IdentityFeatures&) = default;
};
/// Each element x of queries and keys becomes elu(x) + 1: e^x below 0, x + 1 from 0 on (Katharopoulos et al.
/// 2020, arXiv 2006.16236).
struct EluPlusOne {
  friend bool operator==(const EluPlusOne&, const EluPlusOne&) = default;
};
using FeatureMap = std::variant<IdentityFeatures, EluPlusOne>;

/// g = 0: nothing is forgotten.
struct NoDecay {
  static constexpr DecayKind kind = DecayKind::none;
  friend bool operator==(const NoDecay&, const NoDecay&) = default;
};
/// One g for each head, log_decay [num_heads] (RetNet, arXiv 2307.08621; Lightning Attention, 2401.04658).
struct ConstantDecay {
  static constexpr DecayKind kind = DecayKind::constant;
  friend bool operator==(const ConstantDecay&, const ConstantDecay&) = default;
};
/// One g for each token and head, log_decay [batch, num_heads, len] (Mamba-2, arXiv 2405.21060; Gated
/// DeltaNet, 2412.06464).
struct ScalarDecay {
  static constexpr DecayKind kind = DecayKind::scalar;
  friend bool operator==(const ScalarDecay&, const ScalarDecay&) = default;
};
/// One g for each token, head and row of the state, log_decay [batch, num_heads, len, key_dim] (GLA, arXiv
/// 2312.06635; Kimi Delta Attention, 2510.26692; RWKV-7, 2503.14456).
struct KeyDecay {
  static constexpr DecayKind kind = DecayKind::key;
  friend bool operator==(const KeyDecay&, const KeyDecay&) = default;
};
using Decay = std::variant<NoDecay, ConstantDecay, ScalarDecay, KeyDecay>;

/// S = D + k v^T.
struct AdditiveWrite {
  static constexpr WriteKind kind = WriteKind::additive;
  friend bool operator==(const AdditiveWrite&, const AdditiveWrite&) = default;
};
/// S = D + k (y - D^T r)^T: what the state holds under r is replaced by y. r = beta·erase and y = beta·value,
/// where erase defaults to the key and beta to 1; a call brings at least one of them (DeltaNet, arXiv
/// 2406.06484). The state stays bounded while beta·|k|² <= 2 (arXiv 2411.12537). Nothing is clipped: the
/// caller chooses beta and norms.
struct DeltaWrite {
  static constexpr WriteKind kind = WriteKind::delta;
  friend bool operator==(const DeltaWrite&, const DeltaWrite&) = default;
};
/// S = D + b p^T + k v^T with p = S₋^T a, where S₋ is the state before the decay (RWKV-7, arXiv 2503.14456).
/// A call brings a and b.
struct DiagonalPlusLowRankWrite {
  static constexpr WriteKind kind = WriteKind::low_rank;
  friend bool operator==(const DiagonalPlusLowRankWrite&, const DiagonalPlusLowRankWrite&) = default;
};
using Write = std::variant<AdditiveWrite, DeltaWrite, DiagonalPlusLowRankWrite>;

/// o = scale · S^T q: a token reads what it has written.
struct AfterWrite {
  static constexpr ReadKind kind = ReadKind::after_write;
  friend bool operator==(const AfterWrite&, const AfterWrite&) = default;
};
/// o = scale · (S₋ + diag(u) k y^T)^T q: a token reads the state before its own decay and write. Of its own
/// pair it reads k and y, with a learned bonus u [num_heads, key_dim] (RWKV-6, arXiv 2404.05892). y is the
/// value, or DeltaWrite's target.
struct BeforeDecay {
  static constexpr ReadKind kind = ReadKind::before_decay;
  friend bool operator==(const BeforeDecay&, const BeforeDecay&) = default;
};
/// o = scale · (D + w k y^T)^T q: a token's own pair counts w, self_weight [batch, num_heads, len] (Mamba-3).
/// y is the value, or DeltaWrite's target.
struct SelfWeight {
  static constexpr ReadKind kind = ReadKind::self_weight;
  friend bool operator==(const SelfWeight&, const SelfWeight&) = default;
};
using Read = std::variant<AfterWrite, BeforeDecay, SelfWeight>;

struct NoNormalizer {
  friend bool operator==(const NoNormalizer&, const NoNormalizer&) = default;
};
/// The output is divided by n + epsilon, where n is what the query reads of the same recurrence with values
/// of 1 (arXiv 2006.16236 with epsilon 1e-6). The state has one more column, the last, which gives n.
/// Features should be positive, as those of EluPlusOne are: else n may come near -epsilon.
struct KeySum {
  double epsilon = 1e-6;
  friend bool operator==(const KeySum&, const KeySum&) = default;
};
using StateNormalizer = std::variant<NoNormalizer, KeySum>;

/// features → decay → write → read → normalise.
struct RecurrenceSpec {
  FeatureMap feature_map = IdentityFeatures{};
  Decay decay = NoDecay{};
  Write write = AdditiveWrite{};
  Read read = AfterWrite{};
  StateNormalizer normalizer = NoNormalizer{};
  /// Multiplies the queries, behind the features; by default 1/sqrt(key_dim).
  std::optional<double> scale = std::nullopt;
};

/// The largest sizes that a plan serves. batch and len are capacities: a call may bring fewer. Heads and
/// dimensions are exact.
///
/// Every head of num_heads keeps a state; values, gates, erase, a and b have num_heads heads. State head h
/// uses the key head h / (num_heads / num_key_heads). One of num_query_heads and num_heads divides the other.
/// With fewer query heads, state head h reads with the query head h / (num_heads / num_query_heads). With
/// more, query head h reads the state head h / (num_query_heads / num_heads). The output has the larger
/// number of heads.
struct RecurrenceShape {
  std::int64_t batch = 1;
  std::int64_t num_query_heads = 1;
  std::int64_t num_key_heads = 1;
  std::int64_t num_heads = 1;
  std::int64_t len = 0;      ///< tokens
  std::int64_t key_dim = 0;  ///< elements of a query and of a key
  /// Elements of a value. The default is key_dim.
  std::int64_t value_dim = as_key_dim;
  static constexpr std::int64_t as_key_dim = -1;

  std::int64_t num_output_heads() const noexcept {
    return num_query_heads > num_heads ? num_query_heads : num_heads;
  }
};

/// The shape with value_dim filled in. Throws InvalidArgument(function "make_recurrence_plan") that names the
/// wrong part: a size out of range, head counts that do not divide, numbers of the spec that make no sense.
RecurrenceShape checked_shape(const RecurrenceSpec& spec, const RecurrenceShape& shape);

/// [batch, num_heads, key_dim, columns]: the states of a call with `batch` sequences. The columns are
/// value_dim, and one more with KeySum. `shape` has its value_dim filled in.
Shape state_shape(const RecurrenceSpec& spec, const RecurrenceShape& shape, std::int64_t batch);

/// "elu+1 features, key decay, delta write, read after write, sum normaliser": one line for explain and for
/// names of tests.
std::string to_string(const RecurrenceSpec& spec);

}  // namespace fovea

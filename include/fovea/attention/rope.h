// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864): queries and keys are turned by angles that
// grow with their positions, so that a score depends on the difference of positions alone. Plain data here;
// the functions are in plan/rope.h, the text form in expression.h. Applied before `attend`, and when keys
// enter a cache; never a score mod.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace fovea {

/// Which two of the first `rotary_dim` elements form pair i, turned as the point (a, b) of a plane.
enum class RopeLayout : std::uint8_t {
  half_split,   ///< i and i + rotary_dim / 2: Llama, GPT-NeoX
  interleaved,  ///< 2i and 2i + 1: GPT-J, DeepSeek
};

/// The frequencies as they are.
struct NoScaling {
  friend bool operator==(const NoScaling&, const NoScaling&) = default;
};
/// Position interpolation: every frequency divided by `factor` (Chen et al. 2023, arXiv 2306.15595).
struct LinearScaling {
  double factor = 1.0;  ///< at least 1
  friend bool operator==(const LinearScaling&, const LinearScaling&) = default;
};
/// base · factor^(d / (d - 2)) for d = rotary_dim, above 2: the slowest pair is slowed by `factor`, the
/// fastest not at all (Peng et al. 2023, arXiv 2309.00071, section 3.1, "NTK-aware").
struct NtkScaling {
  double factor = 1.0;  ///< at least 1
  friend bool operator==(const NtkScaling&, const NtkScaling&) = default;
};
/// NtkScaling by 1 + factor · (n / original_max_positions - 1), for a sequence of n positions; none
/// until n exceeds the original ("dynamic" in transformers). Queries and keys have to be turned with the same
/// n, so keys of a cache that outgrows its table have to be turned anew.
struct DynamicNtkScaling {
  double factor = 1.0;                      ///< at least 1
  std::int64_t original_max_positions = 0;  ///< of the training
  friend bool operator==(const DynamicNtkScaling&, const DynamicNtkScaling&) = default;
};
/// YaRN (Peng et al. 2023, arXiv 2309.00071): pairs that turn more than `beta_fast` times within the original
/// positions stay, those with fewer than `beta_slow` turns are divided by `factor`. The ramp in between is
/// linear in the pair's number, as the authors' code and transformers have it; in the paper, in its turns.
struct YarnScaling {
  double factor = 1.0;                      ///< at least 1
  std::int64_t original_max_positions = 0;  ///< of the training
  double beta_fast = 32.0;                  ///< at least beta_slow
  double beta_slow = 1.0;                   ///< above 0
  /// Multiplies cos and sin, hence scores by its square; 0.1 ln(factor) + 1 unless given.
  std::optional<double> attention_factor = std::nullopt;
  /// Are the ends of the ramp, as numbers of pairs, rounded outwards, as nearly all models have it, or not
  /// (gpt-oss; "truncate": false in transformers)?
  enum class Ends : std::uint8_t { rounded, exact } ends = Ends::rounded;
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};
/// Llama 3.1: with w the wavelength of a pair in positions, those with original_max_positions / w above
/// `high_freq_factor` stay, those below `low_freq_factor` are divided by `factor`, linear in between.
struct Llama3Scaling {
  double factor = 1.0;                      ///< at least 1
  double low_freq_factor = 1.0;             ///< above 0
  double high_freq_factor = 4.0;            ///< above low_freq_factor
  std::int64_t original_max_positions = 0;  ///< of the training
  friend bool operator==(const Llama3Scaling&, const Llama3Scaling&) = default;
};
using RopeScaling =
    std::variant<NoScaling, LinearScaling, NtkScaling, DynamicNtkScaling, YarnScaling, Llama3Scaling>;

/// Pair i of `rotary_dim / 2` turns by position · base^(-2i / rotary_dim), before scaling.
struct Rope {
  /// Elements of a head that are turned, even, in [2, 65536]; the others stay as they are.
  std::int64_t rotary_dim = 0;
  double base = 10000.0;  ///< "theta"; above 1
  RopeLayout layout = RopeLayout::half_split;
  RopeScaling scaling = NoScaling{};
  friend bool operator==(const Rope&, const Rope&) = default;
};

/// Throws InvalidArgument that names the struct and the field out of its range.
void check_rope(const Rope& rope);

}  // namespace fovea

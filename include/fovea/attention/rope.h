// Rotary position embeddings (Su et al. 2021, arXiv 2104.09864). Queries and keys are rotated by angles that
// grow with their positions, so that a score depends only on the difference of positions. This header has
// plain data. The functions are in plan/rope.h, the text form is in expression.h. Rotation happens before
// `attend` and when keys enter a cache. It is not a score mod.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace fovea {

/// Which two of the first `rotary_dim` elements form pair i, which is rotated as the point (a, b) of a plane.
enum class RopeLayout : std::uint8_t {
  half_split,   ///< i and i + rotary_dim / 2: Llama, GPT-NeoX
  interleaved,  ///< 2i and 2i + 1: GPT-J, DeepSeek
};

/// Unchanged frequencies.
struct NoScaling {
  friend bool operator==(const NoScaling&, const NoScaling&) = default;
};
/// Position interpolation: every frequency divided by `factor` (Chen et al. 2023, arXiv 2306.15595).
struct LinearScaling {
  double factor = 1.0;  ///< at least 1
  friend bool operator==(const LinearScaling&, const LinearScaling&) = default;
};
/// Uses base · factor^(d / (d - 2)) for d = rotary_dim, above 2: the slowest pair is slowed by `factor`, the
/// fastest not at all (Peng et al. 2023, arXiv 2309.00071, section 3.1, "NTK-aware").
struct NtkScaling {
  double factor = 1.0;  ///< at least 1
  friend bool operator==(const NtkScaling&, const NtkScaling&) = default;
};
/// NtkScaling by 1 + factor · (n / original_max_positions - 1), for a sequence of n positions. Nothing is
/// scaled until n exceeds the original positions ("dynamic" in transformers). Queries and keys must be
/// rotated with the same n. So the keys of a cache that outgrows its table must be rotated again.
struct DynamicNtkScaling {
  double factor = 1.0;                      ///< at least 1
  std::int64_t original_max_positions = 0;  ///< of the training
  friend bool operator==(const DynamicNtkScaling&, const DynamicNtkScaling&) = default;
};
/// YaRN (Peng et al. 2023, arXiv 2309.00071). Pairs that turn more than `beta_fast` times within the original
/// positions keep their frequency; for those that turn less than `beta_slow` times it is divided by `factor`.
/// Between the two is a ramp. It is linear in the pair's number, as in the authors' code and in transformers;
/// in the paper it is linear in the number of turns.
struct YarnScaling {
  double factor = 1.0;                      ///< at least 1
  std::int64_t original_max_positions = 0;  ///< of the training
  double beta_fast = 32.0;                  ///< at least beta_slow
  double beta_slow = 1.0;                   ///< above 0
  /// Multiplies cos and sin, and so the scores by its square. The default is 0.1 ln(factor) + 1.
  std::optional<double> attention_factor = std::nullopt;
  /// Whether the ends of the ramp, as numbers of pairs, are rounded outwards. Nearly all models round them;
  /// gpt-oss does not ("truncate": false in transformers).
  enum class Ends : std::uint8_t { rounded, exact } ends = Ends::rounded;
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};
/// Llama 3.1. Let w be the wavelength of a pair in positions. If original_max_positions / w is above
/// `high_freq_factor`, the frequency stays. If it is below `low_freq_factor`, the frequency is divided by
/// `factor`. In between the change is linear.
struct Llama3Scaling {
  double factor = 1.0;                      ///< at least 1
  double low_freq_factor = 1.0;             ///< above 0
  double high_freq_factor = 4.0;            ///< above low_freq_factor
  std::int64_t original_max_positions = 0;  ///< of the training
  friend bool operator==(const Llama3Scaling&, const Llama3Scaling&) = default;
};
/// LongRoPE (Ding et al. 2024, arXiv 2402.13753), Phi-3. The frequency of pair i is divided by
/// short_factors[i] in sequences of at most original_max_positions, and by long_factors[i] in longer ones. As
/// with DynamicNtkScaling, queries and keys must be rotated for the same length.
struct LongRopeScaling {
  std::int64_t original_max_positions = 0;                    ///< of the training
  std::vector<double> short_factors = {}, long_factors = {};  ///< rotary_dim / 2 each, all above 0
  double attention_factor = 1.0;                              ///< multiplies cos and sin, of both lists
  friend bool operator==(const LongRopeScaling&, const LongRopeScaling&) = default;
};
using RopeScaling = std::variant<NoScaling, LinearScaling, NtkScaling, DynamicNtkScaling, YarnScaling,
                                 Llama3Scaling, LongRopeScaling>;

/// Before scaling, pair i of `rotary_dim / 2` is rotated by position · base^(-2i / rotary_dim).
struct Rope {
  /// The number of elements of a head that are rotated: even, in [2, 65536]. The others stay unchanged.
  std::int64_t rotary_dim = 0;
  double base = 10000.0;  ///< "theta"; above 1
  RopeLayout layout = RopeLayout::half_split;
  RopeScaling scaling = NoScaling{};
  friend bool operator==(const Rope&, const Rope&) = default;
};

/// Throws InvalidArgument that names the struct and the field outside of its range.
void check_rope(const Rope& rope);

/// Of scalings that read the length of a sequence: the longest one for which they are as for shorter ones.
/// Nothing: the frequencies are the same at any length.
std::optional<std::int64_t> changes_behind(const Rope& rope);

}  // namespace fovea

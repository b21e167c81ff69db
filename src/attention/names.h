// Names in the grammar. Scores and normalisers bring theirs (score.h, normalizer.h); mods have a row each
// here, masks in mask_names.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "fovea/attention/spec.h"

namespace fovea {

struct ScoreName {
  const char* name;
  Score score;
};
std::span<const ScoreName> score_names();

/// What stands at one place between a mod's parentheses.
struct ModNumber {
  enum class Kind : std::uint8_t { real, count, direction };
  const char* what = nullptr;  ///< in the words of an error; null: the list ended before
  Kind kind = Kind::real;
};
struct ModNumbers {
  std::array<double, 3> real{};
  std::array<std::int64_t, 3> count{};
  RelativeBias::Direction direction{};
};
struct ModName {
  const char* name;
  std::array<ModNumber, 3> numbers;
  Mod (*make)(const ModNumbers& numbers);
  /// Without parentheses; null where they are needed. A mod without numbers has this alone.
  Mod (*bare)();
};
std::span<const ModName> mod_names();

struct NormalizerName {
  const char* name;
  /// The number in parentheses, and what it is without them; null: there is none.
  const char* number;
  double absent;
  Normalizer (*make)(double number);
  /// The number of a normaliser that has this name; nullopt for any other.
  std::optional<double> (*read)(const Normalizer& normalizer);
};
std::span<const NormalizerName> normalizer_names();

}  // namespace fovea

// Names in the grammar. Scores and normalisers declare theirs in score.h and normalizer.h. A mod is named by
// its own text; its row in names.cpp says which of its members stand in parentheses. Masks have a row each in
// mask_names.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fovea/attention/normalizer_properties.h"
#include "fovea/attention/score_definition.h"
#include "fovea/attention/spec.h"

namespace fovea {

struct ScoreName {
  const char* name;
  Score score;
};
std::span<const ScoreName> score_names();

/// One entry in a mod's parentheses.
struct ModNumber {
  enum class Kind : std::uint8_t { real, count, direction };
  const char* what = nullptr;  ///< as an error describes it; null: there is no such entry
  Kind kind = Kind::real;
};
struct ModNumbers {
  std::array<double, 3> real{};
  std::array<std::int64_t, 3> count{};
  RelativeBias::Direction direction{};
};
struct ModName {
  std::string name;
  std::array<ModNumber, 3> numbers;
  Mod (*make)(const ModNumbers& numbers);
  /// Makes the mod without parentheses; null if it needs them. A mod without numbers has only this function.
  Mod (*bare)();
};
std::span<const ModName> mod_names();

struct NormalizerName {
  const char* name;
  /// The number in parentheses, as an error describes it; null: there is none. `absent` is its value without
  /// parentheses.
  const char* number;
  double absent;
  Normalizer (*make)(double number);
  /// The number of a normaliser with this name; nullopt for any other normaliser.
  std::optional<double> (*read)(const Normalizer& normalizer);
};
std::span<const NormalizerName> normalizer_names();

}  // namespace fovea

// The names of the mask grammar: one row for each mask.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention/mask.h"

namespace fovea {

struct MaskName {
  const char* name;
  /// The required contents of the parentheses, as an error describes them; empty: no parentheses.
  const char* numbers;
  std::size_t least, most;  ///< how many numbers
  Mask (*make)(const std::vector<std::int64_t>& numbers);
};

std::span<const MaskName> mask_names();

}  // namespace fovea

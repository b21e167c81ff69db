// Names of the mask grammar: one row a mask.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention/mask.h"

namespace fovea {

struct MaskName {
  const char* name;
  /// What has to stand in the parentheses, in the words of an error; empty: no parentheses.
  const char* numbers;
  std::size_t least, most;  ///< how many
  Mask (*make)(const std::vector<std::int64_t>& numbers);
};

std::span<const MaskName> mask_names();

}  // namespace fovea

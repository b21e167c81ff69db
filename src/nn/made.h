// The check of layers that were made by their default constructor.
#pragma once

#include "fovea/core/error.h"

namespace fovea::nn {

/// Refuses a call of a layer that has no parameters yet. `argument` is what its sizes come from.
inline void check_made(const char* layer, const char* argument, bool made) {
  if (!made) throw InvalidArgument(layer, argument, "a layer made with its sizes", "one made without");
}

}  // namespace fovea::nn

#pragma once

#include "cli/options.h"

namespace fovea::cli {

/// Adds `fovea score text` to `fovea score`.
void register_score_text(Command score);

}  // namespace fovea::cli

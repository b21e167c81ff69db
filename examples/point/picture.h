// A drawing of the pointer: one scene for each step, each input as magenta as its weight.
#pragma once

#include <vector>

#include "fovea/inspect/drawing.h"
#include "network.h"

namespace point {

/// The steps of `network` on the first set of `sets`.
fovea::inspect::Drawing draw_steps(const Network& network, const Sets& sets);

}  // namespace point

// Gradients of everything that `fovea attend` was given.
#pragma once

#include "cli/attend_mechanisms.h"

namespace fovea::cli {

/// The gradients by their stable names, of the loss whose derivatives the call brings. `results` are those of
/// the forward.
GradientFiles attend_gradients(const AttendOptions& options, const AttendCall& call, Mechanism& mechanism,
                               const AttendResults& results, Executor* executor);

}  // namespace fovea::cli

// The gradients by every input of `fovea attend`.
#pragma once

#include "cli/attend_mechanisms.h"

namespace fovea::cli {

/// Computes the gradients of the loss whose derivatives the call brings, by the names of their files.
/// `results` are those of the forward pass.
GradientFiles attend_gradients(const AttendOptions& options, const AttendCall& call, Mechanism& mechanism,
                               const AttendResults& results, Executor* executor);

}  // namespace fovea::cli

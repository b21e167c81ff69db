// Reads the mods of `fovea attend`: their text and their files.
#pragma once

#include "cli/attend_call.h"

namespace fovea::cli {

/// Reads --mod, --weight-mod and --local-p into the call, whose operands and shape have been read.
void read_mods(const AttendOptions& options, AttendCall& call, Executor* executor);

}  // namespace fovea::cli

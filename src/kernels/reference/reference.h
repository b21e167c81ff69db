// The specification: naive loops in double, which share no code with the fused kernels. Everything else is
// compared with this.
#pragma once

#include "kernels/candidate.h"

namespace fovea::kernels {

Candidate reference_candidate();

}  // namespace fovea::kernels

// The specification: naive loops in double, which share no code with the fused kernels. The tests compare
// every other kernel with these results.
#pragma once

#include "kernels/candidate.h"

namespace fovea::kernels {

Candidate reference_candidate();

}  // namespace fovea::kernels

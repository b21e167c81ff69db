// The specification: naive loops in double, which share no code with the fused kernels. Everything else is
// compared with this.
#pragma once

#include "kernels/problem.h"

namespace fovea::kernels {

const KernelTable& reference_kernel();

}  // namespace fovea::kernels

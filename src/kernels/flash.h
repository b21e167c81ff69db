// The fused kernels: tiled, online softmax, memory O(length), forward and backward; written once over
// Highway's vectors and compiled for each ISA.
#pragma once

#include <span>

#include "kernels/problem.h"

namespace fovea::kernels {

/// One table an ISA, best first: "avx512", "avx2", "baseline".
std::span<const KernelTable* const> flash_kernels();

}  // namespace fovea::kernels

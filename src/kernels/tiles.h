// Softmax attention by products of bf16: on AMX's tiles, and by AVX512_BF16's dot products.
#pragma once

#include <span>

#include "kernels/flash.h"

namespace fovea::kernels {

/// Best first: "amx", "avx512bf16"; none where they are not compiled in.
std::span<const KernelTable* const> tile_kernels();
/// "tiles", the same walk over products that any CPU computes: for checks, slower than what it stands in for.
/// Null where the build leaves the baseline out.
const KernelTable* portable_tile_kernel();

}  // namespace fovea::kernels

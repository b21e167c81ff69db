// The mean of the heads of keys, by which rows that are alike are found (token merging).
#pragma once

#include <cstdint>

#include "fovea/core/tensor.h"

namespace fovea::nn {

/// keys [B, L, heads * dim] -> [B, L, dim].
Tensor mean_over_heads(const Tensor& keys, std::int64_t heads);

}  // namespace fovea::nn

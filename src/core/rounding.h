// Rows of f32 as rows of 16 bits, by vectors.
#pragma once

#include <cstdint>

#include "fovea/core/dtype.h"

namespace fovea {

/// to[i] = T(from[i]) for n elements.
void round_row(const float* from, std::int64_t n, bfloat16* to) noexcept;
void round_row(const float* from, std::int64_t n, float16* to) noexcept;

}  // namespace fovea

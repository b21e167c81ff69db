// Conversions of rows from 16-bit types to f32 and back, by the processor's own instructions where it has
// them. Element by element in C++ they cost more than the attention that follows.
#pragma once

#include <cstdint>

#include "fovea/core/dtype.h"

namespace fovea::kernels {

void widen(const float16* from, std::int64_t count, float* to);
/// Rounds to the nearest, ties to even.
void narrow(const float* from, std::int64_t count, float16* to);
void widen(const bfloat16* from, std::int64_t count, float* to);
void narrow(const float* from, std::int64_t count, bfloat16* to);

}  // namespace fovea::kernels

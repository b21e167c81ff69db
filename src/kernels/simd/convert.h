// Rows of f16 to f32 and back, by the processor's own conversions where it has them: element by element in
// C++ they cost more than attention to them does.
#pragma once

#include <cstdint>

#include "fovea/core/dtype.h"

namespace fovea::kernels {

void widen(const float16* from, std::int64_t count, float* to);
/// To the nearest, ties to even.
void narrow(const float* from, std::int64_t count, float16* to);

}  // namespace fovea::kernels

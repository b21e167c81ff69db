// Feature maps of queries and keys, element by element, by the best instructions of this CPU.
#pragma once

#include <cstdint>

namespace fovea::kernels {

/// x ← elu(x) + 1: e^x below 0, x + 1 from 0 on. NaN stays NaN.
void elu_plus_one(std::int64_t count, float* x);
void elu_plus_one(std::int64_t count, double* x);
/// d ← d times the derivative of elu at x: e^x below 0, 1 from 0 on.
void times_elu_slope(const float* x, std::int64_t count, float* d);
void times_elu_slope(const double* x, std::int64_t count, double* d);

}  // namespace fovea::kernels

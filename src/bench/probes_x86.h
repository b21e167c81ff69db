// Probes of what only some x86 CPUs have, each a short step of work that returns what it did.
#pragma once

namespace fovea::bench {

/// Operations done. Only where kernels/tiles/product.h knows of no absence.
double amx_step() noexcept;
double dot_bf16_step() noexcept;
/// Elements: 2^x of `count` of them, a multiple of 64.
double exponential_16_step(const float* x, int count) noexcept;

}  // namespace fovea::bench

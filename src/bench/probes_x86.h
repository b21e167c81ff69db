// Probes of units that only some x86 CPUs have. Each is a short step of work that returns how much it did.
#pragma once

namespace fovea::bench {

/// The operations done. Only called where kernels/tiles/product.h gives no reason for an absence.
double amx_step() noexcept;
double dot_bf16_step() noexcept;
double dot_int8_step() noexcept;  // by AVX512_VNNI where the CPU has it, else by AVX2
/// The elements done: 2^x of `count` numbers, a multiple of 64.
double exponential_16_step(const float* x, int count) noexcept;

}  // namespace fovea::bench

// Probes of what only some x86 CPUs have, each a short step of work that returns what it did.
#pragma once

namespace fovea::cli {

/// Reasons of absence; nullptr where this CPU and this system have it.
const char* amx_absence() noexcept;
const char* dot_bf16_absence() noexcept;
const char* avx512_absence() noexcept;

/// Operations done. Only where it is not absent.
double amx_step() noexcept;
double dot_bf16_step() noexcept;
/// Elements: 2^x of `count` of them, a multiple of 64.
double exponential_16_step(const float* x, int count) noexcept;

}  // namespace fovea::cli

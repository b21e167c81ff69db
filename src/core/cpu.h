// What the CPU that this process runs on can execute, and the operating system has enabled. All of it is
// false elsewhere than on x86. Also how many cores the process may use, and the size of a cache. The names of
// instruction sets are those of GCC's options.
//
// hwy::SupportedTargets() answers the same. But Highway's library measures the resolution of a timer when it
// is loaded, which takes 2.7 ms of each command. So Fovea uses the headers of Highway and does not link it.
#pragma once

#include <cstdint>

namespace fovea {

bool cpu_has_sse42() noexcept;
bool cpu_has_avx2() noexcept;         ///< with fma, bmi, bmi2, f16c and lzcnt
bool cpu_has_avx512() noexcept;       ///< avx512f, bw, cd, dq and vl, with all that cpu_has_avx2() names
bool cpu_has_avx512_bf16() noexcept;  ///< avx512bf16, with all that cpu_has_avx512() names
/// cpu_has_avx512_bf16(), and vdpbf16ps does more operations a second than a multiply-add of f32. On a
/// Sapphire Rapids `fovea bench kernels` probes 86 GFLOP/s beside 174, on a Zen 5 474 beside 260.
bool cpu_has_fast_bf16_dots() noexcept;
/// Whether rows that are read once are better fetched into the first-level cache than into the second: on a
/// Zen 5 and later (kernels/simd/memory-inl.h).
bool cpu_prefetches_into_first_level() noexcept;
bool cpu_has_avx512_vnni() noexcept;  ///< avx512vnni, with all that cpu_has_avx512() names

/// The cores that this process may use, at least 1. The machine may have more, because containers and taskset
/// restrict a process.
int usable_cores() noexcept;
/// Of one core. 512 KiB, the least of today's servers, where the system does not say.
std::int64_t second_level_cache_bytes() noexcept;

}  // namespace fovea

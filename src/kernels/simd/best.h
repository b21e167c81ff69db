// One of the functions that Highway compiled for each instruction set. For the part of a file that is
// compiled once (HWY_ONCE), behind Highway's headers.
#pragma once

#include "core/cpu.h"
#include "hwy/highway.h"

#if HWY_TARGETS & HWY_AVX3
#define FOVEA_AVX512_OR(function) cpu_has_avx512() ? &N_AVX3::function:
#else
#define FOVEA_AVX512_OR(function)
#endif
#if HWY_TARGETS & HWY_AVX2
#define FOVEA_AVX2_OR(function) cpu_has_avx2() ? &N_AVX2::function:
#else
#define FOVEA_AVX2_OR(function)
#endif
#if HWY_TARGETS & HWY_SSE4
#define FOVEA_SSE4_OR(function) cpu_has_sse42() ? &N_SSE4::function:
#else
#define FOVEA_SSE4_OR(function)
#endif

/// The function of the best instruction set that this CPU has: FOVEA_BEST(Widen)(from, count, to).
/// HWY_DYNAMIC_DISPATCH would need Highway's library.
#define FOVEA_BEST(function)                                                                                 \
  ([]() noexcept {                                                                                           \
    static const auto best =                                                                                 \
        FOVEA_AVX512_OR(function) FOVEA_AVX2_OR(function) FOVEA_SSE4_OR(function) & HWY_NAMESPACE::function; \
    return best;                                                                                             \
  }())

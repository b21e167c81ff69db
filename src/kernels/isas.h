// The instruction sets of the kernels over Highway, and a list of them for a file that Highway compiles once
// for each. (kernels/tiles has more.)
#pragma once

#include <cstdint>

#include "kernels/candidate.h"
#include "kernels/simd/targets.h"
// Highway's names of targets come behind the targets that are left out.
#include "hwy/highway.h"

namespace fovea::kernels {

extern const Isa avx512_isa, avx2_isa, baseline_isa;  ///< on Arm the last alone
#if HWY_ARCH_X86
/// AVX-512 with dot products of bf16, and with AMX too, for code that is compiled for AVX-512.
extern const Isa avx512bf16_isa, amx_isa;
#endif

/// What stands behind the portable code of an algorithm, where that refuses a call. A build for one machine
/// that has AVX2 compiles no other kernels for the baseline.
constexpr const Isa* portable_base() {
#if HWY_ARCH_X86 && (HWY_BASELINE_TARGETS & HWY_AVX2)
  return &avx2_isa;
#else
  return &baseline_isa;
#endif
}

}  // namespace fovea::kernels

// A build for one machine (-march=native) leaves out the targets below that machine's own.
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
#define FOVEA_WITH_AVX512(add) add(avx512_isa, N_AVX3)
#else
#define FOVEA_WITH_AVX512(add)
#endif
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX2)
#define FOVEA_WITH_AVX2(add) add(avx2_isa, N_AVX2)
#else
#define FOVEA_WITH_AVX2(add)
#endif
#if !HWY_ARCH_X86
#define FOVEA_WITH_BASELINE(add) add(baseline_isa, HWY_NAMESPACE)
#elif HWY_TARGETS & HWY_SSE4
#define FOVEA_WITH_BASELINE(add) add(baseline_isa, N_SSE4)
#else
#define FOVEA_WITH_BASELINE(add)
#endif

/// add(isa, target) for each, best first: the Isa, and Highway's namespace of the code compiled for it.
#define FOVEA_FOR_EACH_ISA(add) FOVEA_WITH_AVX512(add) FOVEA_WITH_AVX2(add) FOVEA_WITH_BASELINE(add)

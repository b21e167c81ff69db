// The instruction sets that the code over Highway is compiled for ("targets" in Highway's words). A file that
// Highway compiles once per target includes this header before any of Highway's.
//
// On x86 these are three: SSE4 as the baseline, AVX2, AVX-512. More would compile longer and win nothing on
// f32. On Arm it is NEON alone: register tiles are arrays of vectors, and a type of SVE has no size to make
// an array of.
#pragma once

// A file defines FOVEA_WITHOUT_AVX2 if its code runs on AVX-512 and on the baseline alone.
#ifndef HWY_DISABLED_TARGETS
#ifdef FOVEA_WITHOUT_AVX2
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX2 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#endif

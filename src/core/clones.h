// Loops that GCC compiles for several levels of x86-64, of which the processor's is chosen when the program
// starts.
#pragma once

// These are feature levels, not processor models. GCC dispatches "arch=haswell" by the model's name, not by
// its features. An AMD Zen 4 therefore ran the SSE2 clone, 11 times slower in exp (187 against 16 ms over 41
// million elements). Levels need GCC 12.
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOVEA_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define FOVEA_CLONES
#endif

// oneDNN's f32 product, which our own are measured beside. Nothing else of Fovea uses oneDNN.
#pragma once

#include <cstdint>

namespace fovea::bench {

/// dnnl_sgemm: row-major c[m, n] = alpha·a·b + beta·c, after transposes 'N' or 'T'; 0 if it succeeds.
using OneDnnProduct = int (*)(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n,
                              std::int64_t k, float alpha, const float* a, std::int64_t a_leading,
                              const float* b, std::int64_t b_leading, float beta, float* c,
                              std::int64_t c_leading);

/// That of the system's libdnnl, on OpenMP's team of `threads`; null where the system has none.
OneDnnProduct onednn_product(int threads);

}  // namespace fovea::bench

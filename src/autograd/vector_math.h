// Element-wise functions that the compiler vectorises: branch-free, under `#pragma omp simd`, in functions
// cloned for each ISA (FOVEA_CLONES; chosen once when the program is loaded). libm does not vectorise at -O2
// and takes ten times as long.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/clones.h"

namespace fovea::autograd {

/// e^x as p · 2^n, with p in [0.7, 1.42]; the relative error of p is below 2e-7. |x| is at most 104.
struct ScaledExp {
  float p;
  std::uint32_t n;  // in two's complement
};
[[gnu::always_inline]] inline ScaledExp vector_scaled_exp(float x) {
  constexpr float magic = 12582912.0f;  // 1.5·2^23: adding it rounds to an integer, in SSE2 too
  const float shifted = x * 1.44269504f + magic;
  const float n = shifted - magic;
  float r = x - n * 0.693145752f;
  r = r - n * 1.42860677e-6f;
  float p = 1.98756915e-4f;
  p = p * r + 1.39819994e-3f;
  p = p * r + 8.33345189e-3f;
  p = p * r + 4.16657963e-2f;
  p = p * r + 1.66666656e-1f;
  p = p * r + 5.00000000e-1f;
  p = p * r * r + r + 1.0f;
  return {p, std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u};
}

/// e^x, relative error below 2e-7 in [-87, 88]; clamped outside.
[[gnu::always_inline]] inline float vector_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const auto [p, n] = vector_scaled_exp(x);
  return p * std::bit_cast<float>((n + 127u) << 23);
}

/// e^x for every x: infinite above 88.8, and below -87.3 subnormal down to 0. The same relative error.
[[gnu::always_inline]] inline float vector_exp_of_all(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const auto [p, n] = vector_scaled_exp(x);
  // 2^n in two factors, because 2^128 and 2^-150 are no normal numbers.
  const auto whole = static_cast<std::int32_t>(n), half = whole >> 1;
  const auto power = [](std::int32_t of) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(of + 127) << 23);
  };
  return p * power(half) * power(whole - half);
}

/// ln(1 + t) for t in [0, 1], relative error below 3e-7: 2 artanh(t / (2 + t)) by its series.
[[gnu::always_inline]] inline float vector_log1p_of_share(float t) {
  const float s = t / (2.0f + t), square = s * s;  // at most 1/9
  float p = 1.0f / 13.0f;
  p = p * square + 1.0f / 11.0f;
  p = p * square + 1.0f / 9.0f;
  p = p * square + 1.0f / 7.0f;
  p = p * square + 1.0f / 5.0f;
  p = p * square + 1.0f / 3.0f;
  return 2.0f * (s + s * square * p);
}

/// e^x for x <= 0; below -87.3 it gives 2^-126, not 0. The relative error is below 2e-7 + |x|·8e-8: x is
/// multiplied by log2 e first, and that product is rounded. Sums of exponentials bear that, because what is
/// small adds little. It has 12 operations where vector_exp has 17.
[[gnu::always_inline]] inline float vector_exp_nonpositive(float x) {
  float y = x * 1.44269504f;
  y = y < -126.0f ? -126.0f : y;
  constexpr float magic = 12582912.0f;  // see vector_scaled_exp
  const float shifted = y + magic;
  const float r = y - (shifted - magic);
  float p = 1.53533532e-4f;  // 2^r on [-0.5, 0.5]
  p = p * r + 1.33988744e-3f;
  p = p * r + 9.61843738e-3f;
  p = p * r + 5.55032536e-2f;
  p = p * r + 2.40226462e-1f;
  p = p * r + 6.93147182e-1f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u);
}

/// 1 / (1 + e^-x).
[[gnu::always_inline]] inline float vector_sigmoid(float x) {
  return 1.0f / (1.0f + vector_exp(-x));
}

/// tanh x, absolute error below 2e-7.
[[gnu::always_inline]] inline float vector_tanh(float x) {
  return 1.0f - 2.0f / (vector_exp(2.0f * x) + 1.0f);
}

}  // namespace fovea::autograd

#include "fovea/core/dtype.h"

#include "core/clones.h"
#include "core/rounding.h"

namespace fovea {

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
  }
  return "unknown";
}

namespace {

// Every case is computed and one is chosen, so that a loop over it has no branches and becomes vectors.
inline std::uint16_t half_of(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = word & 0x7fffffffu, odd = (magnitude >> 13) & 1u;
  // Below 2^-14 a subnormal: adding 0.5 makes the FPU do the rounding.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  std::uint32_t half = magnitude < 0x38800000u ? subnormal : (magnitude + 0xc8000fffu + odd) >> 13;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // 65520 and above round to infinity
  half = magnitude > 0x7f800000u ? 0x7e00u : half;   // NaN
  return static_cast<std::uint16_t>(((word >> 16) & 0x8000u) | half);
}

inline std::uint16_t bfloat_of(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nan = (word >> 16) | 0x40u, rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace

float16::float16(float value) noexcept : bits(half_of(value)) {}

FOVEA_CLONES void round_row(const float* from, std::int64_t n, bfloat16* to) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i].bits = bfloat_of(from[i]);
}

FOVEA_CLONES void round_row(const float* from, std::int64_t n, float16* to) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) to[i].bits = half_of(from[i]);
}

float16::operator float() const noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace fovea

// Element types. The 16-bit types are structs over uint16_t, so that the API needs no compiler extension.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fovea {

enum class DType : std::uint8_t { f32, f64, bf16, f16 };

/// Bytes of one element.
constexpr std::size_t size_of(DType dtype) noexcept {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : 2;
}

/// "f32", "f64", "bf16" or "f16".
std::string_view to_string(DType dtype) noexcept;

/// Brain float: the upper half of an IEEE binary32. Rounds to nearest even; NaN stays NaN.
struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((word >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE binary16. Rounds to nearest even, keeps subnormals, infinities and NaN.
struct float16 {
  std::uint16_t bits = 0;

  float16() = default;
  explicit float16(float value) noexcept;
  explicit operator float() const noexcept;
};

template <class T>
constexpr DType no_dtype() = delete;
/// The DType of elements of type T; other types do not compile.
template <class T>
inline constexpr DType dtype_of = no_dtype<T>();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<float16> = DType::f16;

}  // namespace fovea

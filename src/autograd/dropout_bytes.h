// The decisions of `dropout`, for other operations that drop elements.
#pragma once

#include <bit>
#include <cstdint>

namespace fovea::autograd {

/// Decisions that are drawn at once: 16 bytes for each of 16 blocks of Philox, which are computed side by
/// side, one in each lane. philox4x32 computes one at a time and takes five times as long.
inline constexpr std::int64_t dropout_bytes_at_once = 256;

/// Bytes `first` to first + dropout_bytes_at_once - 1 of the stream (seed, stream). `first` is a multiple of
/// 16.
void dropout_bytes(std::int64_t first, std::uint64_t seed, std::uint64_t stream, std::uint8_t* bytes);

/// x where the byte is below the threshold, else 0. By bits: GCC 12 makes a branch of a conditional product
/// for AVX2, which the processor guesses wrongly for each number that is dropped.
inline float kept(float x, std::uint8_t byte, std::uint32_t threshold) {
  const std::uint32_t bits = byte < threshold ? ~std::uint32_t{0} : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & bits);
}

/// y[i] = x[i]·scale where bytes[i] is below the threshold, else 0. y may be x.
void keep_below(const float* x, const std::uint8_t* bytes, std::uint32_t threshold, float scale,
                std::int64_t n, float* y);

}  // namespace fovea::autograd

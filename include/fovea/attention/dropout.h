// Dropout decisions: a pure function of seed and (batch, head, query position, key). They depend neither on
// how scores are split into tiles nor on threads. One Philox block serves 16 keys, one byte each.
#pragma once

#include <array>
#include <cstdint>

#include "fovea/core/philox.h"

namespace fovea {

/// A weight is kept iff its byte < keep_threshold, and then multiplied by scale = 256 / keep_threshold.
struct DropoutDecision {
  std::uint32_t keep_threshold = 256;
  double scale = 1.0;
  /// `rate` in [0, 1) is rounded to a multiple of 1/256, with at least one byte value kept. A rate of 1/512
  /// or less keeps everything.
  static DropoutDecision for_rate(double rate) noexcept {
    auto keep = static_cast<std::uint32_t>((1.0 - rate) * 256.0 + 0.5);
    keep = keep < 1 ? 1 : keep > 256 ? 256 : keep;
    return {keep, 256.0 / keep};
  }
};

/// The 16 bytes of keys [16·key_block, 16·key_block + 16). `query` is the position in key coordinates.
inline std::array<std::uint8_t, 16> dropout_bytes(std::uint64_t seed, std::int64_t batch, std::int64_t head,
                                                  std::int64_t query, std::int64_t key_block) noexcept {
  const auto words = philox4x32({static_cast<std::uint32_t>(key_block), static_cast<std::uint32_t>(query),
                                 static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(batch)},
                                seed);
  std::array<std::uint8_t, 16> bytes{};
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(words[i / 4] >> (8 * (i % 4)));
  return bytes;
}

}  // namespace fovea

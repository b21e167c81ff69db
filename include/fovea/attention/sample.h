// Random choices among keys: a pure function of seed and (batch, head, query position, key). They depend
// neither on how scores are split into tiles nor on threads.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "fovea/core/philox.h"

namespace fovea {

/// Gumbel noise of keys [4·key_block, 4·key_block + 4): argmax_j (s_ij + noise_ij) is a draw from
/// softmax(s_i) (Gumbel 1954). `query` is the position in key coordinates. The numbers differ from those of
/// dropout under the same seed.
inline std::array<double, 4> gumbel_noise(std::uint64_t seed, std::int64_t batch, std::int64_t head,
                                          std::int64_t query, std::int64_t key_block) noexcept {
  constexpr std::uint32_t not_dropout = 0x80000000u;
  const auto words =
      philox4x32({static_cast<std::uint32_t>(key_block), static_cast<std::uint32_t>(query),
                  static_cast<std::uint32_t>(head) | not_dropout, static_cast<std::uint32_t>(batch)},
                 seed);
  std::array<double, 4> noise{};
  for (std::size_t n = 0; n < 4; ++n) noise[n] = -std::log(-std::log((words[n] + 0.5) * 0x1p-32));
  return noise;
}

}  // namespace fovea

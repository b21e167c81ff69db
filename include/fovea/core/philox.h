// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). Its random bits are a
// pure function of a key and a counter. Dropout and initial weights therefore do not depend on blocking, on
// threads or on the order of calls.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace fovea {

/// The constants of Salmon et al., for vectors of Philox too.
inline constexpr std::uint32_t philox_factors[] = {0xD2511F53u, 0xCD9E8D57u},
                               philox_steps[] = {0x9E3779B9u, 0xBB67AE85u};

/// The 128 random bits at `counter` of the stream `key`.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::uint64_t key) noexcept {
  std::uint32_t key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{philox_factors[0]} * counter[0];
    const std::uint64_t product1 = std::uint64_t{philox_factors[1]} * counter[2];
    counter = {
        static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
        static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += philox_steps[0];
    key1 += philox_steps[1];
  }
  return counter;
}

/// A sequential reader of one Philox stream. Its whole state is (key, position), which a checkpoint can
/// store.
class PhiloxStream {
 public:
  explicit PhiloxStream(std::uint64_t key, std::uint64_t position = 0) noexcept
      : key_(key), position_(position) {}
  std::uint64_t key() const noexcept { return key_; }
  std::uint64_t position() const noexcept { return position_; }

  std::uint32_t next_u32() noexcept {
    const std::uint64_t block = position_ / 4;
    if (block != cached_block_ || !cached_) {
      values_ = philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                           key_);
      cached_block_ = block;
      cached_ = true;
    }
    return values_[position_++ % 4];
  }
  /// Uniform in [0, 1), 24 bits.
  float next_uniform() noexcept { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }
  /// Uniform in [0, bound), from a 64-bit product. Its bias is at most bound / 2^32, relative to 1 / bound.
  std::uint32_t next_below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{next_u32()} * bound) >> 32);
  }
  /// Normal of mean 0 (Box and Muller 1958), from two uniform numbers.
  float next_normal(float deviation = 1.0f) noexcept {
    const float radius = std::sqrt(-2.0f * std::log(1.0f - next_uniform()));
    return deviation * radius * std::cos(2.0f * std::numbers::pi_v<float> * next_uniform());
  }
  /// Draws `count` of `items` without replacement, in random order. All of them are drawn if there are fewer.
  template <class T>
  std::vector<T> draw_from(std::vector<T> items, std::size_t count) {
    count = std::min(count, items.size());
    for (std::size_t i = 0; i < count; ++i)
      std::swap(items[i], items[i + next_below(static_cast<std::uint32_t>(items.size() - i))]);
    items.resize(count);
    return items;
  }

 private:
  std::uint64_t key_, position_;
  std::uint64_t cached_block_ = 0;
  bool cached_ = false;
  std::array<std::uint32_t, 4> values_{};
};

}  // namespace fovea

// The processor's conversions of f16 compared with float16's own, element by element: every f16, and f32
// numbers on both sides of every boundary between two of them.
#include "kernels/simd/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace fovea::testing {
namespace {

std::vector<float16> every_f16() {
  std::vector<float16> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  return all;
}

TEST(Convert, WidensEveryF16) {
  const std::vector<float16> all = every_f16();
  std::vector<float> wide(all.size());
  kernels::widen(all.data(), static_cast<std::int64_t>(all.size()), wide.data());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float want = static_cast<float>(all[i]);
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(want)) << i;
  }
}

TEST(Convert, NarrowsToTheNearest) {
  std::vector<float> wide;
  for (const float16 half : every_f16()) {
    const float at = static_cast<float>(half);
    float16 next;
    next.bits = static_cast<std::uint16_t>(half.bits + 1);
    const float between = at + (static_cast<float>(next) - at) / 2;
    for (const float x : {at, between, std::nextafter(between, 0.0f), std::nextafter(between, 1e9f)})
      wide.push_back(x);
  }
  for (const float x : {65504.0f, 65519.99f, 65520.0f, 1e30f, -1e30f, 0x1p-26f, 0x1p-149f}) wide.push_back(x);
  std::vector<float16> narrow(wide.size());
  kernels::narrow(wide.data(), static_cast<std::int64_t>(wide.size()), narrow.data());
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (std::isnan(wide[i]))
      EXPECT_TRUE(std::isnan(static_cast<float>(narrow[i]))) << wide[i];
    else
      EXPECT_EQ(narrow[i].bits, float16(wide[i]).bits) << wide[i];
  }
}

// Counts that do not fill whole vectors leave the elements behind them alone.
TEST(Convert, KeepsToItsCount) {
  for (std::int64_t count = 0; count < 40; ++count) {
    std::vector<float> wide(64, 1.5f), back(64, -1.0f);
    std::vector<float16> narrow(64);
    kernels::narrow(wide.data(), count, narrow.data());
    kernels::widen(narrow.data(), count, back.data());
    for (std::int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(narrow[static_cast<std::size_t>(i)].bits, i < count ? 0x3e00 : 0);
      EXPECT_EQ(back[static_cast<std::size_t>(i)], i < count ? 1.5f : -1.0f);
    }
  }
}

}  // namespace
}  // namespace fovea::testing

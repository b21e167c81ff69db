// FNV-1a by the values of its reference code.
#include "core/fnv1a.h"

#include <gtest/gtest.h>

#include <string_view>

namespace fovea {
namespace {

std::uint64_t hash_of(std::string_view text) {
  Fnv1a hash;
  hash.mix(text);
  return hash.value();
}

TEST(Fnv1a, IsThatOfTheReferenceCode) {
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8u);
}

TEST(Fnv1a, MixesBytesAboveAsciiWithoutASign) {
  Fnv1a byte;
  byte.mix(std::uint64_t{0xff});
  EXPECT_EQ(hash_of("\xff"), byte.value());
}

TEST(Fnv1a, MixesALargeNumberAtOnce) {
  Fnv1a hash;
  hash.mix(std::uint64_t{1} << 40);
  EXPECT_EQ(hash.value(), (0xcbf29ce484222325u ^ std::uint64_t{1} << 40) * 0x100000001b3u);
}

}  // namespace
}  // namespace fovea

// CRC32C by the examples of RFC 3720, appendix B.4, and on both paths.
#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "fovea/core/philox.h"

namespace fovea {
namespace {

TEST(Crc32c, IsThatOfTheStandard) {
  std::array<unsigned char, 32> bytes{};
  for (const auto checksum : {crc32c, crc32c_by_tables}) {
    EXPECT_EQ(checksum("123456789", 9, 0), 0xe3069283u);
    EXPECT_EQ(checksum("", 0, 0), 0u);
    bytes.fill(0);
    EXPECT_EQ(checksum(bytes.data(), bytes.size(), 0), 0x8a9136aau);
    bytes.fill(0xff);
    EXPECT_EQ(checksum(bytes.data(), bytes.size(), 0), 0x62a8ab43u);
    std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
    EXPECT_EQ(checksum(bytes.data(), bytes.size(), 0), 0x46dd794eu);
  }
}

TEST(Crc32c, OfPiecesIsThatOfTheWhole) {
  PhiloxStream random(3);
  std::array<unsigned char, 300> bytes{};
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.next_below(256));
  for (std::size_t count = 0; count <= bytes.size(); ++count) {
    const std::size_t cut = random.next_below(static_cast<std::uint32_t>(count + 1));
    const std::uint32_t whole = crc32c(bytes.data(), count);
    EXPECT_EQ(crc32c(bytes.data() + cut, count - cut, crc32c(bytes.data(), cut)), whole);
    EXPECT_EQ(crc32c_by_tables(bytes.data(), count), whole);
  }
}

}  // namespace
}  // namespace fovea

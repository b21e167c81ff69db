#include "core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/cpu.h"

namespace fovea {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[n][byte]: the checksum of `byte` and n bytes of zero behind it, so that eight bytes are eight
// look-ups that do not wait for one another.
constexpr Tables make_tables() {
  constexpr std::uint32_t reversed_polynomial = 0x82f63b78;
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? reversed_polynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t n = 1; n < 8; ++n) {
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[n][byte] = (tables[n - 1][byte] >> 8) ^ tables[0][tables[n - 1][byte] & 255];
  }
  return tables;
}

constexpr Tables tables = make_tables();

std::uint32_t by_tables(const unsigned char* at, std::size_t count, std::uint32_t crc) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    for (; count >= 8; at += 8, count -= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, at, 8);
      word ^= crc;
      crc = 0;
      for (std::size_t n = 0; n < 8; ++n) crc ^= tables[7 - n][(word >> (8 * n)) & 255];
    }
  }
  for (; count > 0; ++at, --count) crc = (crc >> 8) ^ tables[0][(crc ^ *at) & 255];
  return crc;
}

#ifdef __x86_64__
// The instruction has this polynomial. It takes 8 bytes at a time, without tables in the cache.
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const unsigned char* at, std::size_t count,
                                                               std::uint32_t crc) noexcept {
  std::uint64_t wide = crc;
  for (; count >= 8; at += 8, count -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; count > 0; ++at, --count) crc = __builtin_ia32_crc32qi(crc, *at);
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c_by_tables(const void* bytes, std::size_t count, std::uint32_t before) noexcept {
  return ~by_tables(static_cast<const unsigned char*>(bytes), count, ~before);
}

std::uint32_t crc32c(const void* bytes, std::size_t count, std::uint32_t before) noexcept {
#ifdef __x86_64__
  if (cpu_has_sse42()) return ~by_instruction(static_cast<const unsigned char*>(bytes), count, ~before);
#endif
  return crc32c_by_tables(bytes, count, before);
}

}  // namespace fovea

// The checksum of parts of a file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea {

/// CRC32C, of Castagnoli's polynomial (RFC 3720, appendix B.4). `before` is the checksum of the bytes in
/// front of these; 0 if there are none.
std::uint32_t crc32c(const void* bytes, std::size_t count, std::uint32_t before = 0) noexcept;
/// The same on a processor that has no instruction for it.
std::uint32_t crc32c_by_tables(const void* bytes, std::size_t count, std::uint32_t before = 0) noexcept;

}  // namespace fovea

// Whole files in and out, for this directory only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace fovea::text {

/// Throws FileError when `file` cannot be read or holds more than `max_bytes` (nothing is allocated then).
std::string read_bytes(const std::filesystem::path& file, std::uintmax_t max_bytes);
/// Writes a second file and renames it, so that a killed program leaves the old file or the new one.
void write_bytes(const std::filesystem::path& file, std::string_view bytes);

}  // namespace fovea::text

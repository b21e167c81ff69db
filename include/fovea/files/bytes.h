// Whole files in and out.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace fovea::files {

/// Regular files only: opening a pipe would wait for its writer. Throws FileError when the file cannot be
/// read or is larger than `limit` bytes; nothing is allocated then.
std::string read_file(const std::filesystem::path& path, std::size_t limit);

/// Writes `path`.partial, syncs it and renames it, so that a crash leaves the old file or the new one. A link
/// stays, and what it leads to is written so. What is no file, such as a pipe or /dev/stdout, is written in
/// place. Throws FileError.
void write_file(const std::filesystem::path& path, std::string_view bytes);
/// The same for pieces that follow each other in the file.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);

}  // namespace fovea::files

// Here are readers and writers of files: whole files, safetensors and npy. The layout of a model's folder is
// in models/, text corpora are in text/. Open safetensors.h first.
//
// This header reads and writes whole files.
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

/// Writes `path`.partial, syncs it and renames it, so that a crash leaves the old file or the new one. Of a
/// link the target is written in this way, and the link stays. A pipe or a device such as /dev/stdout is
/// written directly. Throws FileError.
void write_file(const std::filesystem::path& path, std::string_view bytes);
/// The same for consecutive pieces of the file.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);

}  // namespace fovea::files

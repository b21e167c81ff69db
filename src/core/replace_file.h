// Writes a whole file so that a crash leaves the old one or the new one.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace fovea {

/// Writes `path`.partial, syncs it and renames it. Of a link the target is written in this way, and the link
/// stays. A pipe or a device such as /dev/stdout is written directly. Throws FileError.
void replace_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);

/// Throws the FileError that replace_file would throw for a path that cannot be opened, and leaves all files
/// as they are. For a path that is written only after long work.
void check_replaceable(const std::filesystem::path& path);

}  // namespace fovea

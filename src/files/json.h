// Parses small texts as JSON documents. check_json_object checks the text first, so that errors have a
// position, and depth and tokens have limits.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace fovea::files {

/// Throws FileError for `file` with line and column: see check_json_object.
nlohmann::json parse_json_object(const std::string& file, const std::string& text, int depth);
/// The same for a file of at most `limit` bytes.
nlohmann::json read_json_object(const std::filesystem::path& path, std::size_t limit, int depth);

}  // namespace fovea::files

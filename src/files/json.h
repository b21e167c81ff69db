// JSON as a document, of a text that is small enough to become one: check_json_object has passed it, so that
// errors have their place and no depth and no token is too long.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace fovea::files {

/// Throws FileError of `file` with line and column: see check_json_object.
nlohmann::json parse_json_object(const std::string& file, const std::string& text, int depth);
/// The same of a file of at most `limit` bytes.
nlohmann::json read_json_object(const std::filesystem::path& path, std::size_t limit, int depth);

}  // namespace fovea::files

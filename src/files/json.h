// Parses small texts as JSON documents. check_json_object checks the text first, so that errors have a
// position, and depth and tokens have limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fovea::files {

/// Throws FileError for `file` with line and column: see check_json_object.
nlohmann::json parse_json_object(const std::string& file, const std::string& text, int depth);
/// The same for a file of at most `limit` bytes.
nlohmann::json read_json_object(const std::filesystem::path& path, std::size_t limit, int depth);

/// A value of any kind, whose members keep their order. Throws FileError for `file` with line and column for
/// what is no JSON, nests deeper than `depth`, or has a key twice in one object. `line` is that of `file` at
/// which the text begins.
nlohmann::ordered_json parse_ordered_json(const std::string& file, const std::string& text, int depth,
                                          std::int64_t line = 1);

/// `value` if it is a whole number in [least, most], else nothing. nlohmann::json casts any number to the
/// type that is asked for, which is undefined for 1e300 and wraps 2^63.
std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most);

}  // namespace fovea::files

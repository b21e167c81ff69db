// The small JSON files beside a tokenizer: tokenizer_config.json, special_tokens_map.json and others.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace fovea::text {

/// The object in `path`, empty where there is no such file. Throws FileError for a file that is no JSON
/// object, is nested deeper than 16 levels, or is larger than 16 MiB: some spell out the settings of 10,000
/// tokens.
nlohmann::json read_folder_config(const std::filesystem::path& path);

}  // namespace fovea::text

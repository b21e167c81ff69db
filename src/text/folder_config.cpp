#include "text/folder_config.h"

#include "files/json.h"

namespace fovea::text {

nlohmann::json read_folder_config(const std::filesystem::path& path) {
  constexpr std::size_t most_bytes = std::size_t{16} << 20;
  constexpr int most_levels = 16;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return nlohmann::json::object();
  return files::read_json_object(path, most_bytes, most_levels);
}

}  // namespace fovea::text

#include "files/json.h"

#include "files/json_scanner.h"
#include "fovea/files/bytes.h"

namespace fovea::files {

nlohmann::json parse_json_object(const std::string& file, const std::string& text, int depth) {
  check_json_object(file, text, depth);
  return nlohmann::json::parse(text);
}

nlohmann::json read_json_object(const std::filesystem::path& path, std::size_t limit, int depth) {
  return parse_json_object(path.string(), read_file(path, limit), depth);
}

}  // namespace fovea::files

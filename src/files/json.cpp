#include "files/json.h"

#include "files/json_scanner.h"
#include "fovea/files/bytes.h"

namespace fovea::files {

nlohmann::json parse_json_object(const std::string& file, const std::string& text, int depth) {
  check_json_object(file, text, depth);
  return nlohmann::json::parse(text);
}

nlohmann::ordered_json parse_ordered_json(const std::string& file, const std::string& text, int depth,
                                          std::int64_t line) {
  std::string scanned = text;
  if (scanned.starts_with("\xEF\xBB\xBF")) scanned.replace(0, 3, 3, ' ');  // a byte order mark
  JsonScanner scanner(file, scanned, JsonScanner::Position::line);
  scanner.begin_at_line(line);
  scanner.skip_value(depth, JsonScanner::Repeats::refused);
  scanner.finish();
  return nlohmann::ordered_json::parse(text);
}

nlohmann::json read_json_object(const std::filesystem::path& path, std::size_t limit, int depth) {
  return parse_json_object(path.string(), read_file(path, limit), depth);
}

std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    return std::nullopt;
  const auto number = value.get<std::int64_t>();
  return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

}  // namespace fovea::files

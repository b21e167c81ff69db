#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::text {
namespace {

// Some configs spell out the settings of 10,000 added tokens.
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr int kConfigDepth = 16;
// transformers writes 1e30 where there is no limit.
constexpr double kNoLimit = 1e9;

}  // namespace

bool has_json_tokenizer(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / "tokenizer.json", error);
}

FolderTokenizer read_folder_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json",
                              config_path = folder / "tokenizer_config.json";
  if (!has_json_tokenizer(folder))
    throw FileError(path.string(), -1, "is not there; token ids may be given instead of text");
  FolderTokenizer result{JsonTokenizer::read(path), std::nullopt};
  std::error_code error;
  if (!std::filesystem::exists(config_path, error)) return result;
  const nlohmann::json config = files::read_json_object(config_path, kMaxConfigBytes, kConfigDepth);
  if (const auto length = config.find("model_max_length");
      length != config.end() && length->is_number() && *length > 0 && *length < kNoLimit)
    result.max_length = length->get<std::int64_t>();
  // transformers goes by this key and not by the tokenizer.
  const auto lower = config.find("do_lower_case");
  const std::optional<bool> lower_cases = result.tokenizer.lower_cases();
  if (lower != config.end() && lower->is_boolean() && lower_cases && *lower != *lower_cases)
    throw FileError(config_path.string(), -1,
                    std::string("do_lower_case: expected ") + (*lower_cases ? "true" : "false") +
                        ", as tokenizer.json has it, got " + lower->dump());
  return result;
}

}  // namespace fovea::text

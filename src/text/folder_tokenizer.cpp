#include <algorithm>
#include <cmath>

#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "fovea/text/tokenizer_json.h"
#include "text/folder_config.h"
#include "text/sentencepiece_json.h"

namespace fovea::text {
namespace {

// transformers writes 1e30 where there is no limit.
constexpr double kNoLimit = 1e9;

using nlohmann::json;

[[noreturn]] void refuse(const std::filesystem::path& path, const char* key, const char* expected,
                         const json& got) {
  throw FileError(path.string(), -1,
                  std::string(key) + ": expected " + expected + ", got " +
                      excerpt(got.dump(-1, ' ', false, json::error_handler_t::replace)));
}

std::optional<std::int64_t> max_length_of(const json& config, const std::filesystem::path& path) {
  const json length = config.value("model_max_length", json());
  if (length.is_null()) return std::nullopt;
  if (!length.is_number() || length < 1)
    refuse(path, "model_max_length", "a whole number of at least 1", length);
  if (length >= kNoLimit) return std::nullopt;
  const double value = length.get<double>();
  if (value != std::floor(value)) refuse(path, "model_max_length", "a whole number of at least 1", length);
  return static_cast<std::int64_t>(value);
}

EncodeOptions::CutSide cut_side_of(const json& config, const std::filesystem::path& path) {
  const json side = config.value("truncation_side", json());
  if (side.is_null() || side == "right") return EncodeOptions::CutSide::right;
  if (side != "left") refuse(path, "truncation_side", "\"left\" or \"right\"", side);
  return EncodeOptions::CutSide::left;
}

// The id of mask_token, a text or an object with its settings. Configs of old versions leave it to the class.
std::optional<std::int32_t> mask_id_of(const json& config, const JsonTokenizer& tokenizer,
                                       const std::filesystem::path& path) {
  json mask = config.value("mask_token", json());
  if (mask.is_object()) mask = mask.value("content", json());
  if (!mask.is_null() && !mask.is_string()) refuse(path, "mask_token", "a token", mask);
  if (mask.is_string()) return tokenizer.id_of(mask.get<std::string>());
  for (const char* usual : {"[MASK]", "<mask>"}) {
    const std::optional<std::int32_t> id = tokenizer.id_of(usual);
    if (id && tokenizer.is_special(*id)) return id;
  }
  return std::nullopt;
}

// Where the names are absent the class decides. That of tokenizers without a class of their own has no types.
bool gives_types(const json& config) {
  const json names = config.value("model_input_names", json());
  if (names.is_array()) return std::find(names.begin(), names.end(), "token_type_ids") != names.end();
  const json name = config.value("tokenizer_class", json());
  return name != "TokenizersBackend" && name != "PreTrainedTokenizerFast";
}

}  // namespace

bool has_folder_tokenizer(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / "tokenizer.json", error) ||
         sentencepiece_file_in(folder).has_value();
}

FolderTokenizer read_folder_tokenizer(const std::filesystem::path& folder) {
  static constexpr ProfileLabel label{"reading a tokenizer", ProfilePart::data};
  const ProfileSpan span(label);
  const std::filesystem::path path = folder / "tokenizer.json",
                              config_path = folder / "tokenizer_config.json";
  std::error_code error;
  const bool has_json = std::filesystem::exists(path, error);
  const std::optional<std::filesystem::path> model = sentencepiece_file_in(folder);
  if (!has_json && !model)
    throw FileError(path.string(), -1, "is not there; token ids may be given instead of text");
  const json config = read_folder_config(config_path);
  FolderTokenizer result{has_json
                             ? JsonTokenizer::read(path)
                             : JsonTokenizer::from_json(sentencepiece_json(*model, config), model->string()),
                         std::nullopt,
                         EncodeOptions::CutSide::right,
                         {},
                         true};
  result.mask_id = mask_id_of(config, result.tokenizer, config_path);
  result.gives_types = gives_types(config);
  result.max_length = max_length_of(config, config_path);
  result.cut_side = cut_side_of(config, config_path);
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

// A folder with a SentencePiece model and no tokenizer.json, as the tokenizer.json that transformers would
// write for it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fovea::text {

/// The SentencePiece model of another library in a folder, if there is one.
std::optional<std::filesystem::path> sentencepiece_file_in(const std::filesystem::path& folder);

/// The tokenizer.json of `model`, a path that sentencepiece_file_in gave. `config` is tokenizer_config.json,
/// or an empty object. Its tokenizer_class decides, or else the model_type of config.json. Throws FileError
/// where these name no class of sentencepiece_classes(), or one that splits in another way than the model was
/// trained for. It also refuses files that are not what they should be.
std::string sentencepiece_json(const std::filesystem::path& model, const nlohmann::json& config);

}  // namespace fovea::text

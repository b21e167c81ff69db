// What the files of transformers beside a SentencePiece model say about its tokens.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/pipeline/added_tokens.h"
#include "text/sentencepiece_classes.h"

namespace fovea::text {

using pipeline::AddedToken;

/// tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder. The last two count as
/// transformers has it: only where the config has no added_tokens_decoder.
class SentencePieceSettings {
 public:
  /// `config` is tokenizer_config.json, or an empty object. Throws FileError.
  SentencePieceSettings(const std::filesystem::path& folder, const nlohmann::json& config);

  /// The class that the folder names, or that of its model_type. Throws FileError for `model`, the folder's
  /// SentencePiece model, if it is none that is known or has another file.
  const SentencePieceClass& class_of(const std::filesystem::path& model) const;
  /// The token with a name such as "eos_token"; without content if it has none. A text that is no object has
  /// the settings of the class.
  AddedToken named(const NamedToken& token) const;
  /// Whether the folder itself names the token.
  bool names(const char* key) const;
  /// Tokens that were added, by their ids.
  std::vector<AddedToken> added() const;
  /// Those that only count as special.
  std::vector<AddedToken> extra() const;
  bool flag(const char* key, bool otherwise) const;
  std::int64_t number(const char* key, std::int64_t most, std::int64_t otherwise) const;
  std::string text(const char* key) const;  ///< "" if it is not there
  /// Throws FileError.
  [[noreturn]] void refuse(const std::string& key, const std::string& expected,
                           const nlohmann::json& got) const;

 private:
  AddedToken token_of(const std::string& key, const nlohmann::json& value, AddedToken otherwise) const;

  std::filesystem::path folder_;
  nlohmann::json settings_, added_;  // added_: an object of ids and tokens, or of tokens and ids
  bool by_id_ = true;
};

}  // namespace fovea::text

#include "text/sentencepiece_settings.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "text/folder_config.h"

namespace fovea::text {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestId = std::int64_t{1} << 30;

std::string text_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

SentencePieceSettings::SentencePieceSettings(const std::filesystem::path& folder, const json& config)
    : folder_(folder), settings_(config), added_(config.value("added_tokens_decoder", json())) {
  if (!added_.is_null()) {
    if (!added_.is_object()) refuse("added_tokens_decoder", "an object", added_);
    return;
  }
  const json map = read_folder_config(folder / "special_tokens_map.json");
  for (const auto& [key, value] : map.items()) settings_[key] = value;
  added_ = read_folder_config(folder / "added_tokens.json");
  by_id_ = false;
}

void SentencePieceSettings::refuse(const std::string& key, const std::string& expected,
                                   const json& got) const {
  throw FileError((folder_ / "tokenizer_config.json").string(), -1,
                  key + ": expected " + expected + ", got " +
                      excerpt(got.dump(-1, ' ', false, json::error_handler_t::replace)));
}

const SentencePieceClass& SentencePieceSettings::class_of(const std::filesystem::path& model) const {
  const json of_model = read_folder_config(folder_ / "config.json");
  const std::string type = text_in(of_model, "model_type");
  std::string name = text("tokenizer_class");
  if (name.empty()) name = text_in(of_model, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const SentencePieceClass* found = nullptr;
  for (const SentencePieceClass& row : sentencepiece_classes()) {
    if (name.empty() ? std::ranges::find(row.model_types, type) != row.model_types.end() : row.name == name)
      found = &row;
  }
  if (found == nullptr) {
    const std::string said = !name.empty()   ? "tokenizer_class '" + excerpt(name) + "'"
                             : !type.empty() ? "model_type '" + excerpt(type) + "'"
                                             : std::string("neither tokenizer_class nor model_type");
    throw FileError(model.string(), -1,
                    "does not say the ids of this model, and the folder has " + said +
                        ", which does not say them either; save_pretrained of its tokenizer in transformers "
                        "writes a tokenizer.json, which does");
  }
  if (model.filename() != found->file)
    throw FileError(model.string(), -1,
                    "is not read by " + std::string(found->name) + ": expected " + found->file);
  return *found;
}

AddedToken SentencePieceSettings::token_of(const std::string& key, const json& value,
                                           AddedToken otherwise) const {
  if (value.is_string()) {
    otherwise.content = value.get<std::string>();
    return otherwise;
  }
  const auto boolean = [&](const char* member, bool without) {
    const json flag = value.value(member, json());
    if (!flag.is_null() && !flag.is_boolean()) refuse(key + "." + member, "true or false", flag);
    return flag.is_null() ? without : flag.get<bool>();
  };
  if (!value.is_object() || text_in(value, "content").empty()) refuse(key, "a token", value);
  AddedToken token{.content = text_in(value, "content"),
                   .single_word = boolean("single_word", false),
                   .lstrip = boolean("lstrip", false),
                   .rstrip = boolean("rstrip", false)};
  token.special = boolean("special", otherwise.special);
  token.normalized = boolean("normalized", !token.special);
  return token;
}

AddedToken SentencePieceSettings::named(const NamedToken& token) const {
  const AddedToken usual{.content = token.content == nullptr ? "" : token.content,
                         .lstrip = token.takes_blanks_before,
                         .normalized = false,
                         .special = true};
  return names(token.key) ? token_of(token.key, settings_[token.key], usual) : usual;
}

bool SentencePieceSettings::names(const char* key) const {
  const auto found = settings_.find(key);
  return found != settings_.end() && !found->is_null();
}

std::vector<AddedToken> SentencePieceSettings::added() const {
  std::map<std::int64_t, AddedToken> by_id;
  const std::vector<AddedToken> special = extra();
  for (const auto& [key, value] : added_.items()) {
    std::int64_t id = 0;
    AddedToken token;
    if (by_id_) {
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) refuse("added_tokens_decoder", "ids", key);
      token = token_of("added_tokens_decoder." + key, value, {});
    } else {
      if (!value.is_number_integer()) refuse("added_tokens.json: " + excerpt(key), "an id", value);
      id = value.get<std::int64_t>();
      token.content = key;
      token.special = std::ranges::find(special, key, &AddedToken::content) != special.end();
      token.normalized = !token.special;
    }
    if (id < 0 || id > kLargestId) refuse("added tokens", "ids from 0 on", id);
    if (token.content.empty()) refuse("added tokens", "no empty token", key);
    by_id.insert_or_assign(id, std::move(token));
  }
  std::vector<AddedToken> tokens;
  for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  return tokens;
}

std::vector<AddedToken> SentencePieceSettings::extra() const {
  std::vector<AddedToken> tokens;
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto found = settings_.find(key);
    if (found == settings_.end() || !(found->is_array() || found->is_object())) continue;
    for (const json& value : *found)
      tokens.push_back(token_of(key, value, {.content = {}, .normalized = false, .special = true}));
  }
  return tokens;
}

bool SentencePieceSettings::flag(const char* key, bool otherwise) const {
  if (!names(key)) return otherwise;
  if (!settings_[key].is_boolean()) refuse(key, "true or false", settings_[key]);
  return settings_[key].get<bool>();
}

std::int64_t SentencePieceSettings::number(const char* key, std::int64_t most, std::int64_t otherwise) const {
  if (!names(key)) return otherwise;
  const json& value = settings_[key];
  if (!value.is_number_integer() || value < 0 || value > most)
    refuse(key, "a whole number from 0 to " + std::to_string(most), value);
  return value.get<std::int64_t>();
}

std::string SentencePieceSettings::text(const char* key) const {
  return text_in(settings_, key);
}

}  // namespace fovea::text

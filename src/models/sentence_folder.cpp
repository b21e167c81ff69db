#include "fovea/models/sentence_folder.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::models {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr int kDepth = 16;
constexpr std::int64_t kMostIds = std::int64_t{1} << 30;
using Kind = SentencePooling::Kind;

struct Module {
  std::string kind;  // the last part of "sentence_transformers.models.Pooling"
  std::filesystem::path folder;
};

// modules.json is an array, which the reader of objects does not take.
std::vector<Module> read_modules(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "modules.json";
  const auto refuse = [&](const std::string& reason) { throw FileError(path.string(), -1, reason); };
  const nlohmann::ordered_json modules =
      files::parse_ordered_json(path.string(), files::read_file(path, kMaxBytes), kDepth);
  if (!modules.is_array()) refuse("expected an array of modules");
  std::vector<Module> result;
  const auto is_text = [](const nlohmann::ordered_json& module, const char* key) {
    return module.contains(key) && module[key].is_string();
  };
  for (const nlohmann::ordered_json& module : modules) {
    if (!module.is_object() || !is_text(module, "type") || !is_text(module, "path"))
      refuse("expected modules with a type and a path");
    const auto type = module["type"].get<std::string>();
    const std::filesystem::path below = module["path"].get<std::string>();
    const bool inside = below.is_relative() && std::none_of(below.begin(), below.end(),
                                                            [](const auto& part) { return part == ".."; });
    if (!inside) refuse("path: expected a folder inside, got '" + excerpt(below.string()) + "'");
    result.push_back({type.substr(type.rfind('.') + 1), below.empty() ? folder : folder / below});
  }
  return result;
}

struct Pooling {
  SentencePooling pooling;
  bool includes_prompt = true;
};

Pooling read_pooling(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const json config = files::read_json_object(path, kMaxBytes, kDepth);
  const auto refuse = [&](const std::string& reason) -> FileError {
    return FileError(path.string(), -1, reason);
  };
  constexpr std::pair<std::string_view, Kind> flags[] = {
      {"pooling_mode_cls_token", Kind::first},
      {"pooling_mode_lasttoken", Kind::last},
      {"pooling_mode_mean_tokens", Kind::mean},
      {"pooling_mode_mean_sqrt_len_tokens", Kind::mean_sqrt_len},
      {"pooling_mode_max_tokens", Kind::max}};
  constexpr std::pair<std::string_view, Kind> names[] = {{"cls", Kind::first},
                                                         {"lasttoken", Kind::last},
                                                         {"mean", Kind::mean},
                                                         {"mean_sqrt_len_tokens", Kind::mean_sqrt_len},
                                                         {"max", Kind::max}};
  std::vector<Kind> kinds;
  bool includes_prompt = true;
  for (const auto& [key, value] : config.items()) {
    const auto flag = std::find_if(std::begin(flags), std::end(flags),
                                   [&key = key](const auto& known) { return known.first == key; });
    if (flag != std::end(flags)) {
      if (!value.is_boolean())
        throw refuse(excerpt(key) + ": expected true or false, got " + excerpt(value.dump()));
      if (value == true) kinds.push_back(flag->second);
    } else if (key == "pooling_mode") {
      const auto name = std::find_if(std::begin(names), std::end(names), [&value = value](const auto& known) {
        return value.is_string() && value == known.first;
      });
      if (name == std::end(names)) throw refuse("pooling_mode: is not known: " + excerpt(value.dump()));
      kinds.push_back(name->second);
    } else if (key.starts_with("pooling_mode_")) {
      if (value != false) throw refuse(excerpt(key) + ": is not known");
    } else if (key == "include_prompt") {
      if (!value.is_boolean())
        throw refuse("include_prompt: expected true or false, got " + excerpt(value.dump()));
      includes_prompt = value.get<bool>();
    } else if (key != "word_embedding_dimension" && key != "embedding_dimension") {
      throw refuse(excerpt(key) + ": is not known");
    }
  }
  if (kinds.size() != 1) throw refuse("expected one mode of pooling, got " + std::to_string(kinds.size()));
  return {{kinds.front(), false}, includes_prompt};
}

// What sentence-transformers 6 writes of a model that reads texts alone and gives its last hidden states.
// Another value means other inputs or other numbers. `unpad_inputs` changes how batches are computed, and not
// what.
bool says_texts_alone(const std::string& key, const json& value) {
  static const std::map<std::string, json> expected{
      {"transformer_task", "feature-extraction"},
      {"modality_config", {{"text", {{"method", "forward"}, {"method_output_name", "last_hidden_state"}}}}},
      {"module_output_name", "token_embeddings"},
      {"processing_kwargs", json::object()},
      {"query_length", nullptr},
      {"document_length", nullptr},
      {"query_expansion", nullptr}};
  if (key == "unpad_inputs") return value.is_boolean() || value.is_null();
  const auto found = expected.find(key);
  return found != expected.end() && found->second == value;
}

// Beside the model lies a config that is named after its family; the first one there counts.
std::optional<std::int64_t> read_max_length(const std::filesystem::path& folder) {
  for (const char* family :
       {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
    const std::filesystem::path path = folder / (std::string("sentence_") + family + "_config.json");
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    const json config = files::read_json_object(path, kMaxBytes, kDepth);
    std::optional<std::int64_t> length;
    for (const auto& [key, value] : config.items()) {
      const auto refuse = [&, &key = key, &value = value](const std::string& expected) {
        throw FileError(path.string(), -1,
                        excerpt(key) + ": expected " + expected + ", got " + excerpt(value.dump()));
      };
      if (key == "do_lower_case") {
        // It would make letters small before the tokenizer sees them.
        if (value != false) refuse("false");
      } else if (says_texts_alone(key, value)) {
        continue;
      } else if (key != "max_seq_length") {
        throw FileError(
            path.string(), -1,
            excerpt(key) + ": is not known, or asks for more than texts: " + excerpt(value.dump()));
      } else if (!value.is_null()) {
        if (!value.is_number_integer() || value < 1 || value > kMostIds)
          refuse("a whole number from 1 to " + std::to_string(kMostIds));
        length = value.get<std::int64_t>();
      }
    }
    return length;
  }
  return std::nullopt;
}

std::string text_of(const std::filesystem::path& path, const std::string& key, const json& value) {
  if (!value.is_string())
    throw FileError(path.string(), -1, key + ": expected a text, got " + excerpt(value.dump()));
  return value.get<std::string>();
}

Similarity similarity_of(const std::filesystem::path& path, const std::string& name) {
  for (const Similarity known :
       {Similarity::cosine, Similarity::dot, Similarity::euclidean, Similarity::manhattan}) {
    if (name == to_string(known)) return known;
  }
  throw FileError(
      path.string(), -1,
      "similarity_fn_name: expected cosine, dot, euclidean or manhattan, got '" + excerpt(name) + "'");
}

std::filesystem::path search_path(const std::filesystem::path& folder) {
  return folder / "config_sentence_transformers.json";
}

// How vectors are compared, and what stands before texts. sentence-transformers passes over all other keys of
// this file, such as its versions, and so does this reader.
void read_search(const std::filesystem::path& folder, SentenceFolder& result) {
  const std::filesystem::path path = search_path(folder);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  const json config = files::read_json_object(path, kMaxBytes, kDepth);
  const auto value = [&](const char* key) { return config.value(key, json()); };
  const auto refuse = [&](const std::string& reason) { throw FileError(path.string(), -1, reason); };
  if (const json name = value("similarity_fn_name"); !name.is_null())
    result.similarity = similarity_of(path, text_of(path, "similarity_fn_name", name));
  if (const json dim = value("truncate_dim"); !dim.is_null()) {
    if (!dim.is_number_integer() || dim < 1 || dim > kMostIds)
      refuse("truncate_dim: expected a whole number from 1, got " + excerpt(dim.dump()));
    result.truncate_dim = dim.get<std::int64_t>();
  }
  if (const json prompts = value("prompts"); !prompts.is_null()) {
    if (!prompts.is_object()) refuse("prompts: expected an object, got " + excerpt(prompts.dump()));
    for (const auto& [name, prompt] : prompts.items())
      result.prompts[name] = prompt.is_null() ? "" : text_of(path, "prompts: " + excerpt(name), prompt);
  }
  if (const json name = value("default_prompt_name"); !name.is_null()) {
    result.default_prompt = text_of(path, "default_prompt_name", name);
    if (!result.prompts.contains(result.default_prompt))
      refuse("default_prompt_name: expected the name of a prompt, got '" + excerpt(result.default_prompt) +
             "'");
  }
}

}  // namespace

std::int64_t SentenceFolder::longest(std::optional<std::int64_t> of_tokenizer, std::int64_t positions) const {
  return std::min(max_length.value_or(of_tokenizer.value_or(positions)), positions);
}

const std::string& SentenceFolder::prompt(const std::string& name) const {
  static const std::string none;
  const std::string& chosen = name.empty() ? default_prompt : name;
  if (chosen.empty()) return none;
  const auto found = prompts.find(chosen);
  if (found != prompts.end()) return found->second;
  std::string names;
  for (const auto& [known, text] : prompts) names += (names.empty() ? "" : ", ") + known;
  throw InvalidArgument("SentenceFolder::prompt", "name",
                        names.empty() ? "none: the folder has no prompts" : "one of " + excerpt(names),
                        "'" + excerpt(name) + "'");
}

const std::string& SentenceFolder::query_prompt() const {
  return prompt(prompts.contains("query") ? "query" : "");
}

const std::string& SentenceFolder::passage_prompt() const {
  for (const char* name : {"document", "passage", "corpus"}) {
    if (prompts.contains(name)) return prompt(name);
  }
  return prompt("");
}

std::optional<SentenceFolder> read_sentence_folder(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path path = folder / "modules.json";
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const std::vector<Module> modules = read_modules(folder);
  std::string kinds;
  for (const Module& module : modules) kinds += (kinds.empty() ? "" : ", ") + module.kind;
  if (kinds != "Transformer, Pooling" && kinds != "Transformer, Pooling, Normalize")
    throw FileError(path.string(), -1,
                    "expected the modules Transformer, Pooling and perhaps Normalize, got " + excerpt(kinds));
  const Pooling pooling = read_pooling(modules[1].folder);
  SentenceFolder result{.model = modules[0].folder,
                        .pooling = pooling.pooling,
                        .max_length = read_max_length(modules[0].folder),
                        .pools_prompt = pooling.includes_prompt};
  result.pooling.normalize = modules.size() == 3;
  read_search(folder, result);
  return result;
}

bool makes_sentence_vectors(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder / "modules.json", error)) return false;
  if (!std::filesystem::exists(search_path(folder), error)) return true;
  return files::read_json_object(search_path(folder), kMaxBytes, kDepth).value("model_type", json()) !=
         "CrossEncoder";
}

}  // namespace fovea::models

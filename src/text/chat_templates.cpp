// The templates of a folder, and what transformers hands to them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/text/chat_template.h"
#include "text/folder_config.h"

namespace fovea::text {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMostTemplates = 100;
constexpr const char* kTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                   "pad_token", "cls_token", "mask_token"};
constexpr const char* kDefault = "default";

// Their texts: a token is a text, or an object with its settings.
std::string special_tokens(const std::filesystem::path& folder, const json& config) {
  const json old = read_folder_config(folder / "special_tokens_map.json");
  ordered_json tokens = ordered_json::object();
  for (const char* name : kTokens) {
    for (const json* source : {&config, &old}) {
      json token = source->value(name, json());
      if (token.is_object()) token = token.value("content", json());
      if (token.is_null()) continue;
      if (!token.is_string())
        throw FileError((folder / "tokenizer_config.json").string(), -1,
                        std::string(name) + ": expected a token, got " + excerpt(token.dump()));
      tokens[name] = token.get<std::string>();
      break;
    }
  }
  return tokens.dump();
}

// `chat_template` of tokenizer_config.json: a text, or a list of {"name", "template"}.
std::map<std::string, std::string> templates_of(const json& config, const std::string& path) {
  const json value = config.value("chat_template", json());
  if (value.is_null()) return {};
  if (value.is_string()) return {{kDefault, value.get<std::string>()}};
  const auto refuse = [&] {
    return FileError(path, -1, "chat_template: expected a text, or a list of objects with name and template");
  };
  if (!value.is_array() || value.size() > kMostTemplates) throw refuse();
  std::map<std::string, std::string> templates;
  for (const json& one : value) {
    if (!one.is_object() || !one.value("name", json()).is_string() ||
        !one.value("template", json()).is_string())
      throw refuse();
    templates[one["name"].get<std::string>()] = one["template"].get<std::string>();
  }
  return templates;
}

InvalidArgument refused(const char* argument, const char* expected, const std::string& got) {
  return {"ChatTemplates::render", argument, expected, got};
}

// A part of a conversation.
ordered_json parsed(const char* argument, const std::string& text) {
  try {
    return files::parse_ordered_json("JSON", text, kMostChatDepth);
  } catch (const FileError& error) {
    throw refused(argument, "JSON", std::string("an error, ") + error.what());
  }
}

// transformers leaves out keys of null, and hands reasoning over under the names that templates know.
ordered_json message_of(const ordered_json& given) {
  static constexpr const char* reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};
  ordered_json message = ordered_json::object();
  const auto reasoning = std::ranges::find_if(reasoning_names, [&](const char* name) {
    const auto found = given.find(name);
    return found != given.end() && !found->is_null();
  });
  if (reasoning != std::end(reasoning_names)) message["thinking"] = given[*reasoning];
  for (const auto& [key, value] : given.items()) {
    if (!value.is_null()) message[key] = value;
  }
  if (reasoning != std::end(reasoning_names)) message["reasoning_content"] = given[*reasoning];
  return message;
}

ordered_json messages_of(const Chat& chat) {
  const ordered_json given = parsed("chat.messages", chat.messages);
  if (!given.is_array() || given.empty() ||
      !std::ranges::all_of(given, [](const ordered_json& message) { return message.is_object(); }))
    throw refused("chat.messages", "an array of at least one object", excerpt(chat.messages));
  ordered_json messages = ordered_json::array();
  for (const ordered_json& message : given) messages.push_back(message_of(message));
  return messages;
}

std::map<std::string, std::filesystem::path> template_files(const std::filesystem::path& folder) {
  std::map<std::string, std::filesystem::path> found;
  std::error_code error;
  if (std::filesystem::exists(folder / "chat_template.jinja", error))
    found[kDefault] = folder / "chat_template.jinja";
  const std::filesystem::path more = folder / "additional_chat_templates";
  if (!std::filesystem::is_directory(more, error)) return found;
  for (const auto& entry : std::filesystem::directory_iterator(more, error)) {
    if (entry.path().extension() == ".jinja" && found.size() < kMostTemplates)
      found[entry.path().stem().string()] = entry.path();
  }
  return found;
}

}  // namespace

bool ChatTemplates::are_in(const std::filesystem::path& folder) {
  return !template_files(folder).empty() ||
         !read_folder_config(folder / "tokenizer_config.json").value("chat_template", json()).is_null();
}

ChatTemplates ChatTemplates::read(const std::filesystem::path& folder) {
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  const json config = read_folder_config(config_path);
  ChatTemplates result;
  result.tokens_ = special_tokens(folder, config);
  // The files take the place of what the config says, as in transformers.
  for (const auto& [name, path] : template_files(folder)) {
    result.sources_[name] = files::read_file(path, kMostTemplateBytes);
    result.files_[name] = path.string();
  }
  if (result.sources_.empty()) {
    result.sources_ = templates_of(config, config_path.string());
    for (const auto& [name, source] : result.sources_)
      result.files_[name] = config_path.string() + ", chat_template" + (name == kDefault ? "" : " " + name);
  }
  if (result.sources_.empty())
    throw FileError(
        folder.string(), -1,
        "has no chat template: neither chat_template.jinja nor chat_template of tokenizer_config.json");
  return result;
}

const std::string& ChatTemplates::source_for(const std::string& name, bool tools) const {
  const auto found = [&](const std::string& wanted) { return sources_.find(wanted) != sources_.end(); };
  std::string names;
  for (const auto& [known, source] : sources_) names += (names.empty() ? "" : ", ") + known;
  if (!name.empty()) {
    if (!found(name)) throw refused("name", names.c_str(), excerpt(name));
    return sources_.find(name)->first;
  }
  if (tools && found("tool_use")) return sources_.find("tool_use")->first;
  if (!found(kDefault)) throw refused("name", names.c_str(), "none, and no template is the default");
  return sources_.find(kDefault)->first;
}

std::string ChatTemplates::render(const Chat& chat, const std::string& name) const {
  ordered_json variables = ordered_json::parse(tokens_);
  ordered_json given = ordered_json::object();
  if (!chat.variables.empty()) given = parsed("chat.variables", chat.variables);
  if (!given.is_object()) throw refused("chat.variables", "an object", excerpt(chat.variables));
  for (const char* taken : {"messages", "tools", "add_generation_prompt"}) {
    if (given.contains(taken)) throw refused("chat.variables", "variables of other names", taken);
  }
  variables["documents"] = nullptr;
  for (const auto& [key, value] : given.items()) variables[key] = value;
  variables["messages"] = messages_of(chat);
  variables["tools"] = nullptr;
  if (!chat.tools.empty()) {
    variables["tools"] = parsed("chat.tools", chat.tools);
    if (!variables["tools"].is_array() ||
        !std::ranges::all_of(variables["tools"], [](const ordered_json& tool) { return tool.is_object(); }))
      throw refused("chat.tools", "an array of objects", excerpt(chat.tools));
  }
  variables["add_generation_prompt"] = chat.answer == Chat::Answer::begun;
  const std::string& chosen = source_for(name, !chat.tools.empty());
  return Template::parse(sources_.at(chosen), files_.at(chosen)).render(variables.dump());
}

}  // namespace fovea::text

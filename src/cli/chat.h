// Conversations as prompts: what `fovea generate` takes, under the chat template of the model's folder.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/options.h"
#include "fovea/text/chat_template.h"

namespace fovea::cli {

struct ChatOptions {
  bool chat = false;         ///< the prompt is what the user says
  bool show_prompt = false;  ///< print the text, and write none
  std::string system, messages, tools, variables, name;
};

/// Adds --chat, --system, --messages, --tools, --template-variables, --template and --show-prompt.
void add_chat_options(Command command, ChatOptions& options);

class ChatPrompts {
 public:
  /// Reads the folder's templates, and the files of the options. Throws FileError and InvalidArgument.
  ChatPrompts(const std::filesystem::path& folder, const ChatOptions& options);

  /// The text of --messages, and behind them `said` by the user. --system stands before all.
  std::string of_text(const std::optional<std::string>& said) const;
  /// The text of an array of messages, or of a text that the user says, with tools of its own or null.
  /// Throws InvalidArgument with the arguments of ChatTemplates::render: "chat.messages", "chat.tools".
  std::string of_line(const nlohmann::ordered_json& said, const nlohmann::ordered_json& tools) const;

 private:
  std::string render(nlohmann::ordered_json messages, const nlohmann::ordered_json& tools) const;

  text::ChatTemplates templates_;
  std::string name_, variables_, system_;
  nlohmann::ordered_json messages_, tools_;
};

/// Whether an option asks for a conversation.
bool is_chat(const ChatOptions& options);

}  // namespace fovea::cli

#include "cli/chat.h"

#include <map>

#include "cli/texts.h"
#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"

namespace fovea::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

// Without a byte order mark.
std::string text_of(const std::string& path) {
  std::string text = read_whole(path, kMostBytes);
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

ordered_json parsed(const std::string& name, const std::string& text, std::int64_t line = 1) {
  return files::parse_ordered_json(name, text, text::kMostChatDepth, line);
}

// A message for each line.
ordered_json lines_of(const std::string& name, const std::string& text) {
  ordered_json messages = ordered_json::array();
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string::npos) messages.push_back(parsed(name, line, number));
  }
  return messages;
}

// An array of messages, an object with "messages", or a message a line.
ordered_json read_messages(const std::string& path, ordered_json& tools) {
  const std::string name = name_of(path), text = text_of(path);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) throw FileError(name, -1, "has no message");
  // Several lines of which each is JSON are messages; anything else is one value.
  const std::size_t line_end = text.find('\n', begin);
  const bool several = line_end != std::string::npos && text[begin] == '{' &&
                       ordered_json::accept(text.substr(begin, line_end - begin)) &&
                       text.find_first_not_of(" \t\r\n", line_end) != std::string::npos;
  if (several) return lines_of(name, text);
  ordered_json whole = parsed(name, text);
  if (whole.is_array()) return whole;
  if (!whole.is_object())
    throw FileError(name, -1,
                    "expected an array of messages, an object with \"messages\", or a message a line, got " +
                        excerpt(text));
  if (!whole.contains("messages")) return ordered_json::array({whole});
  if (whole.contains("tools")) tools = whole["tools"];
  return whole["messages"];
}

std::string dumped(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// What a user or the instructions say has a text, or parts. What else a message may hold is up to the
// template.
void check_messages(const ordered_json& messages) {
  for (std::size_t n = 0; n < messages.size(); ++n) {
    const ordered_json& message = messages[n];
    const auto refuse = [&](const std::string& expected, const std::string& got) {
      throw InvalidArgument("fovea generate", "message " + std::to_string(n + 1), expected, got);
    };
    if (!message.is_object()) refuse("an object with \"role\" and \"content\"", excerpt(dumped(message)));
    const ordered_json role = message.value("role", ordered_json()),
                       content = message.value("content", ordered_json());
    const bool says = role == "user" || role == "system" || role == "developer";
    if (says && !content.is_string() && !content.is_array())
      refuse("a text or an array as \"content\"", content.is_null() ? "none" : excerpt(dumped(content)));
  }
}

ordered_json message(const char* role, const ordered_json& content) {
  return ordered_json::object({{"role", role}, {"content", content}});
}

}  // namespace

void add_chat_options(Command command, ChatOptions& options) {
  command.add_flag("--chat", options.chat,
                   "the prompt is what a user says: the folder's chat template is applied");
  command.add_option("--system", options.system, "with --chat: instructions before all messages");
  command
      .add_option("--messages", options.messages,
                  "file of a conversation, or - for standard input: a JSON array of messages, an object with "
                  "messages and tools, or a message a line; a prompt is said behind them")
      .check(file_name());
  command.add_option("--tools", options.tools, "file with a JSON array of the tools that the model may call")
      .check(file_name());
  command.add_option(
      "--template-variables", options.variables,
      "JSON object of further variables of the template, such as '{\"enable_thinking\": false}'");
  command.add_option("--template", options.name, "name of the template, where the folder has several");
  command.add_flag("--show-prompt", options.show_prompt,
                   "print the text that the template makes, and write nothing; with --json its ids too");
}

bool is_chat(const ChatOptions& options) {
  return options.chat || !options.messages.empty();
}

ChatPrompts::ChatPrompts(const std::filesystem::path& folder, const ChatOptions& options)
    : templates_(text::ChatTemplates::read(folder)),
      name_(options.name),
      variables_(options.variables),
      system_(options.system),
      messages_(ordered_json::array()) {
  if (!options.messages.empty()) messages_ = read_messages(options.messages, tools_);
  if (!messages_.is_array())
    throw FileError(name_of(options.messages), -1,
                    "\"messages\": expected an array, got " + excerpt(dumped(messages_)));
  check_messages(messages_);
  if (!options.tools.empty()) tools_ = parsed(name_of(options.tools), text_of(options.tools));
  if (!variables_.empty() && !parsed("--template-variables", variables_).is_object())
    throw InvalidArgument("fovea generate", "--template-variables", "a JSON object", excerpt(variables_));
}

std::string ChatPrompts::render(ordered_json messages, const ordered_json& tools) const {
  if (!system_.empty()) messages.insert(messages.begin(), message("system", system_));
  return templates_.render(
      {.messages = dumped(messages), .tools = tools.is_null() ? "" : dumped(tools), .variables = variables_},
      name_);
}

std::string ChatPrompts::of_text(const std::optional<std::string>& said) const {
  ordered_json messages = messages_;
  if (said) messages.push_back(message("user", *said));
  try {
    return render(std::move(messages), tools_);
  } catch (const InvalidArgument& error) {
    // By the names that the user wrote.
    static const std::map<std::string, const char*> options{{"chat.messages", "--messages"},
                                                            {"chat.tools", "--tools"},
                                                            {"chat.variables", "--template-variables"},
                                                            {"name", "--template"}};
    const auto option = options.find(error.argument());
    if (option == options.end()) throw;
    throw InvalidArgument("fovea generate", option->second, error.expected(), error.got());
  }
}

std::string ChatPrompts::of_line(const ordered_json& said, const ordered_json& tools) const {
  ordered_json messages = messages_;
  if (said.is_array()) {
    check_messages(said);
    messages.insert(messages.end(), said.begin(), said.end());
  } else {
    messages.push_back(message("user", said));
  }
  return render(std::move(messages), tools.is_null() ? tools_ : tools);
}

}  // namespace fovea::cli

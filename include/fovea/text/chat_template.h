// Chat templates: a model's folder says in the language of Jinja how a conversation becomes one text. The
// interpreter is our own (docs/decisions/0035), with the settings of transformers: trim_blocks,
// lstrip_blocks, an immutable sandbox, tojson, raise_exception and strftime_now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fovea::text {

/// What rendering may cost. Both grow with the variables, which are the caller's.
struct TemplateLimits {
  std::int64_t steps = 20'000'000;   ///< about 2 s
  std::int64_t bytes = 256LL << 20;  ///< of texts and values, all that were made counted together
};

constexpr std::size_t kMostTemplateBytes = std::size_t{4} << 20;
/// How deep the JSON of messages, tools and variables may nest.
constexpr int kMostChatDepth = 64;

/// Immutable after construction; const calls may come from several threads at once.
class Template {
 public:
  /// Throws FileError with the line for a syntax error, an unsupported statement, or nesting deeper than 60;
  /// and FileError for a source over kMostTemplateBytes. `name` is used in errors.
  static Template parse(std::string_view source, const std::string& name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// `variables` is a JSON object; its keys are the names. `now` is what strftime_now tells; without it the
  /// clock. Throws InvalidArgument for variables that are no such object, and FileError, with the line, where
  /// the template fails, refuses the conversation (raise_exception), or costs more than the limits.
  std::string render(std::string_view variables, const TemplateLimits& limits = {},
                     std::optional<std::time_t> now = {}) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

/// A conversation. Every text of it is JSON.
struct Chat {
  std::string messages;   ///< an array of objects such as {"role": "user", "content": "..."}
  std::string tools;      ///< an array of tools' descriptions; "": none
  std::string variables;  ///< an object of further variables, such as {"enable_thinking": false}; "": none
  /// Whether the text ends with the beginning of the model's answer.
  enum class Answer : std::uint8_t { begun, left_out };
  Answer answer = Answer::begun;
};

/// The templates of a model's folder: chat_template.jinja, or else chat_template of tokenizer_config.json,
/// with those of additional_chat_templates.
class ChatTemplates {
 public:
  /// Throws FileError for a file that cannot be read or is none, and for a folder without a template.
  static ChatTemplates read(const std::filesystem::path& folder);
  static bool are_in(const std::filesystem::path& folder);

  /// The text of a conversation under the template `name`. Without a name it is "tool_use" for a conversation
  /// with tools where there is one, and else "default". Throws InvalidArgument for a name that is not there,
  /// and for messages, tools and variables that are not what Chat says; FileError as Template::render.
  std::string render(const Chat& chat, const std::string& name = {}) const;
  /// The names and the sources.
  const std::map<std::string, std::string>& sources() const noexcept { return sources_; }

 private:
  const std::string& source_for(const std::string& name, bool tools) const;

  std::map<std::string, std::string> sources_, files_;
  std::string tokens_;  // JSON: bos_token and its like
};

}  // namespace fovea::text

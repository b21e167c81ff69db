// What the options of `fovea generate` may not be, alone, together and with what the folder says.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/texts.h"
#include "fovea/core/error.h"

namespace fovea::cli {
namespace {

void check_chat(const GenerateOptions& o) {
  const auto refuse = [](const char* option, const std::string& expected, const std::string& got) {
    throw InvalidArgument("fovea generate", option, expected, got);
  };
  if (!is_chat(o.chat)) {
    for (const auto& [option, given] :
         {std::pair{"--system", !o.chat.system.empty()}, {"--show-prompt", o.chat.show_prompt}}) {
      if (given) refuse(option, "--chat or --messages beside it", "neither");
    }
    // A line of --input may have messages without them.
    for (const auto& [option, value] : {std::pair{"--tools", o.chat.tools},
                                        {"--template-variables", o.chat.variables},
                                        {"--template", o.chat.name}}) {
      if (!value.empty() && o.input.empty())
        refuse(option, "--chat, --messages or --input beside it", "none");
    }
  }
  if (is_chat(o.chat) && !(o.save_state.empty() && o.load_state.empty()))
    refuse("--chat", "no --save-state and no --load-state beside it", "one of them");
  if (o.chat.show_prompt && !o.input.empty()) refuse("--show-prompt", "nothing beside --input", o.input);
}

// What keeps num_beams of the folder from being applied; "" if nothing does.
std::string against_beams(const GenerateOptions& o) {
  if (o.sample.length == 0) return "nothing is written";
  if (o.stats) return "--stats counts the cache of one text";
  if (!(o.save_state.empty() && o.load_state.empty())) return "a state is of one text";
  return "";
}

}  // namespace

void check_beams(const GenerateOptions& o) {
  if (o.beams == 1) {
    if (!o.searches.empty())
      throw InvalidArgument("fovea generate", o.searches.front(), "a --beam-size above 1 beside it", "none");
    return;
  }
  const auto refuse = [](const char* expected, const std::string& got) {
    throw InvalidArgument("fovea generate", "--beam-size", expected, got);
  };
  if (o.sample.length == 0) refuse("a --length of at least 1 beside it", "0");
  if (o.stats) refuse("nothing beside --stats, which counts the cache of one text", "--stats");
  if (!(o.save_state.empty() && o.load_state.empty()))
    refuse("nothing beside --save-state and --load-state", "a state");
}

void use_search(const models::GenerationDefaults& defaults, GenerateOptions& o) {
  if (o.beams == 0) {
    o.beams = defaults.beams;
    if (const std::string reason = against_beams(o); o.beams > 1 && !reason.empty()) {
      fmt::print(stderr, "fovea: num_beams = {} of {} is not applied: {}\n", o.beams, defaults.file, reason);
      o.beams = 1;
    }
  }
  const auto given = [&](const char* option) {
    return std::ranges::find(o.searches, option) != o.searches.end();
  };
  if (!given("--length-penalty")) o.length_penalty = defaults.length_penalty;
  if (!given("--early-stopping")) o.early_stopping = defaults.early_stopping;
  // Beams are drawn where somebody says so. A folder that says nothing draws single texts, and searches.
  if (o.beams > 1 && o.draws.empty() && !defaults.draws) o.sample.temperature = 0.0;
}

void check(const GenerateOptions& o) {
  const auto refuse = [](const char* option, const std::string& expected, const std::string& got) {
    throw InvalidArgument("fovea generate", option, expected, got);
  };
  check_utf8("fovea generate", "--prompt", o.prompt);
  check_utf8("fovea generate", "--system", o.chat.system);
  for (const std::string& stop : o.stop) check_utf8("fovea generate", "--stop", stop);
  if (!o.prompt_ids.empty()) {
    for (const auto& [option, given] : {std::pair{"--prompt", o.prompt_given},
                                        {"--input", !o.input.empty()},
                                        {"--save-state", !o.save_state.empty()},
                                        {"--load-state", !o.load_state.empty()},
                                        {"--line", o.line},
                                        {"--stop", !o.stop.empty()},
                                        {"--stats", o.stats},
                                        {"--chat", o.chat.chat},
                                        {"--messages", !o.chat.messages.empty()},
                                        {"--system", !o.chat.system.empty()},
                                        {"--tools", !o.chat.tools.empty()},
                                        {"--template", !o.chat.name.empty()},
                                        {"--template-variables", !o.chat.variables.empty()},
                                        {"--show-prompt", o.chat.show_prompt}}) {
      if (given) refuse(option, "nothing beside --prompt-ids", "a value");
    }
    return;
  }
  check_chat(o);
  if (o.json && !o.input.empty())
    refuse("--json", "nothing beside --input, whose answers are JSON", "--json");
  if (!o.input.empty() && o.prompt_given) refuse("--prompt", "nothing beside --input", "a prompt");
  for (const auto& [option, value] :
       {std::pair{"--save-state", o.save_state}, std::pair{"--load-state", o.load_state}}) {
    if (!o.input.empty() && !value.empty()) refuse(option, "nothing beside --input", value);
  }
  if (o.input.empty() && !o.prompt_given && o.load_state.empty() && o.chat.messages.empty())
    refuse("--prompt", "a prompt, --input, --messages or --load-state", "none");
  if (!o.stop.empty() && !(o.save_state.empty() && o.load_state.empty()))
    refuse("--stop", "nothing beside --save-state and --load-state", o.stop.front());
  for (const std::string& stop : o.stop) {
    if (stop.empty()) refuse("--stop", "a text of at least one byte", "an empty one");
  }
  for (const std::string* read : {&o.input, &o.load_state}) {
    if (!o.output.empty() && !read->empty() && same_file(o.output, *read))
      refuse("--output", "a file other than those it reads", o.output);
  }
  if (!o.output.empty() && !o.save_state.empty() && same_file(o.output, o.save_state))
    refuse("--output", "a file other than --save-state", o.output);
  // A state is written behind the text, which would then be lost for the state.
  const std::filesystem::path state = o.save_state,
                              folder = state.has_parent_path() ? state.parent_path() : ".";
  std::error_code ignored;
  if (!o.save_state.empty() &&
      (std::filesystem::is_directory(state, ignored) || ::access(folder.c_str(), W_OK) != 0))
    refuse("--save-state", "a file in a folder that may be written to", o.save_state);
}

void check_positions(GenerateOptions& o, std::int64_t positions) {
  if (o.length_by_user && o.sample.length > positions)
    throw InvalidArgument("fovea generate", "--length",
                          fmt::format("at most {}, the positions of the model", positions),
                          std::to_string(o.sample.length));
  o.sample.length = std::min(o.sample.length, positions);
}

}  // namespace fovea::cli

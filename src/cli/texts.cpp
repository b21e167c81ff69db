#include "cli/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "fovea/core/error.h"
#include "fovea/text/corpus.h"

namespace fovea::cli {

namespace {

constexpr char kMark = '\x01';

std::set<const CLI::App*>& text_commands() {
  static std::set<const CLI::App*> commands;
  return commands;
}

}  // namespace

std::vector<std::string> marked_arguments(CLI::App& app, std::vector<std::string> arguments) {
  CLI::App* command = &app;
  auto argument = arguments.begin();
  for (; argument != arguments.end() && !text_commands().contains(command); ++argument) {
    const auto named = [&](const CLI::App* below) { return below->get_name() == *argument; };
    const std::vector<CLI::App*> found = command->get_subcommands(named);
    if (!found.empty()) command = found.front();
  }
  if (!text_commands().contains(command)) return arguments;
  const CLI::Validator unmark(
      [](std::string& text) {
        if (text.starts_with(kMark)) text.erase(0, 1);
        return std::string();
      },
      "");
  for (CLI::Option* option : command->get_options()) option->transform(unmark);
  for (; argument != arguments.end(); ++argument) {
    if (argument->starts_with(kMark) || (argument->starts_with('[') && argument->ends_with(']')))
      argument->insert(0, 1, kMark);
  }
  return arguments;
}

void add_text_options(CLI::App& command, TextOptions& options, const std::string& texts) {
  text_commands().insert(&command);
  command.add_option("--model", options.model, "folder of the model, with its tokenizer.json")->required();
  command.add_option("text", options.texts, texts + "; without any, standard input has one a line");
  command.add_option("--input", options.input, "file with one a line, instead of arguments");
  command.add_flag("--json", options.json, "a JSON object for each, on a line");
  command.add_option("--cpu-threads", options.threads, "0: all")->check(CLI::Range(0, 1024));
}

std::vector<std::string> texts_of(const TextOptions& options, const std::string& command) {
  if (!options.texts.empty() && !options.input.empty())
    throw InvalidArgument(command, "--input", "nothing beside texts as arguments", options.input);
  if (!options.texts.empty()) return options.texts;
  return text::read_lines(options.input.empty() ? "/dev/stdin" : options.input);
}

void print_line(const nlohmann::ordered_json& object) {
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void end_of_texts() {
  std::fflush(stdout);
  if (stop_requested()) throw Stopped{"stopped; what was written stands"};
}

}  // namespace fovea::cli

#include "cli/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/commands.h"
#include "fovea/core/error.h"
#include "text/utf8.h"

namespace fovea::cli {

void add_text_options(Command command, TextOptions& options, const std::string& texts) {
  command.take_brackets_for_text();
  command.add_option("--model", options.model, "folder of the model, with its tokenizer.json").required();
  command.add_option("text", options.texts,
                     texts + "; without any, standard input has one a line, of at most 65,536 bytes");
  command.add_option("--input", options.input, "file with one a line, instead of arguments")
      .check(file_name());
  command.add_flag("--json", options.json, "a JSON object for each, on a line");
  add_threads_option(command, options.threads);
}

std::string input_path(const std::string& input) {
  return input.empty() || input == "-" ? "/dev/stdin" : input;
}

std::string name_of(const std::string& path) {
  return input_path(path) == "/dev/stdin" ? "standard input" : path;
}

std::string read_whole(const std::string& path, std::size_t most) {
  std::error_code error;
  std::ifstream opened;
  // /dev/stdin would begin a file again that another program has read in part, and sockets cannot be opened.
  std::istream& file = path == "-" ? std::cin : opened;
  if (path != "-") opened.open(path, std::ios::binary);
  const int reason = errno;
  if (std::filesystem::is_directory(path, error)) throw FileError(path, -1, "cannot be read: it is a folder");
  if (!file)
    throw FileError(
        name_of(path), -1,
        path == "-" || std::filesystem::exists(path, error) || std::filesystem::is_symlink(path, error)
            ? std::string("cannot be read: ") + std::strerror(reason)
            : "does not exist");
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (file) {
    file.read(piece.data(), std::ssize(piece));
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > most)
      throw FileError(name_of(path), -1, fmt::format("has more than {} MiB", most >> 20));
  }
  if (file.bad()) throw FileError(name_of(path), -1, "cannot be read");
  return text;
}

void check_utf8(const std::string& command, const std::string& option, const std::string& text) {
  const std::size_t bad = text::find_invalid_utf8(text);
  if (bad != std::string::npos)
    throw InvalidArgument(command, option, "UTF-8",
                          "other bytes, from byte " + std::to_string(bad + 1) + " on");
}

std::string message_of(const std::exception_ptr& error, const std::string& model) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument& caught) {
    return is_of_probabilities(caught) ? of_probabilities(caught, model).what() : caught.what();
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

bool is_of_probabilities(const InvalidArgument& error) {
  return error.argument() == "log_probabilities" || error.argument() == "model";
}

FileError of_probabilities(const InvalidArgument& error, const std::string& model) {
  return FileError(model, -1,
                   "the probabilities of its model: expected " + error.expected() + ", got " + error.got());
}

void expect_number(double value, const std::string& model, const std::string& what) {
  if (std::isnan(value))
    throw Error(fmt::format("{}: what the model computes for {} is no number (NaN). A weight may be one",
                            model, what));
}

void expect_numbers(const Tensor& values, const std::string& model, const std::string& what) {
  const float* x = values.data<float>();
  for (std::int64_t i = 0; i < values.count(); ++i) expect_number(x[i], model, what);
}

namespace {

void refuse_both(const TextOptions& options, const std::string& command) {
  if (!options.texts.empty() && !options.input.empty())
    throw InvalidArgument(command, "--input", "nothing beside texts as arguments", options.input);
}

}  // namespace

std::vector<std::string> all_lines(const std::string& input) {
  TextWindows windows(input);
  std::vector<std::string> lines;
  for (auto window = windows.next(); !window.empty(); window = windows.next()) {
    for (text::CheckedLine& line : window) {
      if (!line.problem.empty()) throw FileError(name_of(input), line.number, line.problem, "line");
      lines.push_back(std::move(line.text));
    }
  }
  if (stop_requested()) throw Stopped{"stopped"};
  return lines;
}

std::vector<std::string> texts_of(const TextOptions& options, const std::string& command) {
  refuse_both(options, command);
  if (options.texts.empty()) return all_lines(options.input);
  for (std::size_t n = 0; n < options.texts.size(); ++n)
    check_utf8(command, fmt::format("text {}", n + 1), options.texts[n]);
  return options.texts;
}

TextWindows text_windows_of(const TextOptions& options, const std::string& command) {
  refuse_both(options, command);
  if (options.texts.empty()) return TextWindows(options.input);
  std::vector<text::CheckedLine> arguments;
  for (const std::string& text : options.texts)
    arguments.push_back({.number = std::ssize(arguments) + 1, .text = text});
  return TextWindows(std::move(arguments));
}

void print_line(const nlohmann::ordered_json& object) {
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void end_of_texts() {
  std::fflush(stdout);
  if (stop_requested()) throw Stopped{"stopped; what was written stands"};
}

}  // namespace fovea::cli

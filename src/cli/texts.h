// What the commands that read texts have in common: options, the texts, and lines of JSON.
#pragma once

#include <cstddef>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/options.h"
#include "fovea/core/tensor.h"

namespace fovea::cli {

struct TextOptions {
  std::string model, input;
  std::vector<std::string> texts;
  bool json = false;
  int threads = 0;
};

/// Adds --model, --input, the texts as arguments, --json and --cpu-threads. `texts` says what a text is.
void add_text_options(Command command, TextOptions& options, const std::string& texts);

/// The file of an --input: standard input for "-" and for none.
std::string input_path(const std::string& input);

/// "standard input" for "-", for errors.
std::string name_of(const std::string& path);
/// The whole of a file, of standard input for "-", or of a pipe such as /dev/fd/63, which can be read once.
/// Throws FileError for a directory, for what cannot be read, and for more than `most` bytes.
std::string read_whole(const std::string& path, std::size_t most);

/// The texts of the arguments, or the lines of --input, or those of standard input. Throws InvalidArgument
/// for both of the first.
std::vector<std::string> texts_of(const TextOptions& options, const std::string& command);

/// What a failed search or text threw; "" for none.
std::string message_of(const std::exception_ptr& error);

/// Throws Error if a value that the model computed for `what` is NaN.
void expect_number(double value, const std::string& model, const std::string& what);
void expect_numbers(const Tensor& values, const std::string& model, const std::string& what);

/// A JSON object on one line of standard output; bytes that are not UTF-8 are replaced.
void print_line(const nlohmann::ordered_json& object);
/// Flushes standard output. Throws Stopped if a signal has asked for it.
void end_of_texts();

}  // namespace fovea::cli

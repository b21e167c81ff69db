// What the commands that read texts have in common: options, the texts, and lines of JSON.
#pragma once

#include <cstddef>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/text_windows.h"
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

/// The bytes of a text that is read whole.
inline constexpr std::size_t longest_text = std::size_t{1} << 32;

/// The file of an --input: standard input for "-" and for none.
std::string input_path(const std::string& input);

/// As errors name it: "standard input" for what input_path takes for that, and for its path.
std::string name_of(const std::string& path);
/// The whole of a file, of standard input for "-", or of a pipe such as /dev/fd/63, which can be read once.
/// Throws FileError for a directory, for what cannot be read, and for more than `most` bytes.
std::string read_whole(const std::string& path, std::size_t most);

/// The texts of the arguments, or the lines of --input, or those of standard input, all of them. For commands
/// whose answer is one for all: a bad line is an error. Throws InvalidArgument for arguments and --input.
std::vector<std::string> texts_of(const TextOptions& options, const std::string& command);
/// The same texts as they come. Throws InvalidArgument for arguments and --input.
TextWindows text_windows_of(const TextOptions& options, const std::string& command);
/// All lines of --input or standard input. Throws FileError for a bad one, and Stopped after a signal.
std::vector<std::string> all_lines(const std::string& input);

/// Throws InvalidArgument for an option whose text is not UTF-8.
void check_utf8(const std::string& command, const std::string& option, const std::string& text);

/// Whether a sampler or a search found that a model's probabilities are no numbers.
bool is_of_probabilities(const InvalidArgument& error);
/// The same with the model's folder, which the sampler and the search do not know.
FileError of_probabilities(const InvalidArgument& error, const std::string& model);
/// What a failed search or text threw, with the folder of its model; "" for none.
std::string message_of(const std::exception_ptr& error, const std::string& model);

/// Throws Error if a value that the model computed for `what` is NaN.
void expect_number(double value, const std::string& model, const std::string& what);
void expect_numbers(const Tensor& values, const std::string& model, const std::string& what);

/// A JSON object on one line of standard output; bytes that are not UTF-8 are replaced.
void print_line(const nlohmann::ordered_json& object);
/// Flushes standard output. Throws Stopped if a signal has asked for it.
void end_of_texts();

}  // namespace fovea::cli

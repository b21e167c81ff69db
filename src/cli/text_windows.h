// Texts that a command answers one by one: they come window by window, and one that fails leaves the others.
#pragma once

#include <cstdint>
#include <exception>
#include <fstream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "fovea/text/line_stream.h"

namespace fovea::cli {

/// What the help says of lines that cannot be answered.
inline constexpr const char* bad_lines_help =
    "A line that is not UTF-8, has more than 65,536 bytes or is too long for the model is named on standard "
    "error and answered by an empty line, and the exit status is 1.";

/// The texts of the arguments, or the lines of a file or of standard input. A window of lines is closed when
/// no more can be read without waiting, so that each line of a conversation is answered before the next one.
class TextWindows {
 public:
  using Waiting = text::LineStream::Waiting;
  /// `input` as that of input_path; `options` without a wait, which a signal ends. Throws FileError for a
  /// file that cannot be opened.
  explicit TextWindows(const std::string& input, text::LineStreamOptions options = {});
  /// Of arguments, which are one window.
  explicit TextWindows(std::vector<text::CheckedLine> arguments) : arguments_(std::move(arguments)) {}

  /// The next texts. None at the end, after a signal, and if waiting is refused where one is not there yet.
  std::vector<text::CheckedLine> next(Waiting waiting = Waiting::allowed);
  /// Whether no text is left, as far as next() has seen.
  bool ended() const { return lines_ ? lines_->ended() : arguments_.empty(); }
  /// How many texts there are, as far as that is known.
  std::optional<std::int64_t> expected() const;
  /// As errors name the text: "corpus.en (line 3)", "standard input (line 3)", or "text 3" of an argument.
  std::string place(std::int64_t number) const;

 private:
  std::string name_;
  std::optional<text::LineStream> lines_;
  std::vector<text::CheckedLine> arguments_;
};

/// The texts that could not be answered.
class FailedTexts {
 public:
  /// Names the text and the reason on standard error.
  void add(const std::string& place, const std::string& reason);
  /// Throws Error if there is one, so that the exit status is 1. `all` is the number of texts.
  void end(std::int64_t all) const;

 private:
  std::int64_t count_ = 0;
};

/// What ended the work on a text, without the names of functions: "expected ..., got ..." of an argument,
/// behind its name if it is an option.
std::string reason_of(const std::exception_ptr& error);

/// Where a command writes.
class Output {
 public:
  /// Empties the file; "" is standard output. Throws FileError for one that cannot be written.
  explicit Output(std::string path);
  std::ostream& stream();
  /// Hands on what was written. Throws FileError if that fails, such as on a full disk.
  void flush();

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace fovea::cli

// Lines of a file, a pipe or a terminal as they come.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fovea::text {

class LineReader;

/// A line of a file whose lines are judged one by one.
struct CheckedLine {
  std::int64_t number = 0;  ///< from 1
  std::string text;
  std::string problem = {};  ///< of a bad line, whose text is then empty
};

/// Lines of white space alone.
enum class BlankLines : std::uint8_t { given, left_out };

struct LineStreamOptions {
  std::int64_t max_line_bytes = 65536;  ///< a longer line is bad, and is never held in memory
  std::int64_t most_lines = 1024;       ///< of a window, at least 1
  /// No line is added to a window that has so many bytes.
  std::int64_t most_bytes = std::int64_t{1} << 22;
  BlankLines blank_lines = BlankLines::given;  ///< those that are left out count in the numbers of lines
  /// Waits until the descriptor has something to read. False: the input ends here. Without it: waits for
  /// ever. With it a named pipe is opened before another program writes to it, and waited for here.
  std::function<bool(int descriptor)> wait = {};
};

/// Reads lines window by window, in the memory of one window.
class LineStream {
 public:
  /// "/dev/stdin" is the standard input of this process, from where it stands. Throws FileError when `file`
  /// cannot be opened, and InvalidArgument for options below 1.
  explicit LineStream(const std::filesystem::path& file, LineStreamOptions options = {});
  ~LineStream();
  LineStream(LineStream&&) noexcept;
  LineStream& operator=(LineStream&&) = delete;

  /// Whether a first line is waited for.
  enum class Waiting : std::uint8_t { allowed, refused };
  /// The next lines: at least one, unless waiting is refused, and then as many as can be read without
  /// waiting. None at the end of the input. Throws FileError when the file cannot be read.
  std::vector<CheckedLine> next(Waiting waiting = Waiting::allowed);
  /// Whether no line is left. It is known behind a call of next() that found none.
  bool ended() const noexcept { return ended_; }
  /// How many lines the whole input has: known at its end, estimated by the bytes of a regular file, and
  /// unknown of a pipe.
  std::optional<std::int64_t> expected_lines() const;

 private:
  LineStreamOptions options_;
  std::unique_ptr<LineReader> reader_;
  bool ended_ = false;
};

}  // namespace fovea::text

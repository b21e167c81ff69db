// Reads comma-separated values one line at a time, in bounded memory: tables of numbers, with or without a
// header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

class LineReader;

/// RFC 4180, except that a quoted cell must end on its line, so that one missing quote does not swallow the
/// rest of the file. Empty lines are skipped. A byte order mark and the CR of CRLF are removed: spreadsheets
/// write both. A line that is not UTF-8 is read as Latin-1. The caller decides whether the first line is a
/// header.
class CsvReader {
 public:
  static constexpr std::size_t max_columns = 4096;

  /// Throws FileError when `file` cannot be read.
  explicit CsvReader(const std::filesystem::path& file);
  ~CsvReader();

  /// Reads the next line; false at the end of the file. Throws FileError with the line's number for more than
  /// max_columns cells, or for another number of cells than the first line has. Also for a quoted cell
  /// without an end, a NUL byte, a line above 1 MiB, and a file without lines.
  bool next();
  /// The cells of the current line, at least one. `"a ""b"", c"` is one cell: a "b", c.
  const std::vector<std::string>& cells() const noexcept { return cells_; }
  /// The number of the current line in its file, from 1; empty lines count. It is 0 before the first line,
  /// and stays that of the last line at the end.
  std::int64_t number() const noexcept;
  /// Throws FileError with the line's number and `reason`, for a caller that finds a cell wrong.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  void split(std::string_view line);

  std::unique_ptr<LineReader> lines_;
  std::vector<std::string> cells_;
  std::size_t columns_ = 0;  // of the first line; 0: there was none yet
};

/// The number in a cell, in C's decimal form whatever the locale; spaces around it are allowed. Empty if the
/// cell holds no number, or one that is infinite, NaN or too large for a float.
std::optional<float> finite_number(std::string_view cell);

}  // namespace fovea::text

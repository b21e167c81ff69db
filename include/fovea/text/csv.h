// Comma-separated values, a line at a time and in bounded memory: tables of numbers, with a header or
// without.
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

/// RFC 4180, but that a quoted cell must end on its line, so that one missing quote does not take in the rest
/// of the file. Empty lines are skipped; a byte order mark and the CR of CRLF are removed, as spreadsheets
/// write both. A line that is no UTF-8 is read as Latin-1. What a first line means, header or not, is the
/// caller's business.
class CsvReader {
 public:
  static constexpr std::size_t max_columns = 4096;

  /// Throws FileError when `file` cannot be read.
  explicit CsvReader(const std::filesystem::path& file);
  ~CsvReader();

  /// Advances; false at the end of the file. Throws FileError with the line's number for more than
  /// max_columns cells, for another number of them than the first line has, for a quoted cell without an end,
  /// a NUL byte and a line above 1 MiB; and for a file without lines.
  bool next();
  /// Of the line: one or more. `"a ""b"", c"` is one cell: a "b", c.
  const std::vector<std::string>& cells() const noexcept { return cells_; }
  /// Of the line in its file, from 1; empty ones count. At the end that of the last one, and 0 before the
  /// first.
  std::int64_t number() const noexcept;
  /// Throws FileError with the line's number: for what a caller finds wrong with the cells.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  void split(std::string_view line);

  std::unique_ptr<LineReader> lines_;
  std::vector<std::string> cells_;
  std::size_t columns_ = 0;  // of the first line; 0: there was none yet
};

/// The number that a cell holds, in C's decimal form whatever the locale, spaces around it allowed; nothing
/// where it holds none, or one that is infinite, NaN or beyond a float.
std::optional<float> finite_number(std::string_view cell);

}  // namespace fovea::text

// Reads lines of an untrusted file, one at a time and in bounded memory; for this directory only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fovea::text {

enum class LineFault { none, too_long, bad_utf8, nul_byte };

class LineReader {
 public:
  /// Throws FileError when `file` cannot be opened.
  LineReader(const std::filesystem::path& file, std::int64_t max_line_bytes);
  /// Reads the next line; false at the end of the file. A last line without a line break counts.
  bool next();
  /// The line without its line break, the CR before it, and the file's byte order mark. Cut if it is too
  /// long.
  const std::string& line() const noexcept { return line_; }
  /// The line, read as Latin-1 if it is not UTF-8: older collections and spreadsheets use Latin-1. Throws
  /// FileError if the line has another fault.
  std::string utf8_or_latin1() const;
  const std::filesystem::path& file() const noexcept { return file_; }
  /// From 1.
  std::int64_t number() const noexcept { return number_; }
  LineFault fault() const noexcept { return fault_; }
  /// Throws FileError if the line has a fault.
  void refuse_bad() const;
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  bool fill();
  void examine();

  std::filesystem::path file_;
  std::ifstream stream_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
  std::int64_t max_line_bytes_, number_ = 0;
  std::string line_;
  bool too_long_ = false;
  LineFault fault_ = LineFault::none;
};

}  // namespace fovea::text

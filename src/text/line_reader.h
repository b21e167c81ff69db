// Reads lines of an untrusted file, one at a time and in bounded memory; for this directory only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "fovea/core/profile.h"

namespace fovea::text {

/// Of profiles: files are read and cut into lines.
inline constexpr ProfileLabel reading_lines{"reading lines", ProfilePart::data};

enum class LineFault { none, too_long, bad_utf8, nul_byte };

class LineReader {
 public:
  /// Waits until the descriptor has something to read. False: the input ends here.
  using Wait = std::function<bool(int descriptor)>;
  /// "/dev/stdin" is the standard input of this process, from where it stands, and is called that in errors.
  /// Throws FileError when `file` cannot be opened.
  LineReader(const std::filesystem::path& file, std::int64_t max_line_bytes, Wait wait = {});
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  /// Reads the next line; false at the end of the file. A last line without a line break counts, unless the
  /// wait has ended the input.
  bool next();
  /// Whether next() would not wait, because the line is there or the file has ended. What is there is read,
  /// so line() is of no use afterwards.
  bool ready();
  /// The line without its line break, the CR before it, and the file's byte order mark. Cut if it is too
  /// long.
  const std::string& line() const noexcept { return line_; }
  /// The line, read as Latin-1 if it is not UTF-8: older collections and spreadsheets use Latin-1. Throws
  /// FileError if the line has another fault.
  std::string utf8_or_latin1() const;
  /// As errors name the file.
  const std::string& name() const noexcept { return name_; }
  /// From 1.
  std::int64_t number() const noexcept { return number_; }
  /// Bytes up to the end of the line.
  std::int64_t bytes() const noexcept { return bytes_; }
  /// Bytes of a regular file, and -1 of a pipe or a terminal.
  std::int64_t file_bytes() const noexcept { return file_bytes_; }
  LineFault fault() const noexcept { return fault_; }
  /// Throws FileError if the line has a fault.
  void refuse_bad() const;
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  enum class Waiting : std::uint8_t { allowed, refused };
  void begin();
  bool gather(Waiting waiting);
  bool take();
  void fill();
  void examine();

  std::string name_;
  int descriptor_ = -1;
  Wait wait_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
  std::int64_t max_line_bytes_, number_ = 0, bytes_ = 0, file_bytes_ = -1;
  std::string line_;
  bool begun_ = false, whole_ = false, given_ = true;  // of the line
  bool ended_ = false;                                 // of the file
  bool too_long_ = false;
  LineFault fault_ = LineFault::none;
};

}  // namespace fovea::text

// Exception types. The library never prints and never aborts: every failure that it detects is thrown as one
// of these.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace fovea {

/// Base of every exception that Fovea throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument that the function cannot accept. `what()` contains all four parts.
class InvalidArgument : public Error {
 public:
  /// `function` is spelt as the caller writes it ("make_plan"), and so is `argument` ("key"). `expected` says
  /// which values are accepted, `got` which value came.
  InvalidArgument(std::string function, std::string argument, std::string expected, std::string got);

  const std::string& function() const noexcept { return function_; }
  const std::string& argument() const noexcept { return argument_; }
  const std::string& expected() const noexcept { return expected_; }
  const std::string& got() const noexcept { return got_; }

 private:
  std::string function_, argument_, expected_, got_;
};

/// A file that cannot be read or written, or whose bytes do not follow its format.
class FileError : public Error {
 public:
  /// `offset` is the byte at which the reader stopped, or the line or column if `unit` says so; -1 if none.
  FileError(std::string file, std::int64_t offset, std::string reason, std::string unit = "byte");

  const std::string& file() const noexcept { return file_; }
  std::int64_t offset() const noexcept { return offset_; }
  const std::string& reason() const noexcept { return reason_; }

 private:
  std::string file_;
  std::int64_t offset_;
  std::string reason_;
};

}  // namespace fovea

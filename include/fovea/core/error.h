// What can go wrong, as types. The library never prints and never aborts: a caller gets one of these.
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

/// An argument that the function cannot accept; `what()` names all four parts.
class InvalidArgument : public Error {
 public:
  /// `function` as the caller spells it ("make_plan"), `argument` ("key"), what it had to be, and what came.
  InvalidArgument(std::string function, std::string argument, std::string expected, std::string got);

  const std::string& function() const noexcept { return function_; }
  const std::string& argument() const noexcept { return argument_; }
  const std::string& expected() const noexcept { return expected_; }
  const std::string& got() const noexcept { return got_; }

 private:
  std::string function_, argument_, expected_, got_;
};

/// A file that cannot be read or written, or whose bytes are not what its format asks for.
class FileError : public Error {
 public:
  /// `offset` is the byte (or, where `unit` says so, the line or column) at which the reader gave up; -1 if
  /// none.
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

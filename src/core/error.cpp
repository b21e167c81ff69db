#include "fovea/core/error.h"

#include <utility>

#include "core/excerpt.h"

namespace fovea {
namespace {

// The longest text that an error of this library composes itself, such as a list of shapes or of refusals,
// stays below this. What is longer has a stranger's value in it.
constexpr std::size_t longest_value = 400, longest_reason = 2000;

// Linux opens no longer path.
constexpr std::size_t longest_path = 4096;

}  // namespace

InvalidArgument::InvalidArgument(std::string function, std::string argument, std::string expected,
                                 std::string got)
    : Error(function + ": argument '" + excerpt(argument, longest_value) + "': expected " +
            excerpt(expected, longest_reason) + ", got " + excerpt(got, longest_value)),
      function_(std::move(function)),
      argument_(std::move(argument)),
      expected_(std::move(expected)),
      got_(std::move(got)) {}

FileError::FileError(std::string file, std::int64_t offset, std::string reason, std::string unit)
    : Error(excerpt(file, longest_path) +
            (offset < 0 ? std::string() : " (" + unit + " " + std::to_string(offset) + ")") + ": " +
            excerpt(reason, longest_reason)),
      file_(std::move(file)),
      offset_(offset),
      reason_(std::move(reason)) {}

}  // namespace fovea

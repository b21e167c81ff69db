#include "fovea/core/error.h"

#include <utility>

#include "core/excerpt.h"

namespace fovea {
namespace {

// Texts that this library composes itself, such as lists of shapes or of refusals, are shorter than this. A
// longer text contains a foreign value.
constexpr std::size_t longest_value = 400, longest_reason = 2000;

// The longest path that Linux opens.
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

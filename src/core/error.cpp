#include "fovea/core/error.h"

#include <utility>

namespace fovea {

InvalidArgument::InvalidArgument(std::string function, std::string argument, std::string expected,
                                 std::string got)
    : Error(function + ": argument '" + argument + "': expected " + expected + ", got " + got),
      function_(std::move(function)),
      argument_(std::move(argument)),
      expected_(std::move(expected)),
      got_(std::move(got)) {}

FileError::FileError(std::string file, std::int64_t offset, std::string reason, std::string unit)
    : Error(file + (offset < 0 ? std::string() : " (" + unit + " " + std::to_string(offset) + ")") + ": " +
            reason),
      file_(std::move(file)),
      offset_(offset),
      reason_(std::move(reason)) {}

}  // namespace fovea

// What the models check in the batches that they read.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "fovea/core/error.h"
#include "fovea/models/encoder.h"

namespace fovea::models {

/// Refuses, in the name of `function`, a batch whose members do not belong together.
inline void check(const char* function, const Padded& tokens) {
  const auto refuse = [&](const std::string& expected, std::int64_t got) {
    throw InvalidArgument(function, "tokens", expected, std::to_string(got));
  };
  const std::int64_t size = tokens.size, length = tokens.length;
  if (size < 1) refuse("a size of at least 1", size);
  if (length < 1) refuse("a length of at least 1", length);
  const std::int64_t ids = std::ssize(tokens.ids);
  if (ids % size != 0 || ids / size != length)
    refuse("ids of " + std::to_string(size) + " sequences of " + std::to_string(length), ids);
  if (std::ssize(tokens.lengths) != size)
    refuse(std::to_string(size) + " lengths, one for each sequence", std::ssize(tokens.lengths));
  for (const std::int64_t one : tokens.lengths)
    if (one < 0 || one > length) refuse("lengths in [0, " + std::to_string(length) + "]", one);
}

/// Refuses what is not rows [..., dim].
inline void check_rows(const char* function, const char* argument, const nn::Var& rows, std::int64_t dim) {
  if (rows.empty() || rows.shape().rank() < 1 || rows.size(-1) != dim)
    throw InvalidArgument(function, argument, "rows [..., " + std::to_string(dim) + "]",
                          rows.empty() ? "none" : to_string(rows.shape()));
}

}  // namespace fovea::models

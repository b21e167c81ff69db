#include "autograd/row_lengths.h"

#include <string>

#include "fovea/core/error.h"
#include "fovea/core/kept_vector.h"

namespace fovea::autograd {

KeptVector<std::int64_t> checked_row_lengths(const char* function, std::span<const std::int64_t> lengths,
                                             const RowLengths& expected) {
  KeptVector<std::int64_t> checked(lengths.begin(), lengths.end());
  if (checked.empty()) checked.assign(static_cast<std::size_t>(expected.batch), expected.most);
  if (std::ssize(checked) != expected.batch)
    throw InvalidArgument(function, "lengths", std::to_string(expected.batch) + " lengths",
                          std::to_string(checked.size()));
  for (const std::int64_t length : checked) {
    if (length < expected.least || length > expected.most)
      throw InvalidArgument(
          function, "lengths",
          "lengths in [" + std::to_string(expected.least) + ", " + std::to_string(expected.most) + "]",
          std::to_string(length));
  }
  return checked;
}

}  // namespace fovea::autograd

// The lengths of the entries of a padded batch.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/core/kept_vector.h"

namespace fovea::autograd {

struct RowLengths {
  std::int64_t batch = 0;            ///< entries
  std::int64_t least = 0, most = 0;  ///< rows that an entry may have
};

/// A copy of `lengths`, or `expected.most` for each entry where there are none. Throws InvalidArgument in the
/// name of `function` unless there is a length for each entry, in its range.
KeptVector<std::int64_t> checked_row_lengths(const char* function, std::span<const std::int64_t> lengths,
                                             const RowLengths& expected);

}  // namespace fovea::autograd

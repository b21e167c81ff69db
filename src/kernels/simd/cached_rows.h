// Keys and values that lie in a cache, as kernels are given them. To read on: simd/runs-inl.h, which walks
// over them.
#pragma once

#include <cstdint>

#include "fovea/cache/view.h"

namespace fovea::kernels {

/// Keys and values of one sequence in a cache: runs in ascending order of position. Strides in elements, as
/// in KeyValueView; those from head to head are in the runs.
struct CachedRows {
  const KeyValueRun* runs = nullptr;  ///< null: keys and values are operands
  std::int64_t count = 0;
  std::int64_t key_row_stride = 0, value_row_stride = 0;
};

}  // namespace fovea::kernels

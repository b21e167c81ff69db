// Keys and values where they lie: what `attend` reads of a cache (cache/kv_cache.h). Here is a view of the
// rows of one sequence in one layer, and nothing that owns or writes rows. Read KeyValueRun first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fovea/core/dtype.h"

namespace fovea {

/// Rows at consecutive positions that lie behind each other in memory.
struct KeyValueRun {
  std::int64_t position = 0;         ///< of the first row, counted from the beginning of the sequence
  std::int64_t count = 0;            ///< rows
  const std::byte* key = nullptr;    ///< the first row of head 0
  const std::byte* value = nullptr;  ///< the same; null where the cache has no values
  /// From head to head, in elements. They differ between the runs of pages, because neighbouring pages of a
  /// sequence share a piece of memory where their rows lie behind each other.
  std::int64_t key_head_stride = 0, value_head_stride = 0;
};

/// The rows of one sequence in one layer: runs in ascending order of position, without overlap. Positions
/// between two runs, and before the first one, are not kept: a mask that lets a query see one is refused by
/// `attend`. The view shares ownership of the memory, so rows stay as they are while it lives, whatever is
/// done to the sequence.
struct KeyValueView {
  std::vector<KeyValueRun> runs;
  std::int64_t length = 0;  ///< rows appended to the sequence, dropped ones included: the next row's position
  std::int64_t num_kv_heads = 0, head_dim = 0, value_dim = 0;
  DType dtype = DType::f32;                               ///< of keys and values
  std::int64_t key_row_stride = 0, value_row_stride = 0;  ///< in elements; those of a row are contiguous
  std::shared_ptr<const void> owner = {};
};

}  // namespace fovea

// Which row lies where in a block of a cache, and runs of rows that kernels read there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fovea/cache/kv_cache.h"

namespace fovea::cache {

/// Where the rows of each layer of a group stand in a block: [kv_head][K|V][row][dim] a layer, layer after
/// layer, each layer at a multiple of 64 bytes. Keys and values of a head lie side by side because a kernel
/// reads them by turns. With all keys before all values, decoding of bf16 over pages of 16 took a tenth more
/// (docs/performance.md).
struct BlockLayout {
  struct Layer {
    std::int64_t number = 0;  // among all layers of the cache
    CacheLayer spec;
    std::int64_t key_offset = 0, value_offset = 0;  // bytes; equal where values are the first of keys
    std::int64_t key_bytes() const { return spec.head_dim * static_cast<std::int64_t>(size_of(spec.dtype)); }
    std::int64_t value_bytes() const {
      return spec.values == CacheValues::own ? spec.value_dim * static_cast<std::int64_t>(size_of(spec.dtype))
                                             : 0;
    }
    /// From head to head in a block of so many rows.
    std::int64_t head_bytes(std::int64_t rows) const { return rows * (key_bytes() + value_bytes()); }
    /// From a row to the value behind the row's: values that are the first elements of keys lie in these.
    std::int64_t value_row_bytes() const {
      return spec.values == CacheValues::own ? value_bytes() : key_bytes();
    }
  };
  std::vector<Layer> layers;
  std::int64_t rows = 0, bytes = 0;
  /// The same layers in a block of so many rows.
  static BlockLayout of(std::vector<Layer> layers, std::int64_t rows);
  /// `count` rows of the layer at `index`, from slot `slot` of the block at `data` on, whose first has this
  /// position.
  KeyValueRun run(std::size_t index, const std::byte* data, std::int64_t slot, std::int64_t position,
                  std::int64_t count) const;
  /// Copies `count` rows, from row `from` of a block of this layout to row `to` of one of layout `target`.
  void copy_rows(const std::byte* source, std::int64_t from, std::int64_t count, const BlockLayout& target,
                 std::byte* destination, std::int64_t to) const;
};

}  // namespace fovea::cache

// What the options of a cache may be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fovea/cache/kv_cache.h"

namespace fovea::cache {

/// Of a sequence: positions have 32 bits in the engine (attention/site.h).
inline constexpr std::int64_t most_rows = std::int64_t{1} << 30;

/// The rows of the first block of a sequence, or of every page.
std::int64_t rows_of_block(const CacheStore& store);

/// `layer` with its value_dim filled in. Throws InvalidArgument, which names it as options.layers[number].
CacheLayer checked(CacheLayer layer, std::size_t number);

}  // namespace fovea::cache

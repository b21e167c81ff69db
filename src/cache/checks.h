// What several functions of a KvCache check in their arguments.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fovea/cache/kv_cache.h"

namespace fovea::cache {

[[noreturn]] inline void refuse(const char* function, std::string argument, std::string expected,
                                std::string got) {
  throw InvalidArgument(std::string("KvCache::") + function, std::move(argument), std::move(expected),
                        std::move(got));
}

inline std::string described(const ConstTensorView& view) {
  return view ? to_string(view.shape()) + " of " + std::string(to_string(view.dtype())) : "nothing";
}

inline std::size_t checked_layer(const char* function, std::int64_t layer, std::size_t count) {
  if (layer < 0 || layer >= static_cast<std::int64_t>(count))
    refuse(function, "layer", "a number from 0 to " + std::to_string(count - 1), std::to_string(layer));
  return static_cast<std::size_t>(layer);
}

// Calls `refuse_list` with what is expected and what came, if a sequence is null or stands there twice.
template <class Refuse>
void check_different(std::span<Sequence* const> sequences, Refuse&& refuse_list) {
  for (const Sequence* sequence : sequences)
    if (!sequence) refuse_list("sequences", "a null pointer");
  if (sequences.size() < 2) return;
  std::vector<const Sequence*> sorted(sequences.begin(), sequences.end());
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end())
    refuse_list("different sequences", "one of them twice");
}

// What a function needs its layer to keep.
enum class Keeps : std::uint8_t { rows, last_row };

inline void expect_store(const char* function, std::size_t number, const CacheLayer& layer, Keeps wanted) {
  const bool last = std::holds_alternative<LastRow>(layer.store);
  if (last != (wanted == Keeps::last_row))
    refuse(function, "layer", last ? "a layer that keeps all rows" : "a layer whose store is LastRow",
           "layer " + std::to_string(number) + (last ? ", whose store is LastRow" : ", which keeps rows"));
}

}  // namespace fovea::cache

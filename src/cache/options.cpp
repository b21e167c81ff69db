#include "cache/options.h"

#include <bit>
#include <string>
#include <utility>

namespace fovea::cache {
namespace {

[[noreturn]] void refuse(std::string argument, std::string expected, std::string got) {
  throw InvalidArgument("KvCache::KvCache", std::move(argument), std::move(expected), std::move(got));
}

void check_store(const std::string& of, const CacheStore& store) {
  const auto at_least = [&](const char* field, std::int64_t least, std::int64_t got) {
    if (got < least || got > most_rows)
      refuse(of + ".store." + field, "a number from " + std::to_string(least) + " to 2^30",
             std::to_string(got));
  };
  if (const auto* contiguous = std::get_if<Contiguous>(&store)) at_least("capacity", 1, contiguous->capacity);
  if (const auto* ring = std::get_if<Ring>(&store)) {
    at_least("window", 1, ring->window);
    at_least("sinks", 0, ring->sinks);
    at_least("slack", 1, ring->slack);
  }
  if (const auto* paged = std::get_if<Paged>(&store)) {
    if (paged->page_size < 1 || paged->page_size > 4096 ||
        !std::has_single_bit(static_cast<std::uint64_t>(paged->page_size)))
      refuse(of + ".store.page_size", "a power of 2 from 1 to 4096", std::to_string(paged->page_size));
  }
}

}  // namespace

std::int64_t rows_of_block(const CacheStore& store) {
  if (const auto* contiguous = std::get_if<Contiguous>(&store)) return contiguous->capacity;
  if (const auto* paged = std::get_if<Paged>(&store)) return paged->page_size;
  if (std::holds_alternative<LastRow>(store)) return 2;  // the committed one and the next
  const auto& ring = std::get<Ring>(store);
  return ring.sinks + ring.window + ring.slack;
}

CacheLayer checked(CacheLayer layer, std::size_t number) {
  const std::string of = "options.layers[" + std::to_string(number) + "]";
  const auto positive = [&](const char* field, std::int64_t got) {
    if (got < 1 || got > most_rows) refuse(of + "." + field, "a number from 1 to 2^30", std::to_string(got));
  };
  positive("num_kv_heads", layer.num_kv_heads);
  positive("head_dim", layer.head_dim);
  if (layer.value_dim == -1) layer.value_dim = layer.values == CacheValues::none ? 0 : layer.head_dim;
  if (layer.values == CacheValues::none) {
    if (layer.value_dim != 0)
      refuse(of + ".value_dim", "0 beside CacheValues::none", std::to_string(layer.value_dim));
  } else {
    positive("value_dim", layer.value_dim);
  }
  if (layer.values == CacheValues::first_of_keys && layer.value_dim > layer.head_dim)
    refuse(of + ".value_dim",
           "at most head_dim = " + std::to_string(layer.head_dim) + " beside CacheValues::first_of_keys",
           std::to_string(layer.value_dim));
  if (std::holds_alternative<LastRow>(layer.store)) {
    if (layer.num_kv_heads != 1)
      refuse(of + ".num_kv_heads", "1 beside LastRow", std::to_string(layer.num_kv_heads));
    if (layer.values != CacheValues::none)
      refuse(of + ".values", "CacheValues::none beside LastRow", "values");
  }
  check_store(of, layer.store);
  // So that no count of bytes overflows, whatever the number of layers.
  const double elements = static_cast<double>(layer.num_kv_heads) *
                          static_cast<double>(layer.head_dim + layer.value_dim) *
                          static_cast<double>(rows_of_block(layer.store));
  if (elements > 0x1p44)
    refuse(of, "at most 2^44 elements in the rows of one block", std::to_string(elements));
  return layer;
}

}  // namespace fovea::cache

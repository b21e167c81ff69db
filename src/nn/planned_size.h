// Sizes of plans that serve a growing cache and a changing batch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "fovea/attention/spec.h"

namespace fovea::nn {

/// The first of least, 2·least, 4·least, ... that is at least `size`.
inline std::int64_t planned_size(std::int64_t size, std::int64_t least) {
  std::int64_t planned = least;
  while (planned < size) planned *= 2;
  return planned;
}

/// A shape with room for later calls of the same layer: 2^8 entries, 2^12 queries and 2^20 keys, or the next
/// power of two of a size that is larger. So a decoding loop plans once. A plan's lengths are limits of its
/// calls: what a call computes and the memory that it takes follow from the call's own sizes.
inline AttentionShape with_room(AttentionShape shape) {
  // make_plan refuses operands of more than 2^48 elements. Half of that is left to rows that it widens.
  constexpr std::int64_t most_elements = std::int64_t{1} << 47;
  const std::int64_t of_position =
      std::max(shape.num_query_heads, shape.num_kv_heads) *
      std::max({shape.head_dim, shape.value_dim, shape.key_dim, shape.hidden, std::int64_t{1}});
  const auto doubled = [](std::int64_t& size, std::int64_t room, std::int64_t most) {
    while (size < room && size <= most / 2) size *= 2;
  };
  shape.batch = planned_size(std::max<std::int64_t>(shape.batch, 1), 1);
  shape.query_len = planned_size(std::max<std::int64_t>(shape.query_len, 1), 1);
  shape.key_len = planned_size(std::max<std::int64_t>({shape.key_len, shape.query_len, 1}), 1);
  doubled(shape.key_len, std::int64_t{1} << 20, most_elements / of_position / shape.batch);
  doubled(shape.query_len, std::int64_t{1} << 12, shape.key_len);
  doubled(shape.batch, std::int64_t{1} << 8, most_elements / of_position / shape.key_len);
  return shape;
}

}  // namespace fovea::nn

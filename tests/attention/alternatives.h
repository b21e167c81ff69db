// One value of each alternative of a variant, so that a test meets those that are added later.
#pragma once

#include <utility>
#include <variant>
#include <vector>

namespace fovea::testing {

template <class Variant, std::size_t... I>
std::vector<Variant> alternatives_of(std::index_sequence<I...>) {
  return {Variant(std::in_place_index<I>)...};
}
/// Each alternative with its default values, in the order of the variant.
template <class Variant>
std::vector<Variant> alternatives() {
  return alternatives_of<Variant>(std::make_index_sequence<std::variant_size_v<Variant>>());
}

}  // namespace fovea::testing

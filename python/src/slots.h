// Arrays of a call by their names, for calls that take a struct of views.
#pragma once

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "fovea/core/error.h"

namespace fovea::python {

using Starts = std::vector<std::int64_t>;
using Present = nb::ndarray<const std::uint8_t, nb::c_contig, nb::device::cpu>;

/// A name of an array, and the member of Views that the array fills.
template <class Views, class View>
struct Slot {
  std::string_view name;
  View Views::*member;
};

/// The arrays of a call as views. Throws for a name that no slot has.
template <class Views, class View, std::size_t n>
Views filled(Arrays& arrays, const std::array<Slot<Views, View>, n>& slots, const nb::dict& given) {
  Views views{};
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    const Slot<Views, View>* found = nullptr;
    for (const auto& slot : slots) {
      if (slot.name == name) found = &slot;
    }
    if (!found) throw InvalidArgument(arrays.function(), name, "a name of a recurrence's arrays", name);
    if constexpr (std::is_same_v<View, TensorView>)
      views.*(found->member) = arrays.write(value, name);
    else
      views.*(found->member) = arrays.read(value, name);
  }
  return views;
}

/// What a call brings besides arrays of numbers.
template <class Inputs>
void set_tokens(Inputs& inputs, const Starts& starts, const std::optional<Present>& present) {
  inputs.sequence_starts = starts;
  if (present) inputs.present = {present->data(), present->size()};
}

}  // namespace fovea::python

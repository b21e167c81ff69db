// The arguments that a call gives, by name.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/kept_vector.h"
#include "fovea/core/tensor.h"

namespace fovea {

/// One argument of a call. A Tensor is kept alive by this object. If a view is given, the caller keeps the
/// elements alive.
template <class View>
struct NamedArgument {
  std::string name;
  View view;
  Tensor owner;

  NamedArgument(std::string full_name, View elements) : name(std::move(full_name)), view(elements) {}
  NamedArgument(std::string full_name, const Tensor& tensor)
      : name(std::move(full_name)), view(tensor ? View(tensor.view()) : View()), owner(tensor) {}
};

/// The arguments of a call, in any order. An empty view counts as not given.
template <class View>
class NamedArguments {
 public:
  NamedArguments() = default;
  NamedArguments(std::initializer_list<NamedArgument<View>> list) : list_(list) {}

  /// Adds the argument, or replaces the one of that name.
  void set(std::string name, View view) { put({std::move(name), view}); }
  void set(std::string name, const Tensor& tensor) { put({std::move(name), tensor}); }
  /// Returns an empty view if the name is not given.
  View operator[](std::string_view name) const {
    for (const NamedArgument<View>& argument : list_) {
      if (argument.name == name) return argument.view;
    }
    return {};
  }
  std::span<const NamedArgument<View>> all() const noexcept { return list_; }
  bool empty() const noexcept { return list_.empty(); }

 private:
  void put(NamedArgument<View> argument) {
    for (NamedArgument<View>& known : list_) {
      if (known.name == argument.name) {
        known = std::move(argument);
        return;
      }
    }
    list_.push_back(std::move(argument));
  }
  KeptVector<NamedArgument<View>> list_;
};

/// The arguments that a call reads, and the gradients that it writes for them.
using Arguments = NamedArguments<ConstTensorView>;
using ArgumentGradients = NamedArguments<TensorView>;

}  // namespace fovea

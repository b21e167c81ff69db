// The arguments that a call gives, by name.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  NamedArguments(std::initializer_list<NamedArgument<View>> list) : more_(list) {}

  /// Adds the argument, or replaces the one of that name.
  void set(std::string name, View view) { put({std::move(name), view}); }
  void set(std::string name, const Tensor& tensor) { put({std::move(name), tensor}); }
  /// Returns an empty view if the name is not given.
  View operator[](std::string_view name) const {
    for (const NamedArgument<View>& argument : all()) {
      if (argument.name == name) return argument.view;
    }
    return {};
  }
  std::span<const NamedArgument<View>> all() const noexcept {
    if (one_) return {&*one_, 1};
    return more_;
  }
  bool empty() const noexcept { return all().empty(); }

 private:
  void put(NamedArgument<View> argument) {
    if (one_ && one_->name != argument.name) {
      more_.push_back(*std::move(one_));
      one_.reset();
    }
    const auto known = std::ranges::find(more_, argument.name, &NamedArgument<View>::name);
    if (known != more_.end())
      *known = std::move(argument);
    else if (more_.empty())
      one_ = std::move(argument);
    else
      more_.push_back(std::move(argument));
  }
  // Most calls have one argument or none, and an RNN makes such a call for each step: one alone takes no
  // memory.
  std::optional<NamedArgument<View>> one_;
  std::vector<NamedArgument<View>> more_;
};

/// The arguments that a call reads, and the gradients that it writes for them.
using Arguments = NamedArguments<ConstTensorView>;
using ArgumentGradients = NamedArguments<TensorView>;

}  // namespace fovea

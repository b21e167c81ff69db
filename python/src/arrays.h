// Here is the extension module of the Python package: masks, plans and calls on arrays. The values of the
// algebra and everything about PyTorch are Python code in python/fovea. Open module.h first.
//
// This header turns arrays of any library into views without a copy, through DLPack or the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exchange.h"
#include "fovea/attention/argument.h"
#include "fovea/core/tensor.h"

namespace fovea::python {

namespace nb = nanobind;

/// Views of a caller's arrays. The object keeps the arrays alive as long as it lives. Create and destroy it
/// with the interpreter lock held.
class Arrays {
 public:
  explicit Arrays(std::string function) : function_(std::move(function)) {}

  /// None gives an empty view. Throws InvalidArgument for `argument` unless the array is f32, f64, bf16 or
  /// f16, in the CPU's memory, and aligned to its elements.
  ConstTensorView read(nb::handle array, const std::string& argument);
  /// The same for an array that may be written to.
  TensorView write(nb::handle array, const std::string& argument);

  const std::string& function() const noexcept { return function_; }

 private:
  TensorView exchanged_view(nb::handle array, const std::string& argument);
  template <class Array>
  TensorView view(const Array& array, nb::handle given, bool as_bf16, const std::string& argument) const;

  std::string function_;
  std::vector<nb::ndarray<nb::ro>> read_;
  std::vector<nb::ndarray<>> written_;
  std::vector<nb::object> exchanged_;
};

nb::dlpack::dtype dlpack_dtype(DType dtype);

/// `view` with the four axes [batch, heads, query_len, key_len] of a mod's argument, of which the array may
/// have those of written_axes alone. Throws InvalidArgument for an array with others.
template <class View>
View as_four_axes(const Arrays& arrays, const View& view, const DeclaredArgument& argument) {
  if (view.rank() == 4) return view;
  const std::optional<std::vector<int>> axes = written_axes(argument.declaration, view.rank());
  if (!axes)
    throw InvalidArgument(arrays.function(), argument.name,
                          "at most " + std::to_string(argument.declaration.written.size()) + " axes, or 4",
                          to_string(view.shape()));
  std::int64_t sizes[4] = {1, 1, 1, 1}, strides[4] = {};
  for (int axis = 0; axis < view.rank(); ++axis) {
    const auto to = static_cast<std::size_t>((*axes)[static_cast<std::size_t>(axis)]);
    sizes[to] = view.size(axis);
    strides[to] = view.stride(axis);
  }
  return View(view.raw(), view.dtype(), Shape(sizes), strides);
}

}  // namespace fovea::python

#include "fovea/attention/argument.h"

#include <algorithm>

#include "fovea/attention/mod_node.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/attention/score_definition.h"
#include "fovea/attention/spec.h"
#include "fovea/core/error.h"

namespace fovea {
namespace {

using Fit = ArgumentAxis::Fit;

bool axis_fits(const ArgumentAxis& axis, const ArgumentSizes& sizes, std::int64_t size) {
  const std::int64_t wanted = axis.of(sizes);
  return size == wanted || (axis.fit == Fit::or_one && size == 1) ||
         (axis.fit == Fit::at_least && size > wanted);
}

std::string axes_text(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes, bool by_head) {
  std::string text = "[";
  if (by_head) text += std::to_string(sizes.num_query_heads);
  for (const ArgumentAxis& axis : declaration.axes) {
    const std::string number = std::to_string(axis.of(sizes));
    if (text.size() > 1) text += ", ";
    if (axis.fit == Fit::at_least) text += "at least ";
    text += number;
    if (axis.fit == Fit::or_one && number != "1") text += " or 1";
  }
  return text + "]";
}

}  // namespace

std::string shape_text(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes) {
  const std::string text = axes_text(declaration, sizes, false);
  return declaration.by_head ? text + " or " + axes_text(declaration, sizes, true) : text;
}

bool fits(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes, const Shape& shape) {
  const int rank = static_cast<int>(declaration.axes.size());
  const int heads = declaration.by_head && shape.rank() == rank + 1 ? 1 : 0;
  if (shape.rank() != rank + heads || (heads && shape[0] != sizes.num_query_heads)) return false;
  for (int axis = 0; axis < rank; ++axis) {
    if (!axis_fits(declaration.axes[static_cast<std::size_t>(axis)], sizes, shape[axis + heads]))
      return false;
  }
  return true;
}

ArgumentSizes completed(const ArgumentDeclaration& declaration, ArgumentSizes known, const Shape& shape) {
  const int rank = static_cast<int>(declaration.axes.size()), in_front = shape.rank() - rank;
  for (int n = 0; n < rank; ++n) {
    const ArgumentAxis& axis = declaration.axes[static_cast<std::size_t>(n)];
    if (!axis.size || known.*axis.size > 0) continue;
    known.*axis.size = in_front >= 0 ? shape[in_front + n] : 1;
  }
  return known;
}

std::optional<std::vector<int>> written_axes(const ArgumentDeclaration& declaration, int rank) {
  const std::string_view written = declaration.written;
  const auto count = static_cast<std::size_t>(rank);
  if (written.empty() || count > written.size()) return std::nullopt;
  std::vector<int> axes;
  for (const char axis : written.substr(written.size() - count))
    axes.push_back(static_cast<int>(std::string_view("bhqk").find(axis)));
  return axes;
}

Tensor with_all_axes(const ArgumentDeclaration& declaration, const Tensor& given) {
  const std::optional<std::vector<int>> axes = written_axes(declaration, given.rank());
  if (!axes) return given;
  std::vector<std::int64_t> sizes(declaration.axes.size(), 1);
  for (std::size_t axis = 0; axis < axes->size(); ++axis)
    sizes[static_cast<std::size_t>((*axes)[axis])] = given.size(static_cast<int>(axis));
  return given.reshape(Shape(sizes));
}

std::optional<Shape> start_shape(const ArgumentDeclaration& declaration, const ArgumentSizes& sizes) {
  std::vector<std::int64_t> shape;
  for (const ArgumentAxis& axis : declaration.axes) {
    const bool known = axis.size == nullptr || axis.of(sizes) > 0;
    if (!known && axis.fit != Fit::or_one) return std::nullopt;
    shape.push_back(known ? axis.of(sizes) : 1);
  }
  return Shape(shape);
}

Tensor start_value(const ArgumentDeclaration& declaration, const Shape& shape, DType dtype) {
  using Start = ArgumentDeclaration::Start;
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InvalidArgument("start_value", "dtype", "f32 or f64", std::string(to_string(dtype)));
  const auto all = static_cast<std::size_t>(shape.count());
  std::vector<double> values;
  switch (declaration.start) {
    case Start::told:
    case Start::given:
    case Start::xavier:
      return {};
    case Start::zero:
      values.assign(all, 0.0);
      break;
    case Start::one:
      values.assign(all, 1.0);
      break;
    case Start::number:
      values.assign(all, declaration.start_number);
      break;
    case Start::computed:
      if (!declaration.start_values)
        throw InvalidArgument("start_value", "declaration.start_values", "a function, as start says", "none");
      values = declaration.start_values(shape.count());
      if (values.size() != all)
        throw InvalidArgument("start_value", "declaration.start_values",
                              "a function of " + std::to_string(all) + " values",
                              "one that returns " + std::to_string(values.size()));
  }
  Tensor tensor(dtype, shape);
  if (dtype == DType::f64)
    std::copy(values.begin(), values.end(), tensor.data<double>());
  else
    std::transform(values.begin(), values.end(), tensor.data<float>(),
                   [](double value) { return static_cast<float>(value); });
  return tensor;
}

std::vector<DeclaredArgument> declared_arguments(const AttentionSpec& spec) {
  std::vector<DeclaredArgument> all;
  const auto add = [&](const std::string& part, std::span<const ArgumentDeclaration> declarations) {
    for (const ArgumentDeclaration& declaration : declarations)
      all.push_back({part + "." + declaration.name, declaration});
  };
  const auto add_mods = [&](const std::string& list, const Mods& mods) {
    for (std::size_t n = 0; n < mods.size(); ++n)
      add(list + "[" + std::to_string(n) + "]", mods[n].node().arguments());
  };
  add("score", definition(spec.score).arguments);
  add_mods("mods", spec.mods);
  add("normalizer", arguments(spec.normalizer));
  add_mods("weight_mods", spec.weight_mods);
  return all;
}

}  // namespace fovea

// The arguments of a layer's score, mods and normaliser: which are parameters, and as what they start.
#include <algorithm>
#include <string>

#include "fovea/attention/argument.h"
#include "fovea/attention/spec.h"
#include "fovea/nn/attention.h"

namespace fovea::nn {
namespace {

using Start = ArgumentDeclaration::Start;

const NamedTensor* named(const std::vector<NamedTensor>& list, const std::string& name) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const NamedTensor& item) { return item.name == name; });
  return found == list.end() ? nullptr : &*found;
}

Parameter& declare(ParameterSet& set, const std::string& name, const ArgumentDeclaration& declaration,
                   const Shape& shape) {
  if (declaration.start == Start::xavier) return set.xavier(name, shape);
  // Of a config, a table may be larger than any memory; the source looks at the file first.
  if (set.given()) return set.constant(name, shape, 0.0f);
  return set.constant(name, start_value(declaration, shape, DType::f32));
}

// The sizes that only a call brings are those of the tensor.
void check_shape(const char* list, const DeclaredArgument& argument, const ArgumentSizes& known,
                 const Tensor& value) {
  const ArgumentSizes sizes = completed(argument.declaration, known, value.shape());
  if (value.dtype() != DType::f32 || !fits(argument.declaration, sizes, value.shape()))
    throw InvalidArgument("MultiHeadAttention", std::string("options.") + list,
                          argument.name + " of f32 " + shape_text(argument.declaration, sizes),
                          std::string(to_string(value.dtype())) + " " + to_string(value.shape()));
}

}  // namespace

void MultiHeadAttention::declare_arguments(ParameterSet& set, const std::string& name,
                                           const MultiHeadAttention* shared) {
  const std::vector<DeclaredArgument> declared = declared_arguments(options_.spec);
  const ArgumentSizes sizes{.num_query_heads = options_.num_query_heads,
                            .query_dim = options_.head_dim,
                            .key_dim = options_.head_dim,
                            .hidden = options_.hidden};
  const auto refuse_unknown = [&](const char* list, const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& tensor : tensors) {
      if (std::any_of(declared.begin(), declared.end(),
                      [&](const DeclaredArgument& argument) { return argument.name == tensor.name; }))
        continue;
      std::string names;
      for (const DeclaredArgument& argument : declared) names += (names.empty() ? "" : ", ") + argument.name;
      throw InvalidArgument(
          "MultiHeadAttention", std::string("options.") + list,
          names.empty() ? "none: the spec has no arguments" : "arguments of the spec: " + names, tensor.name);
    }
  };
  refuse_unknown("learned", options_.learned);
  refuse_unknown("fixed", options_.fixed);
  for (const DeclaredArgument& one : declared) {
    const auto& [full_name, declaration] = one;
    if (const NamedTensor* fixed = named(options_.fixed, full_name)) {
      const Tensor value = with_all_axes(declaration, fixed->value);
      check_shape("fixed", one, sizes, value);
      arguments_.push_back({.name = full_name, .fixed = value});
      continue;
    }
    const NamedTensor* told = named(options_.learned, full_name);
    const bool starts = declaration.start != Start::told && declaration.start != Start::given &&
                        declaration.absent == ArgumentDeclaration::Absent::refused && declaration.learned;
    if (!told && !starts) continue;
    const Tensor value = told ? with_all_axes(declaration, told->value) : Tensor();
    if (told) check_shape("learned", one, sizes, value);
    if (Parameter* parameter = shared ? shared->argument(full_name) : nullptr) {
      arguments_.push_back({.name = full_name, .learned = parameter});
      continue;
    }
    const std::optional<Shape> shape = told ? value.shape() : start_shape(declaration, sizes);
    if (!shape) continue;  // of the lengths of a call: it comes with each
    const std::string of_set = name + "." + full_name;
    Parameter& parameter = told ? set.constant(of_set, value) : declare(set, of_set, declaration, *shape);
    arguments_.push_back({.name = full_name, .learned = &parameter});
  }
}

Parameter* MultiHeadAttention::argument(std::string_view name) const {
  for (const Argument& argument : arguments_) {
    if (argument.name == name) return argument.learned;
  }
  return nullptr;
}

}  // namespace fovea::nn

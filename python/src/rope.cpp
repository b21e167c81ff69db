// Rotary position embeddings, and the merge of parts.
#include "fovea/plan/rope.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "fovea/attention/expression.h"
#include "fovea/plan/merge.h"
#include "module.h"

namespace fovea::python {
namespace {

// Positions are `first` + row, or those of `list`: [length], or [batch, length] laid flat.
void rotate(const RopeTable& table, nb::handle input, std::int64_t first,
            const std::optional<std::vector<std::int64_t>>& list, nb::handle output, bool backward) {
  Arrays arrays("rotate");
  const ConstTensorView in = arrays.read(input, "x");
  const TensorView out = arrays.write(output, "out");
  const RopePositions positions = list ? RopePositions(std::span(*list)) : RopePositions(first);
  const nb::gil_scoped_release released;
  if (backward)
    rope_backward(table, in, positions, out);
  else
    rope_forward(table, in, positions, out);
}

void merge(const nb::list& parts, nb::handle output, nb::handle log_sum_exp) {
  Arrays arrays("merge");
  std::vector<AttentionPart> views;
  for (const nb::handle part : parts) {
    const std::string name = "parts[" + std::to_string(views.size()) + "]";
    views.push_back({arrays.read(part[0], name + "[0]"), arrays.read(part[1], name + "[1]")});
  }
  const TensorView out = arrays.write(output, "output"), lse = arrays.write(log_sum_exp, "log_sum_exp");
  const nb::gil_scoped_release released;
  merge_attention(views, out, lse);
}

}  // namespace

void bind_rope(nb::module_& module) {
  nb::class_<RopeTable>(module, "RopeTable", "Cosines and sines of positions.")
      .def("__init__",
           [](RopeTable* self, const std::string& rope, std::int64_t positions, const std::string& dtype) {
             const Rope parsed = parse_rope(rope);
             const DType type = dtype_named(dtype);
             const nb::gil_scoped_release released;
             new (self) RopeTable(parsed, positions, type);
           })
      .def_prop_ro("positions", &RopeTable::positions)
      .def("rotate", rotate, nb::arg("input"), nb::arg("first"), nb::arg("list").none(), nb::arg("output"),
           nb::arg("backward"));
  module.def("merge", merge, nb::arg("parts"), nb::arg("output"), nb::arg("log_sum_exp").none());
}

}  // namespace fovea::python

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
#include "interrupt.h"
#include "module.h"

namespace fovea::python {
namespace {

using Positions = std::optional<std::vector<std::int64_t>>;

void rotate_arrays(Arrays& arrays, const RopeTable& table, nb::handle input, std::int64_t first,
                   const Positions& list, nb::handle output, bool backward) {
  const ConstTensorView in = arrays.read(input, "x");
  const TensorView out = arrays.write(output, "out");
  const RopePositions positions = list ? RopePositions(std::span(*list)) : RopePositions(first);
  interruptible([&](Executor& executor) {
    (backward ? rope_backward : rope_forward)(table, in, positions, out, &executor);
  });
}

// Positions are `first` + row, or those of `list`: [length], or [batch, length] laid flat.
void rotate(const RopeTable& table, nb::handle input, std::int64_t first, const Positions& list,
            nb::handle output, bool backward) {
  Arrays arrays("rotate");
  rotate_arrays(arrays, table, input, first, list, output, backward);
}

// By tables that the caller brought.
void rotate_by_tables(nb::handle cosines, nb::handle sines, bool interleaved, nb::handle input,
                      std::int64_t first, const Positions& list, nb::handle output, bool backward) {
  Arrays arrays("rotate");
  const RopeTable table(arrays.read(cosines, "cos"), arrays.read(sines, "sin"),
                        interleaved ? RopeLayout::interleaved : RopeLayout::half_split);
  rotate_arrays(arrays, table, input, first, list, output, backward);
}

void merge(const nb::list& parts, nb::handle output, nb::handle log_sum_exp) {
  Arrays arrays("merge");
  std::vector<AttentionPart> views;
  for (const nb::handle part : parts) {
    const std::string name = "parts[" + std::to_string(views.size()) + "]";
    views.push_back({arrays.read(part[0], name + "[0]"), arrays.read(part[1], name + "[1]")});
  }
  const TensorView out = arrays.write(output, "output"), lse = arrays.write(log_sum_exp, "log_sum_exp");
  interruptible([&](Executor& executor) { merge_attention(views, out, lse, {.executor = &executor}); });
}

}  // namespace

void bind_rope(nb::module_& module) {
  nb::class_<RopeTable>(module, "RopeTable", "Cosines and sines of positions.")
      .def("__init__",
           [](RopeTable* self, const std::string& rope, std::int64_t positions, const std::string& dtype) {
             const Rope parsed = parse_rope(rope);
             const DType type = dtype_named(dtype);
             interruptible(
                 [&](Executor& executor) { new (self) RopeTable(parsed, positions, type, &executor); });
           })
      .def_prop_ro("positions", &RopeTable::positions)
      .def("rotate", rotate, nb::arg("input"), nb::arg("first"), nb::arg("list").none(), nb::arg("output"),
           nb::arg("backward"));
  module.def("rotate_by_tables", rotate_by_tables, nb::arg("cos"), nb::arg("sin"), nb::arg("interleaved"),
             nb::arg("input"), nb::arg("first"), nb::arg("list").none(), nb::arg("output"),
             nb::arg("backward"));
  module.def("merge", merge, nb::arg("parts"), nb::arg("output"), nb::arg("log_sum_exp").none());
}

}  // namespace fovea::python

// Masks: from their text, from each other, and from what a Python predicate said.
#include "fovea/attention/masks.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/expression.h"
#include "module.h"

namespace fovea::python {
namespace {

namespace nb = nanobind;

using Visible = nb::ndarray<const bool, nb::ndim<4>, nb::device::cpu>;

// Collects rows of a predicate, one block of queries at a time, so that no array of all pairs is needed.
class PredicateRows {
 public:
  void append(const Visible& visible) {
    const std::size_t batches = visible.shape(0), heads = visible.shape(1), queries = visible.shape(2);
    const nb::gil_scoped_release released;
    for (std::size_t b = 0; b < batches; ++b) {
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t i = 0; i < queries; ++i) {
          const bool* row = visible.data() + static_cast<std::int64_t>(b) * visible.stride(0) +
                            static_cast<std::int64_t>(h) * visible.stride(1) +
                            static_cast<std::int64_t>(i) * visible.stride(2);
          rows_.emplace_back(reinterpret_cast<const std::uint8_t*>(row),
                             static_cast<std::int64_t>(visible.shape(3)), visible.stride(3));
        }
      }
    }
  }
  // Of queries that see nothing.
  void append_nothing(std::size_t queries) { rows_.resize(rows_.size() + queries); }
  Mask finish(const std::string& name, std::int64_t batch, std::int64_t heads, std::int64_t query_begin,
              std::int64_t query_end, std::int64_t key_len) {
    return Predicate::of_rows(name,
                              {.batch = batch,
                               .heads = heads,
                               .query_begin = query_begin,
                               .query_end = query_end,
                               .key_len = key_len},
                              std::move(rows_));
  }

 private:
  std::vector<KeyRow> rows_;
};

// Queries at positions from query_begin on. Axes of stride 0 are shared, not stored again.
Mask mask_of_array(const Visible& visible, std::int64_t query_begin) {
  const auto size = [&](std::size_t axis) { return static_cast<std::int64_t>(visible.shape(axis)); };
  const nb::gil_scoped_release released;
  return Predicate("array",
                   {.batch = size(0),
                    .heads = size(1),
                    .query_begin = query_begin,
                    .query_end = query_begin + size(2),
                    .key_len = size(3)},
                   reinterpret_cast<const std::uint8_t*>(visible.data()),
                   {.batch = visible.stride(0),
                    .head = visible.stride(1),
                    .query = visible.stride(2),
                    .key = visible.stride(3)});
}

}  // namespace

void bind_masks(nb::module_& module) {
  nb::class_<Mask>(module, "Mask", "A mask of the engine.")
      .def("__init__", [](Mask* self, const std::string& text) { new (self) Mask(parse_mask(text)); })
      .def("__and__", [](const Mask& a, const Mask& b) { return a & b; })
      .def("__or__", [](const Mask& a, const Mask& b) { return a | b; })
      .def("__invert__", [](const Mask& a) { return ~a; })
      .def("__str__", [](const Mask& a) { return to_string(a); });

  nb::class_<PredicateRows>(module, "PredicateRows", "The rows of a mask that an array gives.")
      .def(nb::init<>())
      .def("append", [](PredicateRows& self, const Visible& visible) { self.append(visible); })
      .def("append_nothing", &PredicateRows::append_nothing)
      .def("finish", &PredicateRows::finish);

  module.def("mask_of_array", mask_of_array);
}

}  // namespace fovea::python

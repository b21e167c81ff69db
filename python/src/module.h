// The parts of the extension module: module.cpp calls these functions to bind them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "fovea/core/dtype.h"

namespace fovea::python {

void bind_cache(nanobind::module_& module);
void bind_masks(nanobind::module_& module);
void bind_memory(nanobind::module_& module);
void bind_plain_calls(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_properties(nanobind::module_& module);
void bind_recurrence(nanobind::module_& module);
void bind_rope(nanobind::module_& module);
void bind_scans(nanobind::module_& module);

/// Throws InvalidArgument for anything but "f32", "f64", "bf16", "f16".
DType dtype_named(const std::string& name);

}  // namespace fovea::python

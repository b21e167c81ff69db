#include "module.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "fovea/attention/mod.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "host_team.h"

namespace fovea::python {
namespace {

namespace nb = nanobind;

// A message may hold bytes of a file, which need not be UTF-8.
nb::object text(const std::string& bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

// Fovea's exceptions as the package's own, with their four parts.
void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InvalidArgument& error) {
    const nb::object type = nb::module_::import_("fovea._errors").attr("InvalidArgument");
    const nb::object value =
        type(text(error.function()), text(error.argument()), text(error.expected()), text(error.got()));
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const FileError& error) {
    const nb::object type = nb::module_::import_("fovea._errors").attr("FileError");
    const nb::object value =
        type(text(error.what()), text(error.file()), error.offset(), text(error.reason()));
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const CacheFull& error) {
    const nb::object type = nb::module_::import_("fovea._errors").attr("CacheFull");
    const nb::object value = type(error.what(), error.needed(), error.used(), error.limit());
    PyErr_SetObject(type.ptr(), value.ptr());
  } catch (const Error& error) {
    PyErr_SetObject(PyExc_RuntimeError, text(error.what()).ptr());
  }
}

}  // namespace
}  // namespace fovea::python

NB_MODULE(_core, module) {
  namespace nb = nanobind;
  // A program may delete the package from sys.modules and import it again, and Python then makes a new
  // module. nanobind keeps the types of the first one for ever, and would refuse or duplicate them, so both
  // modules share its contents.
  static PyObject* first = nullptr;  // borrowed by nobody else, and kept until the process ends
  PyObject* own = PyModule_GetDict(module.ptr());
  if (first) {
    if (PyDict_Merge(own, first, /*override=*/0) != 0) throw nb::python_error();
    return;
  }
  // Plans that a cache or a traceback still holds when the interpreter ends are no leak to tell of.
  nb::set_leak_warnings(false);
  module.doc() = "The engine: thin bindings, no arithmetic. The package fovea is what people use.";
  nb::register_exception_translator(fovea::python::translate);
  fovea::python::bind_masks(module);
  fovea::python::bind_memory(module);
  fovea::python::bind_cache(module);
  fovea::python::bind_plan(module);
  fovea::python::bind_plain_calls(module);
  fovea::python::bind_properties(module);
  fovea::python::bind_recurrence(module);
  fovea::python::bind_rope(module);
  fovea::python::bind_scans(module);
  module.def("set_num_threads", fovea::python::set_num_threads);
  module.def("join_threads_of_torch", fovea::python::join_threads_of_torch);
  module.def("get_num_threads", [] { return fovea::default_executor().thread_count(); });
  module.def("alibi_slopes", fovea::alibi_slopes);
  Py_INCREF(own);
  first = own;
}

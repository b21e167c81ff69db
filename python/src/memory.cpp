// Memory of the engine's regions (fovea/core/memory.h) as tensors of PyTorch, for what forward saves for
// backward. PyTorch's own memory above 32 MiB comes from the system at each step and goes back to it: 128 MiB
// of states cost more page faults than they spare.
#include "fovea/core/memory.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fovea/core/tensor.h"
#include "module.h"

namespace fovea::python {
namespace {

namespace nb = nanobind;

// Both functions below are called with the interpreter lock held, which guards it.
std::optional<KeepMemory> kept;

template <typename T>
nb::object as_tensor(const Tensor& memory) {
  auto owner = std::make_unique<Tensor>(memory);
  T* const data = owner->data<T>();
  const nb::capsule keeper(owner.get(), [](void* tensor) noexcept { delete static_cast<Tensor*>(tensor); });
  owner.release();
  const std::size_t count = static_cast<std::size_t>(memory.count());
  return nb::cast(nb::ndarray<nb::pytorch, T, nb::ndim<1>>(data, {count}, keeper));
}

nb::object kept_elements(std::int64_t count, const std::string& dtype) {
  if (!kept) kept.emplace();
  const DType type = dtype_named(dtype);
  const Tensor memory(type, {count});
  return type == DType::f64 ? as_tensor<double>(memory) : as_tensor<float>(memory);
}

}  // namespace

void bind_memory(nb::module_& module) {
  module.def("kept_elements", kept_elements, nb::arg("count"), nb::arg("dtype"));
  module.def("release_memory", [] { kept.reset(); });
}

}  // namespace fovea::python

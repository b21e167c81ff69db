#include "exchange.h"

#include <unordered_map>

#include "arrays.h"

namespace fovea::python {
namespace {

// DLPack 1.3's structs, by their memory.
struct Version {
  std::uint32_t major, minor;
};
struct ManagedTensor {
  Version version;
  void* context;
  void (*deleter)(ManagedTensor*);
  std::uint64_t flags;
  ExchangedArray tensor;
};

}  // namespace

struct ExchangeFunctions {
  Version version;
  ExchangeFunctions* older;
  int (*allocate)(ExchangedArray* prototype, ManagedTensor** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*to_object)(ManagedTensor* tensor, void** out);
  int (*tensor_from_object)(void* object, ExchangedArray* out);
  int (*current_stream)(int device_type, std::int32_t device, void** out);

  static ExchangedArray prototype(DType dtype, const Shape& shape, std::int64_t* sizes) {
    ExchangedArray like;
    like.device_type_ = nb::device::cpu::value;
    like.ndim_ = shape.rank();
    like.dtype_ = dlpack_dtype(dtype);
    like.shape_ = sizes;
    return like;
  }
};

namespace {

void set_error(void*, const char*, const char* message) {
  PyErr_SetString(PyExc_RuntimeError, message);
}

const ExchangeFunctions* functions_of(PyTypeObject* type) {
  const nb::object capsule =
      nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  void* found = capsule.is_valid() ? PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api") : nullptr;
  PyErr_Clear();
  const auto* functions = static_cast<const ExchangeFunctions*>(found);
  while (functions && functions->version.major != 1) functions = functions->older;
  return functions && functions->tensor_from_object && functions->allocate && functions->to_object ? functions
                                                                                                   : nullptr;
}

}  // namespace

std::int64_t ExchangedArray::stride(std::size_t axis) const {
  if (strides_) return strides_[axis];
  std::int64_t stride = 1;
  for (std::size_t inner = ndim(); --inner > axis;) stride *= shape_[inner];
  return stride;
}

const ExchangeFunctions* exchange_of(nb::handle array) {
  // Holds the types, so that no other type gets the address of one. Never destroyed: the interpreter may end
  // first.
  static auto& known = *new std::unordered_map<PyTypeObject*, const ExchangeFunctions*>;
  PyTypeObject* type = Py_TYPE(array.ptr());
  const auto found = known.find(type);
  if (found != known.end()) return found->second;
  if (known.size() >= 64) return functions_of(type);  // a program that makes types without end
  Py_INCREF(type);
  return known[type] = functions_of(type);
}

std::optional<ExchangedArray> exchanged(const ExchangeFunctions& functions, nb::handle array) {
  ExchangedArray found;
  if (functions.tensor_from_object(array.ptr(), &found) == 0) return found;
  PyErr_Clear();
  return std::nullopt;
}

NewArray new_array(const ExchangeFunctions& functions, DType dtype, const Shape& shape) {
  std::int64_t sizes[max_rank];
  for (int axis = 0; axis < shape.rank(); ++axis) sizes[axis] = shape[axis];
  ExchangedArray like = ExchangeFunctions::prototype(dtype, shape, sizes);
  ManagedTensor* tensor = nullptr;
  if (functions.allocate(&like, &tensor, nullptr, set_error) != 0) throw nb::python_error();
  auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(tensor->tensor.data()));
  void* object = nullptr;
  if (functions.to_object(tensor, &object) != 0) {
    if (tensor->deleter) tensor->deleter(tensor);
    throw nb::python_error();
  }
  return {nb::steal(static_cast<PyObject*>(object)), TensorView(data, dtype, shape)};
}

}  // namespace fovea::python

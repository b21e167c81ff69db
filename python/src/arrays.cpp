#include "arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

namespace fovea::python {
namespace {

std::optional<DType> dtype_of_array(const nb::dlpack::dtype& dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  if (code == nb::dlpack::dtype_code::Bfloat && dtype.bits == 16) return DType::bf16;
  if (code != nb::dlpack::dtype_code::Float) return std::nullopt;
  switch (dtype.bits) {
    case 16:
      return DType::f16;
    case 32:
      return DType::f32;
    case 64:
      return DType::f64;
    default:
      return std::nullopt;
  }
}

// str() of an attribute; "" if there is none or reading it raised.
std::string attribute(nb::handle object, const char* name) {
  const nb::object found = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  const nb::object text = nb::steal(found.is_valid() ? PyObject_Str(found.ptr()) : nullptr);
  const char* characters = text.is_valid() ? PyUnicode_AsUTF8(text.ptr()) : nullptr;
  std::string result = characters ? characters : "";
  PyErr_Clear();
  return result;
}

std::string described(nb::handle array) {
  std::string text = Py_TYPE(array.ptr())->tp_name;
  const std::string dtype = attribute(array, "dtype"), device = attribute(array, "device");
  if (!dtype.empty()) text += " of " + dtype;
  if (!device.empty() && device != "cpu") text += " on " + device;
  return text;
}

// ml_dtypes' bfloat16. No protocol exports its NumPy arrays, so their bits are read.
bool is_numpy_bf16(nb::handle array) {
  return PyObject_HasAttrString(array.ptr(), "view") && attribute(array, "dtype") == "bfloat16";
}

template <class Array>
Array imported(nb::handle array, const std::string& function, const std::string& argument, bool& as_bf16) {
  Array result;
  as_bf16 = false;
  if (nb::try_cast(array, result, false)) return result;
  PyErr_Clear();
  if (is_numpy_bf16(array)) {
    as_bf16 = true;
    try {
      if (nb::try_cast(array.attr("view")("uint16"), result, false)) return result;
    } catch (nb::python_error&) {  // falls through to the refusal
    }
    PyErr_Clear();
  }
  const bool writable = !Array::ReadOnly;
  throw InvalidArgument(function, argument,
                        std::string(writable ? "a writable" : "an") +
                            " array of f32, f64, bf16 or f16 in memory (NumPy, or with __dlpack__)",
                        described(array));
}

}  // namespace

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  const auto code = dtype == DType::bf16 ? nb::dlpack::dtype_code::Bfloat : nb::dlpack::dtype_code::Float;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
}

template <class Array>
TensorView Arrays::view(const Array& array, nb::handle given, bool as_bf16,
                        const std::string& argument) const {
  const auto refuse = [&](const std::string& expected, const std::string& got) {
    throw InvalidArgument(function_, argument, expected, got);
  };
  if (array.device_type() != nb::device::cpu::value)
    refuse("an array in this machine's memory",
           "one on a device of DLPack type " + std::to_string(array.device_type()));
  const std::optional<DType> dtype = as_bf16 ? DType::bf16 : dtype_of_array(array.dtype());
  if (!dtype) refuse("an array of f32, f64, bf16 or f16", described(given));
  if (array.ndim() > max_rank)
    refuse("at most " + std::to_string(max_rank) + " axes", std::to_string(array.ndim()));
  std::int64_t sizes[max_rank] = {}, strides[max_rank] = {};
  const auto element = static_cast<std::int64_t>(size_of(*dtype));
  constexpr std::int64_t max_stride = std::numeric_limits<std::int64_t>::max();
  std::int64_t reach = 0;
  bool none = false;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) none = none || array.shape(axis) == 0;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    sizes[axis] = static_cast<std::int64_t>(array.shape(axis));
    strides[axis] = array.stride(axis);
    // The offset of the last element, in bytes: one that does not fit cannot lie in any memory.
    std::int64_t step = 0;
    const std::int64_t length = strides[axis] < 0 ? -std::max(strides[axis], -max_stride) : strides[axis];
    if (!none && sizes[axis] > 1 &&
        (__builtin_mul_overflow(sizes[axis] - 1, length, &step) ||
         __builtin_mul_overflow(step, element, &step) || __builtin_add_overflow(reach, step, &reach)))
      refuse("strides that stay inside memory", "a stride of " + std::to_string(strides[axis]) + " elements");
  }
  // Strides of axes with one element, or of empty arrays, have no meaning, and libraries may set them to
  // anything.
  std::int64_t contiguous = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0;) {
    if (none || sizes[axis] == 1) strides[axis] = contiguous;
    if (none || sizes[axis] != 1) contiguous = sizes[axis] * strides[axis];
  }
  auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(array.data()));
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(element) != 0)
    refuse("elements aligned to their size", "an address that is no multiple of " + std::to_string(element));
  // An array without elements may have no address, but a view without an address would mean "not given".
  static std::byte nothing{};
  return TensorView(data ? data : &nothing, *dtype, Shape(std::span<const std::int64_t>(sizes, array.ndim())),
                    std::span<const std::int64_t>(strides, array.ndim()));
}

// An empty view where the array's library has no exchange by functions, or refuses this array.
TensorView Arrays::exchanged_view(nb::handle array, const std::string& argument) {
  const ExchangeFunctions* functions = exchange_of(array);
  const std::optional<ExchangedArray> found =
      functions ? exchanged(*functions, array) : std::optional<ExchangedArray>();
  if (!found) return {};
  exchanged_.push_back(nb::borrow(array));
  return view(*found, array, false, argument);
}

ConstTensorView Arrays::read(nb::handle array, const std::string& argument) {
  if (array.is_none()) return {};
  if (const TensorView found = exchanged_view(array, argument)) return found;
  bool as_bf16 = false;
  read_.push_back(imported<nb::ndarray<nb::ro>>(array, function_, argument, as_bf16));
  return view(read_.back(), array, as_bf16, argument);
}

TensorView Arrays::write(nb::handle array, const std::string& argument) {
  if (array.is_none()) return {};
  if (const TensorView found = exchanged_view(array, argument)) return found;
  bool as_bf16 = false;
  written_.push_back(imported<nb::ndarray<>>(array, function_, argument, as_bf16));
  return view(written_.back(), array, as_bf16, argument);
}

}  // namespace fovea::python

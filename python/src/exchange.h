// Tensors of libraries that have DLPack's exchange by C functions (DLPack 1.3; PyTorch since 2.10). Such a
// tensor's address and sizes are read without a capsule, in a tenth of the time, and new tensors are made
// without a call of Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>

#include "fovea/core/tensor.h"

namespace fovea::python {

namespace nb = nanobind;

/// DLPack's DLTensor, with the members that nb::ndarray has.
class ExchangedArray {
 public:
  int device_type() const { return device_type_; }
  nb::dlpack::dtype dtype() const { return dtype_; }
  std::size_t ndim() const { return static_cast<std::size_t>(ndim_); }
  std::int64_t shape(std::size_t axis) const { return shape_[axis]; }
  std::int64_t stride(std::size_t axis) const;
  const void* data() const { return static_cast<const std::byte*>(data_) + byte_offset_; }

 private:
  // DLPack's order of members.
  void* data_ = nullptr;
  std::int32_t device_type_ = 0, device_id_ = 0;
  std::int32_t ndim_ = 0;
  nb::dlpack::dtype dtype_{};
  std::int64_t* shape_ = nullptr;
  std::int64_t* strides_ = nullptr;  // in elements; null: row-major
  std::uint64_t byte_offset_ = 0;
  friend struct ExchangeFunctions;
};

/// The functions that an array's type offers; nullptr if it offers none.
const struct ExchangeFunctions* exchange_of(nb::handle array);

/// The memory of an array whose type offers these functions; nullopt where the array has none. It is valid as
/// long as the array is.
std::optional<ExchangedArray> exchanged(const ExchangeFunctions& functions, nb::handle array);

/// A new array of that library, row-major and not initialised, in the CPU's memory.
struct NewArray {
  nb::object array;
  TensorView view;
};
NewArray new_array(const ExchangeFunctions& functions, DType dtype, const Shape& shape);

}  // namespace fovea::python

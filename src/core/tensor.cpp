#include "fovea/core/tensor.h"

#include <cstring>
#include <vector>

#include "core/memory.h"
#include "fovea/core/philox.h"

namespace fovea {
namespace {

template <class T>
void fill_elements(Tensor& tensor, double value) {
  std::fill_n(tensor.data<T>(), tensor.count(), static_cast<T>(value));
}

// Numbers of the last axes that lie behind each other are copied together.
void copy_strided(const ConstTensorView& from, std::byte* to) {
  const auto element = static_cast<std::int64_t>(size_of(from.dtype()));
  const std::int64_t count = from.count();
  int axes = from.rank();
  std::int64_t run = 1;
  while (axes > 0 && (from.stride(axes - 1) == run || from.size(axes - 1) == 1)) run *= from.size(--axes);
  std::array<std::int64_t, max_rank> index{};
  for (std::int64_t n = 0; n < count; n += run) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < axes; ++axis) offset += index[axis] * from.stride(axis);
    std::memcpy(to + n * element, from.raw() + offset * element, static_cast<std::size_t>(run * element));
    for (int axis = axes - 1; axis >= 0; --axis) {
      if (++index[axis] < from.size(axis)) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

Shape::Shape(std::span<const std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
  if (sizes.size() > static_cast<std::size_t>(max_rank)) {
    throw InvalidArgument("Shape", "sizes", "at most " + std::to_string(max_rank) + " axes",
                          std::to_string(sizes.size()));
  }
  std::int64_t room = std::int64_t{1} << 59;  // so that the bytes of doubles stay below 2^63
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] < 0 || sizes[axis] > room) {
      throw InvalidArgument("Shape", "sizes", "sizes of at least 0 and at most 2^59 elements in all",
                            std::to_string(sizes[axis]) + " at axis " + std::to_string(axis));
    }
    if (sizes[axis] > 0) room /= sizes[axis];
    sizes_[axis] = sizes[axis];
  }
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

Tensor::Tensor(DType dtype, Shape shape)
    : storage_(allocate_elements(static_cast<std::size_t>(shape.count()) * size_of(dtype))),
      dtype_(dtype),
      shape_(shape) {}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  Tensor result(dtype, shape);
  std::memset(result.raw(), 0, result.bytes());
  return result;
}

Tensor Tensor::without_elements(DType dtype, Shape shape) {
  Tensor result;
  result.dtype_ = dtype;
  result.shape_ = shape;
  return result;
}

Tensor Tensor::normal(Shape shape, std::uint64_t seed) {
  Tensor result(DType::f32, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < result.count(); ++i) result.data<float>()[i] = random.next_normal();
  return result;
}

Tensor Tensor::copy_of(ConstTensorView view) {
  if (view.empty()) return {};
  Tensor result(view.dtype(), view.shape());
  if (view.contiguous()) {
    if (result.bytes() > 0) std::memcpy(result.raw(), view.raw(), result.bytes());
  } else {
    copy_strided(view, result.raw());
  }
  return result;
}

Tensor Tensor::reshape(Shape shape) const {
  if (shape.count() != count()) {
    throw InvalidArgument("Tensor::reshape", "shape", "a shape of " + std::to_string(count()) + " elements",
                          to_string(shape));
  }
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

void Tensor::fill(double value) {
  if (empty()) throw InvalidArgument("Tensor::fill", "tensor", "one with elements", "an empty one");
  switch (dtype_) {
    case DType::f32:
      return fill_elements<float>(*this, value);
    case DType::f64:
      return fill_elements<double>(*this, value);
    case DType::bf16:
      return static_cast<void>(std::fill_n(data<bfloat16>(), count(), bfloat16(static_cast<float>(value))));
    case DType::f16:
      return static_cast<void>(std::fill_n(data<float16>(), count(), float16(static_cast<float>(value))));
  }
}

}  // namespace fovea

// A Tensor owns its elements, a TensorView borrows them. Both have a dtype and a shape. A view also has
// strides, which count elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "fovea/core/dtype.h"
#include "fovea/core/error.h"

namespace fovea {

inline constexpr int max_rank = 6;

/// Sizes of a tensor, outermost first. A plain value, never on the heap.
class Shape {
 public:
  Shape() = default;
  /// Throws InvalidArgument for more than max_rank sizes, a negative size, or an element count above 2^59.
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes);

  int rank() const noexcept { return rank_; }
  /// Negative axes count from the end.
  std::int64_t operator[](int axis) const noexcept { return sizes_[axis < 0 ? rank_ + axis : axis]; }
  std::int64_t count() const noexcept {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= sizes_[i];
    return n;
  }
  std::span<const std::int64_t> sizes() const noexcept {
    return {sizes_.data(), static_cast<std::size_t>(rank_)};
  }
  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    return std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin(), b.sizes().end());
  }

 private:
  std::array<std::int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

/// "[2, 4, 16, 64]".
std::string to_string(const Shape& shape);

/// A strided view of elements that belong to somebody else. `Byte` is std::byte, or const std::byte for a
/// read-only view.
template <class Byte>
class BasicTensorView {
 public:
  BasicTensorView() = default;

  /// Contiguous, row-major.
  BasicTensorView(Byte* data, DType dtype, Shape shape) : data_(data), dtype_(dtype), shape_(shape) {
    std::int64_t step = 1;
    for (int i = shape_.rank() - 1; i >= 0; --i) {
      strides_[i] = step;
      step *= shape_[i];
    }
  }
  /// `strides` counts elements and has one entry an axis.
  BasicTensorView(Byte* data, DType dtype, Shape shape, std::span<const std::int64_t> strides)
      : data_(data), dtype_(dtype), shape_(shape) {
    if (static_cast<int>(strides.size()) != shape.rank()) {
      throw InvalidArgument("TensorView", "strides", std::to_string(shape.rank()) + " strides, one an axis",
                            std::to_string(strides.size()));
    }
    std::copy(strides.begin(), strides.end(), strides_.begin());
  }
  template <class T>
  requires(!std::is_same_v<std::remove_const_t<T>, std::byte>) BasicTensorView(T* data, Shape shape)
      : BasicTensorView(reinterpret_cast<Byte*>(data), dtype_of<std::remove_const_t<T>>, shape) {}

  /// A mutable view converts to a read-only one.
  template <class Other>
  requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : BasicTensorView(other.raw(), other.dtype(), other.shape(), other.strides()) {}

  bool empty() const noexcept { return data_ == nullptr; }
  explicit operator bool() const noexcept { return data_ != nullptr; }
  Byte* raw() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t size(int axis) const noexcept { return shape_[axis]; }
  std::int64_t stride(int axis) const noexcept { return strides_[axis < 0 ? shape_.rank() + axis : axis]; }
  std::span<const std::int64_t> strides() const noexcept {
    return {strides_.data(), static_cast<std::size_t>(shape_.rank())};
  }
  std::int64_t count() const noexcept { return shape_.count(); }
  bool contiguous() const noexcept {
    std::int64_t step = 1;
    for (int i = shape_.rank() - 1; i >= 0; --i) {
      if (shape_[i] > 1 && strides_[i] != step) return false;
      step *= shape_[i];
    }
    return true;
  }

  /// The elements as T, which must be the view's dtype.
  template <class T>
  auto data() const {
    using Pointer = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;
    if (dtype_of<T> != dtype_) {
      throw InvalidArgument("TensorView::data", "T", std::string(to_string(dtype_)),
                            std::string(to_string(dtype_of<T>)));
    }
    return reinterpret_cast<Pointer>(data_);
  }
  /// The element at `index`, which has one entry an axis. Nothing is checked: for tests and small code, not
  /// for kernels.
  template <class T>
  auto& at(std::initializer_list<std::int64_t> index) const {
    std::int64_t offset = 0;
    int axis = 0;
    for (const std::int64_t i : index) offset += i * strides_[axis++];
    return data<T>()[offset];
  }

  /// The view with axis `axis` cut to [begin, begin + length).
  BasicTensorView slice(int axis, std::int64_t begin, std::int64_t length) const {
    if (axis < 0) axis += rank();
    if (axis < 0 || axis >= rank() || begin < 0 || length < 0 || length > shape_[axis] ||
        begin > shape_[axis] - length) {
      throw InvalidArgument(
          "TensorView::slice", "begin, length", "a range inside " + to_string(shape_),
          "axis " + std::to_string(axis) + ", " + std::to_string(length) + " from " + std::to_string(begin));
    }
    std::array<std::int64_t, max_rank> sizes{};
    std::copy(shape_.sizes().begin(), shape_.sizes().end(), sizes.begin());
    sizes[axis] = length;
    return {data_ + begin * strides_[axis] * static_cast<std::int64_t>(size_of(dtype_)), dtype_,
            Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank()))), strides()};
  }

 private:
  Byte* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_;
  std::array<std::int64_t, max_rank> strides_{};
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

/// Owns contiguous, 64-byte aligned elements. Copies of a Tensor share the elements; `clone` copies them.
class Tensor {
 public:
  /// An empty tensor: it has rank 0, so its count is 1, but no element.
  Tensor() = default;
  /// The elements are not initialised. Throws std::bad_alloc when memory runs out.
  Tensor(DType dtype, Shape shape);
  static Tensor zeros(DType dtype, Shape shape);
  /// A shape whose elements are elsewhere: empty() is true, and there is nothing to read.
  static Tensor without_elements(DType dtype, Shape shape);
  /// Standard normal numbers in f32, a function of `seed` alone (Philox).
  static Tensor normal(Shape shape, std::uint64_t seed);
  template <class T>
  static Tensor from(std::span<const T> values, Shape shape) {
    if (static_cast<std::int64_t>(values.size()) != shape.count()) {
      throw InvalidArgument("Tensor::from", "values",
                            std::to_string(shape.count()) + " elements for " + to_string(shape),
                            std::to_string(values.size()));
    }
    Tensor result(dtype_of<T>, shape);
    std::copy(values.begin(), values.end(), result.data<T>());
    return result;
  }
  /// A contiguous copy of `view`. An empty view gives an empty tensor.
  static Tensor copy_of(ConstTensorView view);

  bool empty() const noexcept { return storage_ == nullptr; }
  explicit operator bool() const noexcept { return storage_ != nullptr; }
  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t size(int axis) const noexcept { return shape_[axis]; }
  std::int64_t count() const noexcept { return shape_.count(); }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(count()) * size_of(dtype_); }
  std::byte* raw() const noexcept { return storage_.get(); }

  /// The contiguous elements as T, which must be the tensor's dtype. A const Tensor gives mutable elements
  /// too.
  template <class T>
  T* data() const {
    return view().data<T>();
  }
  TensorView view() const noexcept { return TensorView(storage_.get(), dtype_, shape_); }
  operator TensorView() const noexcept { return view(); }       // NOLINT(google-explicit-constructor)
  operator ConstTensorView() const noexcept { return view(); }  // NOLINT(google-explicit-constructor)

  /// The same elements under another shape with as many elements.
  Tensor reshape(Shape shape) const;
  Tensor clone() const { return copy_of(view()); }
  /// Throws InvalidArgument for an empty tensor.
  void fill(double value);

 private:
  std::shared_ptr<std::byte[]> storage_;
  DType dtype_ = DType::f32;
  Shape shape_;
};

}  // namespace fovea

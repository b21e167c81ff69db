#include "plan/rows.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/simd/convert.h"

namespace fovea {
namespace {

// Adds axes of size 1 in front.
template <class Byte>
BasicTensorView<Byte> of_four_axes(const BasicTensorView<Byte>& view) {
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1}, strides{};
  const int missing = 4 - view.rank();
  for (int axis = 0; axis < view.rank(); ++axis) {
    sizes[static_cast<std::size_t>(axis + missing)] = view.size(axis);
    strides[static_cast<std::size_t>(axis + missing)] = view.stride(axis);
  }
  return {view.raw(), view.dtype(), Shape(std::span<const std::int64_t>(sizes)), strides};
}

template <class T>
auto* row_of(T* data, std::span<const std::int64_t> strides, std::int64_t b, std::int64_t h, std::int64_t r) {
  return data + b * strides[0] + h * strides[1] + r * strides[2];
}

template <class From, class To>
struct Convert {
  void operator()(const From& x, To& y) const {
    if constexpr (std::is_same_v<From, To>)
      y = x;
    else
      y = static_cast<To>(static_cast<Wide<To>>(static_cast<Wide<From>>(x)));
  }
};

// For contiguous elements.
template <class From, class To, class Each>
void each_of_row(std::int64_t dim, const From* x, To* y, Each each) {
  if constexpr (std::is_same_v<Each, Convert<float16, float>> ||
                std::is_same_v<Each, Convert<bfloat16, float>>) {
    kernels::widen(x, dim, y);
  } else if constexpr (std::is_same_v<Each, Convert<float, float16>> ||
                       std::is_same_v<Each, Convert<float, bfloat16>>) {
    kernels::narrow(x, dim, y);
  } else {
#pragma omp simd
    for (std::int64_t d = 0; d < dim; ++d) each(x[d], y[d]);
  }
}

// So few elements stay on one thread. Starting the others takes longer, and the results would lie in the
// caches of several cores.
constexpr std::int64_t few_elements = 16384;

template <class From, class To, class Each>
void each_element(const ConstTensorView& from, const TensorView& to, Executor& threads,
                  const RowSelection& selected, Each each) {
  Executor& executor = from.count() <= few_elements ? serial_executor() : threads;
  const From* source = from.data<From>();
  To* target = to.data<To>();
  const std::int64_t dim = from.size(3), step = from.stride(3), stride = to.stride(3);
  for_rows(rows_of(from), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    if (!selected.contains(h, r)) return;
    const From* x = row_of(source, from.strides(), b, h, r);
    To* y = row_of(target, to.strides(), b, h, r);
    if (step == 1 && stride == 1) {
      each_of_row(dim, x, y, each);
    } else {
      for (std::int64_t d = 0; d < dim; ++d) each(x[d * step], y[d * stride]);
    }
  });
}

}  // namespace

void check_contiguous(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                      const Shape& shape) {
  check_view(function, argument, view, dtype, shape);
  check_is_contiguous(function, argument, view);
}

void check_four_axes(const char* function, const char* argument, const ConstTensorView& view,
                     const char* axes) {
  if (view.rank() != 4) throw InvalidArgument(function, argument, axes, described(view));
}

bool same_view(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.raw() != b.raw() || !(a.shape() == b.shape())) return false;
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (a.size(axis) > 1 && a.stride(axis) != b.stride(axis)) return false;
  }
  return true;
}

void copy_rows(const ConstTensorView& from, const TensorView& to, Executor& executor,
               const RowSelection& selected) {
  with_type(from.dtype(), [&](auto source) {
    with_type(to.dtype(), [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      each_element<From, To>(from, to, executor, selected, Convert<From, To>());
    });
  });
}

void add_rows(const ConstTensorView& from, const TensorView& to, Executor& executor) {
  with_type(from.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_element<T, T>(of_four_axes(from), of_four_axes(to), executor, {}, [](const T& x, T& y) {
      y = static_cast<T>(static_cast<Wide<T>>(x) + static_cast<Wide<T>>(y));
    });
  });
}

ConstTensorView widened(const ConstTensorView& view, Tensor& copy, Executor& executor) {
  if (view.dtype() == wide_dtype(view.dtype())) return view;
  copy = Tensor(wide_dtype(view.dtype()), view.shape());
  copy_rows(view, copy, executor);
  return copy;
}

void clear_rows(const TensorView& view, Executor& executor) {
  if (!view || view.count() == 0) return;
  const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
  const bool contiguous = view.contiguous();
  // A contiguous view is cut where a core's second-level cache is full of zeros.
  constexpr std::int64_t piece = 1 << 18;
  const std::int64_t last = view.rank() > 0 ? view.size(-1) : 1, bytes = view.count() * element,
                     width = contiguous ? std::min(piece, bytes) : last * element,
                     rows = (bytes + width - 1) / width;
  const auto offset_of = [&](std::int64_t row) {
    if (contiguous) return row * width;
    std::int64_t offset = 0;
    for (int axis = view.rank() - 2; axis >= 0; --axis) {
      offset += row % view.size(axis) * view.stride(axis);
      row /= view.size(axis);
    }
    return offset * element;
  };
  const std::int64_t group = std::max<std::int64_t>(piece / width, 1);
  executor.parallel_for((rows + group - 1) / group, [&](std::int64_t unit, int) {
    for (std::int64_t row = unit * group; row < std::min(rows, (unit + 1) * group); ++row)
      std::fill_n(view.raw() + offset_of(row), contiguous ? std::min(width, bytes - row * width) : width,
                  std::byte{0});
  });
}

}  // namespace fovea

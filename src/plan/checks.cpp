#include "plan/checks.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "fovea/core/error.h"

namespace fovea {
namespace {

// The first byte and one past the last byte that a view can touch.
std::pair<std::uintptr_t, std::uintptr_t> extent(const ConstTensorView& view) {
  const auto element = static_cast<std::int64_t>(size_of(view.dtype()));
  std::int64_t low = 0, high = view.count() > 0 ? element : 0;
  for (int axis = 0; axis < view.rank() && high > 0; ++axis) {
    const std::int64_t reach = (view.size(axis) - 1) * view.stride(axis) * element;
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::uintptr_t>(view.raw());
  return {base + static_cast<std::uintptr_t>(low), base + static_cast<std::uintptr_t>(high)};
}

}  // namespace

bool innermost_contiguous(const ConstTensorView& view) {
  return view.rank() == 0 || view.size(-1) <= 1 || view.stride(-1) == 1;
}

std::string described(const ConstTensorView& view) {
  return std::string(to_string(view.dtype())) + " " + to_string(view.shape());
}

void check_view(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                const Shape& shape) {
  if (view.dtype() != dtype || !(view.shape() == shape)) {
    throw InvalidArgument(function, argument, std::string(to_string(dtype)) + " " + to_string(shape),
                          described(view));
  }
  if (!innermost_contiguous(view)) {
    throw InvalidArgument(function, argument, "a contiguous innermost axis",
                          "stride " + std::to_string(view.stride(-1)));
  }
  if (view.count() > 0 && view.empty())
    throw InvalidArgument(function, argument, "data of " + to_string(shape), "a null pointer");
}

bool extents_overlap(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.count() == 0 || b.count() == 0) return false;
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

bool overlaps_itself(const ConstTensorView& view) {
  if (view.count() == 0) return false;
  std::array<std::pair<std::int64_t, std::int64_t>, max_rank> axes;  // (|stride|, size)
  int rank = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    if (view.size(axis) > 1) axes[rank++] = {std::abs(view.stride(axis)), view.size(axis)};
  }
  std::int64_t reach = 0;
  for (int axis = 0; axis < rank; ++axis) {
    std::iter_swap(axes.begin() + axis, std::min_element(axes.begin() + axis, axes.begin() + rank));
    if (axes[axis].first <= reach) return true;
    reach += axes[axis].first * (axes[axis].second - 1);
  }
  return false;
}

void check_distinct_elements(const char* function, std::string_view argument, const ConstTensorView& view) {
  if (overlaps_itself(view)) {
    throw InvalidArgument(function, std::string(argument), "elements that do not share memory",
                          "strides that let elements overlap");
  }
}

void check_is_contiguous(const char* function, std::string_view argument, const ConstTensorView& view) {
  if (!view.contiguous())
    throw InvalidArgument(function, std::string(argument), "a contiguous tensor", "a strided one");
}

void check_written(const char* function, const char* argument, const TensorView& view, DType dtype,
                   const Shape& shape) {
  check_view(function, argument, view, dtype, shape);
  check_distinct_elements(function, argument, view);
}

void OverlapCheck::reads(const Arguments& arguments) {
  for (const NamedArgument<ConstTensorView>& argument : arguments.all())
    reads(argument.name.c_str(), argument.view);
}

void OverlapCheck::writes(const ArgumentGradients& gradients) {
  for (const NamedArgument<TensorView>& gradient : gradients.all())
    writes(gradient.name.c_str(), gradient.view);
}

void OverlapCheck::add(List& list, std::size_t& count, const char* argument, const ConstTensorView& view) {
  if (!view || view.count() == 0) return;
  const auto bytes = view.count() * static_cast<std::int64_t>(size_of(view.dtype()));
  list[count++] = {argument, view.raw(), view.contiguous() ? view.raw() + bytes : nullptr};
}

// Views of one packed [B, L, 3, H, D] buffer are interleaved but share no element. So overlapping extents are
// refused only if both views are contiguous.
void OverlapCheck::check(const Named& written, const Named& other) const {
  const bool meet = written.end && other.end && written.begin < other.end && other.begin < written.end;
  if (written.begin == other.begin || meet)
    throw InvalidArgument(function_, written.argument, std::string("memory apart from ") + other.argument,
                          "overlapping memory");
}

void OverlapCheck::check() const {
  for (std::size_t i = 0; i < written_count_; ++i) {
    for (std::size_t j = i + 1; j < written_count_; ++j) check(written_[i], written_[j]);
    for (std::size_t j = 0; j < read_count_; ++j) check(written_[i], read_[j]);
  }
}

}  // namespace fovea

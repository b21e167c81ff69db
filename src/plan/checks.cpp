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

void OverlapCheck::add(List& list, std::size_t& count, const char* argument, const ConstTensorView& view,
                       bool written) {
  if (!view || view.count() == 0) return;
  const auto bytes = view.count() * static_cast<std::int64_t>(size_of(view.dtype()));
  const Named named{argument, view.raw(), view.contiguous() ? view.raw() + bytes : nullptr, written};
  if (count < most)
    list[count++] = named;
  else
    others_.push_back(named);
}

// Views of one packed [B, L, 3, H, D] buffer are interleaved but share no element. So overlapping extents are
// refused only if both views are contiguous.
void OverlapCheck::check(const Named& written, const Named& other) const {
  const bool meet = written.end && other.end && written.begin < other.end && other.begin < written.end;
  if (written.begin == other.begin || meet) refuse(written, other);
}

void OverlapCheck::refuse(const Named& written, const Named& other) const {
  throw InvalidArgument(function_, written.argument, std::string("memory apart from ") + other.argument,
                        "overlapping memory");
}

// The same in the order of addresses, where each view can only meet those before it that reach furthest. Of a
// view that is not contiguous the first byte counts.
void OverlapCheck::check_in_order() const {
  std::vector<Named> all(written_.begin(), written_.begin() + static_cast<std::ptrdiff_t>(written_count_));
  all.insert(all.end(), read_.begin(), read_.begin() + static_cast<std::ptrdiff_t>(read_count_));
  all.insert(all.end(), others_.begin(), others_.end());
  for (Named& view : all) view.end = view.end ? view.end : view.begin + 1;
  std::ranges::sort(all, {}, &Named::begin);
  const Named *written = nullptr, *any = nullptr;  // those that reach furthest
  for (const Named& view : all) {
    const Named* const before = view.written ? any : written;
    if (before && view.begin < before->end) view.written ? refuse(view, *before) : refuse(*before, view);
    if (view.written && (!written || view.end > written->end)) written = &view;
    if (!any || view.end > any->end) any = &view;
  }
}

void OverlapCheck::check() const {
  // A call of many sequences whose states lie apart writes as many views.
  constexpr std::size_t most_pairwise = 16;
  if (written_count_ > most_pairwise || !others_.empty()) return check_in_order();
  for (std::size_t i = 0; i < written_count_; ++i) {
    for (std::size_t j = i + 1; j < written_count_; ++j) check(written_[i], written_[j]);
    for (std::size_t j = 0; j < read_count_; ++j) check(written_[i], read_[j]);
  }
}

}  // namespace fovea

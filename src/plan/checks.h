// Checks that all calls share: views against shapes, and written memory against read memory.
// Nothing here knows attention, so that every kind of call has the same checks and the same errors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/argument.h"
#include "fovea/core/tensor.h"

namespace fovea {

/// "f32 [2, 4]".
std::string described(const ConstTensorView& view);
/// Whether the innermost axis is contiguous.
bool innermost_contiguous(const ConstTensorView& view);
/// Refuses a `view` that has another dtype or shape, or an innermost axis that is not contiguous. A view that
/// has elements must also have memory.
void check_view(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                const Shape& shape);
/// Whether the bytes from the first to the last element of `a` meet those of `b`. This is also true for
/// interleaved views that share no element.
bool extents_overlap(const ConstTensorView& a, const ConstTensorView& b);
/// Whether the strides may describe overlapping elements: true if a stride is not larger than the reach of
/// all smaller strides together. It is false for every usual layout without shared elements.
bool overlaps_itself(const ConstTensorView& view);
/// Refuses a `view` whose elements may overlap one another.
void check_distinct_elements(const char* function, std::string_view argument, const ConstTensorView& view);
/// Refuses a `view` whose elements do not lie one behind the other.
void check_is_contiguous(const char* function, std::string_view argument, const ConstTensorView& view);
/// check_view for a view that is written. Its elements must also not overlap one another.
void check_written(const char* function, const char* argument, const TensorView& view, DType dtype,
                   const Shape& shape);
/// Whether a view was given. A view without elements has a shape, but may have no memory.
inline bool is_given(const ConstTensorView& view) {
  return bool(view) || view.rank() > 0;
}

/// Checks the views of one call. A written view may share memory neither with a read view nor with another
/// written one. A view without elements shares memory with no other. There is room for every view of a call,
/// so that nothing is allocated, but for calls with lists of views.
class OverlapCheck {
 public:
  static constexpr std::size_t most = 160;
  explicit OverlapCheck(const char* function) : function_(function) {}
  /// `argument` ("log_sum_exp") must outlive the check.
  void writes(const char* argument, const ConstTensorView& view) {
    add(written_, written_count_, argument, view, true);
  }
  void writes(const ArgumentGradients& gradients);
  void reads(const char* argument, const ConstTensorView& view) {
    add(read_, read_count_, argument, view, false);
  }
  void reads(const Arguments& arguments);
  /// Throws InvalidArgument that names both views.
  void check() const;

 private:
  // Views are not stored: clearing two lists of them took two thirds of the instructions of a call of one
  // query.
  struct Named {
    const char* argument;
    const std::byte *begin, *end;  // end is null for a view that is not contiguous
    bool written;
  };
  using List = std::array<Named, most>;
  void add(List& list, std::size_t& count, const char* argument, const ConstTensorView& view, bool written);
  void check(const Named& written, const Named& other) const;
  void check_in_order() const;
  [[noreturn]] void refuse(const Named& written, const Named& other) const;

  const char* function_;
  List written_, read_;  // valid up to the counts, uninitialised beyond
  std::size_t written_count_ = 0, read_count_ = 0;
  std::vector<Named> others_;  // for which the lists have no room
};

}  // namespace fovea

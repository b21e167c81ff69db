// Checks that all calls share: views against shapes, written memory against read memory, and the workspace.
// Nothing here knows attention, so that every kind of call has the same checks and the same errors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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
/// check_view for a view that is written. Its elements must also not overlap one another.
void check_written(const char* function, const char* argument, const TensorView& view, DType dtype,
                   const Shape& shape);
/// Whether a view was given. A view without elements has a shape, but may have no memory.
inline bool is_given(const ConstTensorView& view) {
  return bool(view) || view.rank() > 0;
}

/// Checks the views of one call. A written view may share memory neither with a read view nor with another
/// written one. A view without elements shares memory with no other. There is room for every view of a call,
/// so that nothing is allocated.
class OverlapCheck {
 public:
  static constexpr std::size_t most = 160;
  explicit OverlapCheck(const char* function) : function_(function) {}
  /// `argument` ("log_sum_exp") must outlive the check.
  void writes(const char* argument, const ConstTensorView& view) {
    add(written_, written_count_, argument, view);
  }
  void writes(const ArgumentGradients& gradients);
  void reads(const char* argument, const ConstTensorView& view) { add(read_, read_count_, argument, view); }
  void reads(const Arguments& arguments);
  /// Throws InvalidArgument that names both views.
  void check() const;

 private:
  // Views are not stored: clearing two lists of them took two thirds of the instructions of a call of one
  // query.
  struct Named {
    const char* argument;
    const std::byte *begin, *end;  // end is null for a view that is not contiguous
  };
  using List = std::array<Named, most>;
  static void add(List& list, std::size_t& count, const char* argument, const ConstTensorView& view);
  void check(const Named& written, const Named& other) const;

  const char* function_;
  List written_, read_;  // valid up to the counts, uninitialised beyond
  std::size_t written_count_ = 0, read_count_ = 0;
};

/// Hands out 64-byte aligned pieces of a buffer. Without memory it only counts bytes: a counting carver.
class Carver {
 public:
  Carver() = default;
  explicit Carver(std::span<std::byte> memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    used_ = (used_ + 63) / 64 * 64;
    std::byte* begin = memory_.data() ? memory_.data() + used_ : nullptr;
    used_ += static_cast<std::size_t>(count) * sizeof(T);
    return reinterpret_cast<T*>(begin);
  }
  std::size_t used() const { return used_; }
  std::span<std::byte> rest() {
    used_ = (used_ + 63) / 64 * 64;
    return memory_.data() ? memory_.subspan(used_) : std::span<std::byte>();
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

/// Returns `given` if it has memory, and throws InvalidArgument if that is too small. Otherwise returns this
/// thread's own buffer, grown to `bytes`. The result is 64-byte aligned.
std::span<std::byte> workspace_of(const char* function, std::span<std::byte> given, std::size_t bytes);

}  // namespace fovea

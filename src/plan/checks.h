// The checking kit of calls: views against shapes, what is written against what is read, and the workspace.
// It knows no attention, so that every family of calls has the same checks and the same errors.
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
/// True where rows are contiguous.
bool innermost_contiguous(const ConstTensorView& view);
/// `view` is a [sizes...] of `dtype` with contiguous innermost axis, and its elements are somewhere.
void check_view(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                const Shape& shape);
/// Do the bytes from the first to the last element of each meet? Interleaved views that are apart do too.
bool extents_overlap(const ConstTensorView& a, const ConstTensorView& b);
/// Is a stride not beyond all that the smaller ones reach? Every sensible layout without shared elements says
/// no.
bool overlaps_itself(const ConstTensorView& view);
/// check_view of one that is written: its elements are not each other's either.
void check_written(const char* function, const char* argument, const TensorView& view, DType dtype,
                   const Shape& shape);
/// True for a view with a shape: one of no elements may have no memory either.
inline bool is_given(const ConstTensorView& view) {
  return bool(view) || view.rank() > 0;
}

/// Views of one call: what it writes may share memory neither with what it reads nor with what else it
/// writes. Empty ones share with none. Has room for every view of a call, so that it takes nothing from the
/// heap.
class OverlapCheck {
 public:
  static constexpr std::size_t most = 160;
  explicit OverlapCheck(const char* function) : function_(function) {}
  /// `argument` is kept, and is to outlive the check: "log_sum_exp".
  void writes(const char* argument, const ConstTensorView& view) {
    add(written_, written_count_, argument, view);
  }
  void writes(const ArgumentGradients& gradients);
  void reads(const char* argument, const ConstTensorView& view) { add(read_, read_count_, argument, view); }
  void reads(const Arguments& arguments);
  /// Throws InvalidArgument naming both.
  void check() const;

 private:
  // Not the view: clearing two lists of them was two thirds of the instructions of a call of one query.
  struct Named {
    const char* argument;
    const std::byte *begin, *end;  // end null: not contiguous
  };
  using List = std::array<Named, most>;
  static void add(List& list, std::size_t& count, const char* argument, const ConstTensorView& view);
  void check(const Named& written, const Named& other) const;

  const char* function_;
  List written_, read_;  // as far as the counts, and not initialised beyond
  std::size_t written_count_ = 0, read_count_ = 0;
};

/// Cuts a span into 64-byte aligned pieces. With a null span it only counts.
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

/// `given` if it is there and large enough (else InvalidArgument), or this thread's arena, grown to `bytes`.
/// 64-byte aligned.
std::span<std::byte> workspace_of(const char* function, std::span<std::byte> given, std::size_t bytes);

}  // namespace fovea

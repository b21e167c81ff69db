// The matrices that backward by chunks multiplies, as factors of products. `NumberMatrix` is rows of numbers
// where they lie. bf16_matrix-inl.h has pairs of bf16 numbers in their place.
#if defined(FOVEA_RECURRENCE_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_MATRIX_INL_H_
#undef FOVEA_RECURRENCE_MATRIX_INL_H_
#else
#define FOVEA_RECURRENCE_MATRIX_INL_H_
#endif

#include "kernels/recurrence/chunk_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// A of a product: A(m, k) = data[m · row + k · step], k < depth.
template <class X>
struct LeftFactor {
  const X* data;
  int64_t row, step, depth;
};
/// B of a product: rows of elements, `stride` elements apart.
template <class X>
struct RightFactor {
  const X* data;
  int64_t stride;
};
template <class X>
HWY_INLINE ChunkTerm<X> TermOf(const LeftFactor<X>& a, const RightFactor<X>& b) {
  return {a.data, a.row, a.step, b.data, b.stride, a.depth};
}

template <class T>
class NumberMatrix {
 public:
  using Element = T;

  /// At most `rows` rows of `width` columns, of which RightRows has `stride`, zeros behind the others.
  /// `by_rows`: products sum over the rows, by LeftColumns and RightRows.
  NumberMatrix([[maybe_unused]] int64_t rows, int64_t width, [[maybe_unused]] int64_t stride,
               [[maybe_unused]] bool by_rows, Carve&)
      : width_(width) {}

  /// Rows are `stride` apart. Behind the columns they are 0; where RightColumns is asked for, so are the rows
  /// behind `count`, up to a multiple of 16.
  HWY_INLINE void Set(const T* x, int64_t stride, int64_t count) {
    x_ = x;
    stride_ = stride;
    count_ = count;
  }
  /// The rows from `first` on.
  HWY_INLINE LeftFactor<T> LeftRows(int64_t first = 0) const {
    return {x_ + first * stride_, stride_, 1, width_};
  }
  HWY_INLINE LeftFactor<T> LeftColumns() const { return {x_, 1, stride_, count_}; }
  HWY_INLINE RightFactor<T> RightRows() const { return {x_, stride_}; }
  /// The transpose of 16 rows, in a buffer of [width][16].
  HWY_INLINE RightFactor<T> RightColumns(int64_t first, T* buffer) const {
    Transpose(x_ + first * stride_, stride_, kChunk, width_, kChunk, buffer);
    return {buffer, kChunk};
  }

 private:
  const T* x_ = nullptr;
  int64_t width_, stride_ = 0, count_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// Rows of operands in the type in which the caller has them. Kernels that compute in f32 read and write rows
// of 16 bits too.
#if defined(FOVEA_RECURRENCE_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_STORED_INL_H_
#undef FOVEA_RECURRENCE_STORED_INL_H_
#else
#define FOVEA_RECURRENCE_STORED_INL_H_
#endif

#include "kernels/recurrence/problem.h"
#include "kernels/simd/convert-inl.h"
#include "kernels/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Templates of the problem's own header must not be compiled here: see simd/math-inl.h.
template <class P>
HWY_INLINE auto* RecurrenceRow(const Operand<P>& x, int64_t b, int64_t h, int64_t r) {
  return x.data + b * x.batch_stride + h * x.head_stride + r * x.row_stride;
}
template <class Byte>
HWY_INLINE Byte* RecurrenceRow(const StoredOperand<Byte>& x, int64_t b, int64_t h, int64_t r) {
  const int64_t size = static_cast<int64_t>(size_of(x.dtype));
  return x.data + (b * x.batch_stride + h * x.head_stride + r * x.row_stride) * size;
}

/// The same operand by its bytes.
template <class T>
HWY_INLINE StoredOperand<const std::byte> StoredAs(const Operand<const T*>& x) {
  return {reinterpret_cast<const std::byte*>(x.data), sizeof(T) == 8 ? DType::f64 : DType::f32,
          x.batch_stride, x.head_stride, x.row_stride};
}
template <class T>
HWY_INLINE StoredOperand<std::byte> StoredAs(const Operand<T*>& x) {
  return {reinterpret_cast<std::byte*>(x.data), sizeof(T) == 8 ? DType::f64 : DType::f32, x.batch_stride,
          x.head_stride, x.row_stride};
}

/// Whether rows are numbers of T.
template <class T>
HWY_INLINE bool RowsAreOf(DType dtype) {
  return dtype == (sizeof(T) == 8 ? DType::f64 : DType::f32);
}

/// Elements [first, first + count) of a row, as numbers of T.
template <class T>
HWY_INLINE void ReadStored(const StoredOperand<const std::byte>& from, int64_t b, int64_t h, int64_t r,
                           int64_t first, int64_t count, T* to) {
  const std::byte* row = RecurrenceRow(from, b, h, r);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (from.dtype == DType::bf16) return Widen(reinterpret_cast<const bfloat16*>(row) + first, count, to);
    if (from.dtype == DType::f16) return Widen(reinterpret_cast<const float16*>(row) + first, count, to);
  }
  Copy(reinterpret_cast<const T*>(row) + first, count, to);
}
/// Writes x to elements [first, first + count) of a row.
template <class T>
HWY_INLINE void WriteStored(const T* x, int64_t first, int64_t count, const StoredOperand<std::byte>& to,
                            int64_t b, int64_t h, int64_t r) {
  std::byte* row = RecurrenceRow(to, b, h, r);
  if constexpr (sizeof(T) == sizeof(float)) {
    if (to.dtype == DType::bf16) return Narrow(x, count, reinterpret_cast<bfloat16*>(row) + first);
    if (to.dtype == DType::f16) return Narrow(x, count, reinterpret_cast<float16*>(row) + first);
  }
  Copy(x, count, reinterpret_cast<T*>(row) + first);
}

/// to = f · x; whole vectors.
template <class T>
HWY_INLINE void ScaleInto(T f, const T* x, int64_t dim, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, f);
  int64_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    _Pragma("GCC unroll 4") for (int v = 0; v < 4; ++v)
        hn::StoreU(hn::Mul(hn::LoadU(d, x + i + v * lanes), factor), d, to + i + v * lanes);
  }
  for (; i < dim; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, to + i);
}
/// Writes f · x; x and the scratch buffer have whole vectors.
template <class T>
HWY_INLINE void WriteScaled(T f, const T* x, int64_t first, int64_t count, T* scratch,
                            const StoredOperand<std::byte>& to, int64_t b, int64_t h, int64_t r) {
  const int64_t dim = Padded<T>(count);
  if (RowsAreOf<T>(to.dtype) && count == dim)
    return ScaleInto(f, x, dim, reinterpret_cast<T*>(RecurrenceRow(to, b, h, r)) + first);
  ScaleInto(f, x, dim, scratch);
  WriteStored(scratch, first, count, to, b, h, r);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// Matrices of backward as pairs of bf16 numbers: rounded where a product reads them.
#if defined(FOVEA_RECURRENCE_BF16_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_BF16_MATRIX_INL_H_
#undef FOVEA_RECURRENCE_BF16_MATRIX_INL_H_
#else
#define FOVEA_RECURRENCE_BF16_MATRIX_INL_H_
#endif

#include "kernels/recurrence/matrix-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Rounds `count` rows of `width` numbers to rows of `padded` ones, with zeros behind and below, up to a
/// multiple of 16 rows. Rows of x have whole vectors.
HWY_INLINE void RoundRows(const float* x, int64_t stride, int64_t count, int64_t width, int64_t padded,
                          Bf16Pair* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), end = Padded<float>(width),
                whole = (count + kChunk - 1) / kChunk * kChunk;
  auto* rows = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < end; j += lanes)
      StoreRounded(hn::LoadU(d, x + i * stride + j), rows + i * padded + j);
    if (end < padded) Fill(uint16_t{0}, padded - end, rows + i * padded + end);
  }
  Fill(uint16_t{0}, (whole - count) * padded, rows + count * padded);
}

/// NumberMatrix, in bf16.
class PairMatrix {
 public:
  using Element = Bf16Pair;

  PairMatrix(int64_t rows, int64_t width, int64_t stride, bool by_rows, Carve& carve)
      : width_(width), padded_((stride + 31) / 32 * 32) {
    const int64_t whole = (rows + kChunk - 1) / kChunk * kChunk;
    rows_ = carve.Take<Bf16Pair>(whole * padded_ / 2);
    if (by_rows) zipped_ = carve.Take<Bf16Pair>(whole / 2 * padded_);
  }

  /// Rounds the rows.
  HWY_NOINLINE void Set(const float* x, int64_t stride, int64_t count) {
    count_ = count;
    RoundRows(x, stride, count, width_, padded_, rows_);
    const int64_t whole = (count + kChunk - 1) / kChunk * kChunk;
    if (zipped_)
      ZipRows(reinterpret_cast<const uint16_t*>(rows_), whole, padded_, padded_, &zipped_->bits, padded_);
  }
  HWY_INLINE LeftFactor<Bf16Pair> LeftRows(int64_t first = 0) const {
    return {rows_ + first * padded_ / 2, padded_ / 2, 1, (width_ + 1) / 2};
  }
  HWY_INLINE LeftFactor<Bf16Pair> LeftColumns() const { return {zipped_, 1, padded_, (count_ + 1) / 2}; }
  HWY_INLINE RightFactor<Bf16Pair> RightRows() const { return {zipped_, padded_}; }
  HWY_INLINE RightFactor<Bf16Pair> RightColumns(int64_t first, Bf16Pair* buffer) const {
    TransposeBlocks(&rows_[first * padded_ / 2].bits, kChunk, padded_ / 2, padded_ / 2, &buffer->bits,
                    kChunk);
    return {buffer, kChunk};
  }

 private:
  int64_t width_, padded_, count_ = 0;
  Bf16Pair *rows_, *zipped_ = nullptr;  // pairs along the rows [rows][padded / 2], and of rows
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

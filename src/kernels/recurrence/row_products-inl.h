// Products of the rows of a chunk with the rows of a state, as backward by chunks needs them.
#if defined(FOVEA_RECURRENCE_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_ROW_PRODUCTS_INL_H_
#undef FOVEA_RECURRENCE_ROW_PRODUCTS_INL_H_
#else
#define FOVEA_RECURRENCE_ROW_PRODUCTS_INL_H_
#endif

#include "kernels/recurrence/matrix-inl.h"
#include "kernels/recurrence/pair_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Whether these products read the rows of both where they are, and fold their sums. A product with
/// transposed rows has one vector of columns, so that it loads an element of the state for each multiply-add.
template <class X>
inline constexpr bool kProductsOfRows = kPairsOfRows<X>&& kTileVectors == 4;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// Sixteen rows, four columns of all of them after the other: [columns / 4][16][4]. A vector has four columns
/// of four rows. `columns` is a multiple of 4.
HWY_INLINE void FourColumns(const float* rows, int64_t stride, int64_t columns, float* to) {
  const hn::ScalableTag<float> d;
  for (int64_t k = 0; k < columns; k += 4) {
    _Pragma("GCC unroll 4") for (int64_t i = 0; i < kChunk; i += 4, to += 16)
        hn::StoreU(LoadFours(d, rows + i * stride + k, stride), d, to);
  }
}

/// to[i][j] = ⟨row i of x, row j of y⟩ for 16 rows of x, as FourColumns has them, and `count` of y, of whole
/// vectors. Columns of `to` from `count` to `stride` become 0. Four columns of a row of y, four times in a
/// vector, meet those of four rows of x. So a vector of four by four products has only four lanes of each to
/// fold. That takes 6 permutations, where rows of 16 columns take 30.
inline HWY_NOINLINE void ProductsOfRows(const float* x, const LeftFactor<float>& y, int64_t count, float* to,
                                        int64_t stride, FetchedRows<float>& fetch) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t columns = hwy::RoundUpTo(y.depth, hn::Lanes(d)), y_stride = y.row;
  const float* y_rows = y.data;
  for (int64_t j = 0; j < count; j += 4) {
    const float* rows[4];
    // Behind the last row it is read again.
    _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) rows[c] =
        y_rows + HWY_MIN(j + c, count - 1) * y_stride;
    V sums[16];
    _Pragma("GCC unroll 16") for (int s = 0; s < 16; ++s) sums[s] = hn::Zero(d);
    const float* fours = x;
    for (int64_t k = 0; k < columns;) {
      const int64_t end = HWY_MIN(k + 4 * kRun, columns);
      LineRun run = fetch.Run((end - k) / 4);
      for (; k < end; k += 4, fours += 64) {
        run.Next();
        V elements[4];
        _Pragma("GCC unroll 4") for (int g = 0; g < 4; ++g) elements[g] = hn::LoadU(d, fours + 16 * g);
        _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) {
          const V element = hn::LoadDup128(d, rows[c] + k);
          _Pragma("GCC unroll 4") for (int g = 0; g < 4; ++g) sums[4 * g + c] =
              hn::MulAdd(element, elements[g], sums[4 * g + c]);
        }
      }
    }
    _Pragma("GCC unroll 4") for (int g = 0; g < 4; ++g)
        StoreFours(d, FoldFours(d, sums + 4 * g), 4, to + 4 * g * stride + j, stride);
  }
  for (int64_t i = 0; count < stride && i < kChunk; ++i) Fill(0.0f, stride - count, to + i * stride + count);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

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
/// to[i][j] = ⟨row i of x, row j of y⟩ for 16 rows of x and `count` of y, of whole vectors. Columns of `to`
/// from `count` to `stride` become 0. Four rows of y stay in the first-level cache while those of x pass.
inline HWY_NOINLINE void ProductsOfRows(const LeftFactor<float>& x, const LeftFactor<float>& y, int64_t count,
                                        float* to, int64_t stride, FetchedRows<float>& fetch) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t dim = x.depth, lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < count; j += 4) {
    const float* columns[4];
    // Behind the last row it is read again.
    _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) columns[c] =
        y.data + HWY_MIN(j + c, count - 1) * y.row;
    LineRun run = fetch.Run(kRun);
    const float* rows = x.data;
    for (int64_t i = 0; i < kChunk; i += 4, rows += 4 * x.row) {
      V sums[16];
      _Pragma("GCC unroll 16") for (int s = 0; s < 16; ++s) sums[s] = hn::Zero(d);
      _Pragma("GCC unroll 4") for (int line = 0; line < 4; ++line) run.Next();
      for (int64_t k = 0; k < dim; k += lanes) {
        V elements[4];
        _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) elements[c] = hn::LoadU(d, columns[c] + k);
        _Pragma("GCC unroll 4") for (int r = 0; r < 4; ++r) {
          const V element = hn::LoadU(d, rows + r * x.row + k);
          _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) sums[4 * r + c] =
              hn::MulAdd(element, elements[c], sums[4 * r + c]);
        }
      }
      StoreFours(d, FoldLanes(d, sums), 4, to + i * stride + j, stride);
    }
  }
  for (int64_t i = 0; count < stride && i < kChunk; ++i) Fill(0.0f, stride - count, to + i * stride + count);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

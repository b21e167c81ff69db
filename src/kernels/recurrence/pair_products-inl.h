// Products of pairs of tokens of a chunk times factors of the pairs, such as decays.
#if defined(FOVEA_RECURRENCE_PAIR_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_PAIR_PRODUCTS_INL_H_
#undef FOVEA_RECURRENCE_PAIR_PRODUCTS_INL_H_
#else
#define FOVEA_RECURRENCE_PAIR_PRODUCTS_INL_H_
#endif

#include "kernels/recurrence/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Rows [m, m + kRows) of PairProducts, one vector of columns.
template <int kRows, class D, class T, class X>
HWY_INLINE void PairBlock(D d, const RowsAt<X>& x, int64_t m, int64_t column, int64_t dim,
                          const X* y_transposed, const T* gamma, const T* factors, T* to) {
  hn::Vec<D> sum[kRows];
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
  const X *element = x.data + m * x.stride, *y = y_transposed + column;
  for (int64_t k = 0; k < dim; ++k, ++element, y += kChunk) {
    const auto row = LoadElements(d, y);
    _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r)
        AddProduct<X>(SetElements(d, element + r * x.stride), row, sum[r]);
  }
  _Pragma("GCC unroll 8") for (int r = 0; r < kRows; ++r) {
    const int64_t at = (m + r) * kChunk + column;
    const auto factor = hn::Mul(hn::LoadU(d, gamma + at), hn::Set(d, factors ? factors[m + r] : T(1)));
    hn::StoreU(hn::Mul(sum[r], factor), d, to + at);
  }
}

/// Whether products of pairs read writer rows where they are, and fold their sums. With vectors of eight this
/// took a twelfth less of a forward call with decays by channel than transposing the rows, and as long
/// without them. With vectors of sixteen a row of the table is one vector.
template <class T>
inline constexpr bool kPairsOfRows = HWY_TARGET == HWY_AVX2 && sizeof(T) == 4;

#if HWY_TARGET == HWY_AVX2
/// PairProducts of two reader rows at a time with four writer rows, of which there are `y_rows`.
inline HWY_NOINLINE void PairsOfRows(const RowsAt<float>& x, int64_t rows, int64_t dim,
                                     const RowsAt<float>& y, int64_t y_rows, const float* gamma,
                                     const float* factors, float* to) {
  const hn::CappedTag<float, 8> d;
  const hn::Half<decltype(d)> half;
  using V = hn::Vec<decltype(d)>;
  for (int64_t i = 0; i < rows; i += 2) {
    const int64_t next = HWY_MIN(i + 1, rows - 1);
    const float *x0 = x.data + i * x.stride, *x1 = x.data + next * x.stride;
    const V factor =
        factors ? hn::Combine(d, hn::Set(half, factors[next]), hn::Set(half, factors[i])) : hn::Set(d, 1.0f);
    int64_t j = 0;
    for (; j <= next; j += 4) {
      // Behind the last row it is read again: those products are out of reach.
      const float* row[4];
      for (int64_t c = 0; c < 4; ++c) row[c] = y.data + HWY_MIN(j + c, y_rows - 1) * y.stride;
      V sums[8];
      _Pragma("GCC unroll 8") for (int s = 0; s < 8; ++s) sums[s] = hn::Zero(d);
      const auto add = [&](auto load, int64_t k) HWY_ATTR {
        const V a = load(x0 + k), b = load(x1 + k);
        _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) {
          const V element = load(row[c] + k);
          sums[c] = hn::MulAdd(a, element, sums[c]);
          sums[4 + c] = hn::MulAdd(b, element, sums[4 + c]);
        }
      };
      int64_t k = 0;
      for (; k + 8 <= dim; k += 8) add([&](const float* from) HWY_ATTR { return hn::LoadU(d, from); }, k);
      if (k < dim)
        add([&](const float* from)
                HWY_ATTR { return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(dim - k)), d, from); },
            k);
      const V decays =
          hn::Combine(d, hn::LoadU(half, gamma + next * kChunk + j), hn::LoadU(half, gamma + i * kChunk + j));
      const V products = hn::Mul(FoldEight(d, sums), hn::Mul(decays, factor));
      hn::StoreU(hn::LowerHalf(half, products), half, to + i * kChunk + j);
      if (next > i) hn::StoreU(hn::UpperHalf(half, products), half, to + next * kChunk + j);
    }
    for (; j < kChunk; j += 4) {
      for (int64_t row = i; row <= next; ++row) hn::StoreU(hn::Zero(half), half, to + row * kChunk + j);
    }
  }
}
#endif

/// The writer rows that PairProducts reads: `count` of them and, unless kPairsOfRows, their transpose.
template <class T>
struct PairWriters {
  RowsAt<T> rows;
  int64_t count;
  const T* transposed;
};
template <class T>
HWY_INLINE PairWriters<T> TransposeWriters(const RowsAt<T>& rows, int64_t count, int64_t dim, T* transposed) {
  if constexpr (!kPairsOfRows<T>) Transpose(rows.data, rows.stride, count, dim, kChunk, transposed);
  return {rows, count, transposed};
}

/// to[i][j] = ⟨x_i, y_j⟩ gamma[i][j] factors[i] for `rows` rows of `dim` elements. Null factors are 1. The
/// first eight rows reach the first eight columns at most.
template <class T, class X = T>
HWY_NOINLINE void PairProducts(const RowsAt<X>& x, int64_t rows, int64_t dim, const PairWriters<X>& y,
                               const T* gamma, const T* factors, T* to) {
  if constexpr (kPairsOfRows<T>) {
    PairsOfRows(x, rows, dim, y.rows, y.count, gamma, factors, to);
  } else {
    const auto block = [&](auto d, int64_t m, int64_t column) HWY_ATTR {
      if (m + 8 <= rows) return PairBlock<8>(d, x, m, column, dim, y.transposed, gamma, factors, to);
      for (; m < rows; ++m) PairBlock<1>(d, x, m, column, dim, y.transposed, gamma, factors, to);
    };
    const hn::ScalableTag<T> whole;
    const hn::CappedTag<T, 8> half;
    for (int64_t column = 0; column < 8; column += static_cast<int64_t>(hn::Lanes(half)))
      block(half, 0, column);
    for (int64_t i = 0; i < 8; ++i) Fill(T{0}, 8, to + i * kChunk + 8);
    for (int64_t column = 0; column < kChunk; column += static_cast<int64_t>(hn::Lanes(whole)))
      block(whole, 8, column);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

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
/// without them. With vectors of sixteen it took a quarter less of the products and transposes, which load a
/// reader element for each multiply-add.
template <class X>
inline constexpr bool kPairsOfRows =
    (HWY_TARGET == HWY_AVX2 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)) && hwy::IsSame<X, float>();

#if HWY_TARGET == HWY_AVX2 || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
/// Four numbers of each row, those of the first row first.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V LoadFours(D d, const float* from, int64_t stride) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const int64_t rows = static_cast<int64_t>(hn::Lanes(half)) / 4;
    return hn::Combine(d, LoadFours(half, from + rows * stride, stride), LoadFours(half, from, stride));
  }
}
/// To the first `count` of these rows.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void StoreFours(D d, V x, int64_t count, float* to, int64_t stride) {
  if constexpr (hn::MaxLanes(d) == 4) {
    if (count > 0) hn::StoreU(x, d, to);
  } else {
    const hn::Half<D> half;
    const int64_t rows = static_cast<int64_t>(hn::Lanes(half)) / 4;
    StoreFours(half, hn::LowerHalf(half, x), count, to, stride);
    StoreFours(half, hn::UpperHalf(half, x), count - rows, to + rows * stride, stride);
  }
}
/// Each row's number four times.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FourTimes(D d, const float* from) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::Set(d, *from);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, FourTimes(half, from + hn::Lanes(half) / 4), FourTimes(half, from));
  }
}

/// A block of PairsOfRows: readers [i, i + kRows) by writers [j, j + 4). Unless kWhole, rows may end in it.
/// Then the last one is read again: those products are not stored, or out of reach.
template <bool kWhole, class D, class V = hn::Vec<D>>
HWY_INLINE void PairsOfBlock(D d, const RowsAt<float>& x, int64_t rows, int64_t i, int64_t dim,
                             const RowsAt<float>& y, int64_t y_rows, int64_t j, const float* gamma, V factor,
                             float* to) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d)), kRows = kLanes / 4;
  const auto row_of = [](const RowsAt<float>& of, int64_t row, int64_t count) {
    return of.data + (kWhole ? row : HWY_MIN(row, count - 1)) * of.stride;
  };
  const float *readers[kRows], *writers[4];
  _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) readers[r] = row_of(x, i + r, rows);
  _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) writers[c] = row_of(y, j + c, y_rows);
  V sums[kLanes];
  _Pragma("GCC unroll 16") for (int s = 0; s < kLanes; ++s) sums[s] = hn::Zero(d);
  const auto add = [&](auto load, int64_t k) HWY_ATTR {
    V elements[kRows];
    _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) elements[r] = load(readers[r] + k);
    _Pragma("GCC unroll 4") for (int c = 0; c < 4; ++c) {
      const V element = load(writers[c] + k);
      _Pragma("GCC unroll 4") for (int r = 0; r < kRows; ++r) sums[4 * r + c] =
          hn::MulAdd(elements[r], element, sums[4 * r + c]);
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= dim; k += kLanes)
    add([&](const float* from) HWY_ATTR { return hn::LoadU(d, from); }, k);
  if (k < dim)
    add([&](const float* from)
            HWY_ATTR { return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(dim - k)), d, from); },
        k);
  const V decays = LoadFours(d, gamma + i * kChunk + j, kChunk);
  StoreFours(d, hn::Mul(FoldLanes(d, sums), hn::Mul(decays, factor)), kWhole ? kRows : rows - i,
             to + i * kChunk + j, kChunk);
}

/// PairProducts of two reader rows (by vectors of sixteen, four) at a time with four writer rows, of which
/// there are `y_rows`.
inline HWY_NOINLINE void PairsOfRows(const RowsAt<float>& x, int64_t rows, int64_t dim,
                                     const RowsAt<float>& y, int64_t y_rows, const float* gamma,
                                     const float* factors, float* to) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kRows = static_cast<int64_t>(hn::MaxLanes(d)) / 4;
  const RowsAt<float> readers = x, writers = y;  // not read again behind each store
  const bool whole = rows == kChunk && y_rows == kChunk;
  for (int64_t i = 0; i < rows; i += kRows) {
    const auto factor = factors ? FourTimes(d, factors + i) : hn::Set(d, 1.0f);
    int64_t j = 0;
    for (; j < HWY_MIN(i + kRows, rows); j += 4) {
      if (whole)
        PairsOfBlock<true>(d, readers, rows, i, dim, writers, y_rows, j, gamma, factor, to);
      else
        PairsOfBlock<false>(d, readers, rows, i, dim, writers, y_rows, j, gamma, factor, to);
    }
    for (; j < kChunk; j += 4) StoreFours(d, hn::Zero(d), rows - i, to + i * kChunk + j, kChunk);
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
  if constexpr (kPairsOfRows<X>) {
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

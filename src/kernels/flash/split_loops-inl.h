// The inner loops of the algorithm `split`: products of few rows with keys and values in the type that they
// are stored in.
#if defined(FOVEA_FLASH_SPLIT_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SPLIT_LOOPS_INL_H_
#undef FOVEA_FLASH_SPLIT_LOOPS_INL_H_
#else
#define FOVEA_FLASH_SPLIT_LOOPS_INL_H_
#endif

#include "kernels/simd/load-inl.h"
#include "kernels/simd/runs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// Sums that are accumulated side by side. 16 accumulators, 4 queries and a key fit the 32 registers of
/// AVX-512 and Arm; 8 accumulators fit the 16 registers of the others.
constexpr int kSums = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 16 : 8;

/// scores[r · score_stride + j] = ⟨query r, key j⟩ for kRows queries and keys [0, count). Queries are rows of
/// `padded` elements, with zeros behind `dim`. kSums sums stay in registers: kRows queries by kSums / kRows
/// keys, so each vector of a key is loaded once for kRows queries.
template <int kRows, class T, class S>
HWY_INLINE void StoredScores(const T* queries, int64_t padded, const StoredRows<S>& keys, int64_t dim,
                             int64_t count, bool fetch, T* scores, int64_t score_stride) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kKeys = kSums / kRows;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  RowsToFetch<S> ahead(keys, dim, fetch);
  for (int64_t j = 0; j < count; j += kKeys) {
    V sums[kSums];
    FOVEA_UNROLL for (int i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
    // Behind the last key the last one is read again; those sums are thrown away.
    const S* rows[kKeys];
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) rows[k] = keys.at(j + k < count ? j + k : count - 1);
    // One key after the other, so that memory is read in order. Read side by side, several rows are streams
    // of their own, which the prefetcher follows at half the rate. Two keys go side by side all the same: the
    // four sums of one wait for each other, and each vector of a query is loaded once.
    constexpr int kTogether = kKeys == 2 ? 2 : 1;
    int64_t i = 0;
    FOVEA_UNROLL for (int first = 0; first < kKeys; first += kTogether) {
      for (int k = 0; k < kTogether; ++k) ahead.Next(dim);
      for (i = 0; i + lanes <= dim; i += lanes) {
        V key[kTogether];
        FOVEA_UNROLL for (int k = 0; k < kTogether; ++k) key[k] = LoadWide(d, rows[first + k] + i);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
          const V query = hn::LoadU(d, queries + r * padded + i);
          FOVEA_UNROLL for (int k = 0; k < kTogether; ++k) sums[r * kKeys + first + k] =
              hn::MulAdd(query, key[k], sums[r * kKeys + first + k]);
        }
      }
    }
    // Unrolled as well: the sums would otherwise lie in memory, which took half the time of rows of 24.
    if (i < dim) {
      FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
        const V key = LoadWideN(d, rows[k] + i, dim - i);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) sums[r * kKeys + k] =
            hn::MulAdd(hn::LoadU(d, queries + r * padded + i), key, sums[r * kKeys + k]);
      }
    }
    alignas(64) T folded[kSums > kLanes ? kSums : kLanes];
    FoldSums<kSums, kLanes>(d, sums, folded);
    const int64_t there = HWY_MIN(count - j, int64_t{kKeys});
    if (kKeys == 2 && there == 2) {
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
          hwy::CopyBytes<2 * sizeof(T)>(folded + 2 * r, scores + r * score_stride + j);
      continue;
    }
    for (int r = 0; r < kRows; ++r) {
      for (int64_t k = 0; k < there; ++k) scores[r * score_stride + j + k] = folded[r * kKeys + k];
    }
  }
}

/// gathered += weight · value, for one query and one value.
template <class T, class S>
HWY_INLINE void AddStored(T weight, const S* value, int64_t dim, T* gathered) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, weight);
  int64_t i = 0;
  for (; i + lanes <= dim; i += lanes)
    hn::StoreU(hn::MulAdd(factor, LoadWide(d, value + i), hn::LoadU(d, gathered + i)), d, gathered + i);
  if (i < dim)
    hn::StoreU(hn::MulAdd(factor, LoadWideN(d, value + i, dim - i), hn::LoadU(d, gathered + i)), d,
               gathered + i);
}

/// The rows whose weights of four values stay in registers: of 16 registers they would take all for four
/// rows.
template <int kRows>
inline constexpr int kWeightRows = kSums == 8 && kRows > 2 ? (kRows % 2 == 0 ? 2 : 1) : kRows;

/// gathered[r] += Σ_j weights[r · weight_stride + j] · value j for kRows rows of `padded` elements. Four
/// values are taken at a time, and their weights stay in registers for kWeightRows rows at a time. Each
/// vector of `gathered` is loaded and stored once for four values. A weight of 0 reads nothing: its key may
/// be hidden, and its value NaN.
template <int kRows, class T, class S>
HWY_INLINE void AddStoredRows(const T* weights, int64_t weight_stride, const StoredRows<S>& values,
                              int64_t dim, int64_t count, bool fetch, T* gathered, int64_t padded) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = dim / lanes * lanes;
  RowsToFetch<S> ahead(values, dim, fetch);
  for (int64_t j = 0; j < count; j += 4) {
    for (int64_t k = 0; k < 4; ++k) ahead.Next(dim);
    bool all = j + 4 <= count;
    for (int r = 0; r < kRows && all; ++r) {
      const T* w = weights + r * weight_stride + j;
      all = w[0] != T{0} && w[1] != T{0} && w[2] != T{0} && w[3] != T{0};
    }
    if (!all) {
      for (int64_t k = j; k < j + 4 && k < count; ++k) {
        for (int r = 0; r < kRows; ++r) {
          const T weight = weights[r * weight_stride + k];
          if (weight != T{0}) AddStored(weight, values.at(k), dim, gathered + r * padded);
        }
      }
      continue;
    }
    constexpr int kGroup = kWeightRows<kRows>;
    for (int first = 0; first < kRows; first += kGroup) {
      const T* w = weights + first * weight_stride + j;
      T* to = gathered + first * padded;
      V factor[kGroup][4];
      FOVEA_UNROLL for (int r = 0; r < kGroup; ++r) {
        FOVEA_UNROLL for (int k = 0; k < 4; ++k) factor[r][k] = hn::Set(d, w[r * weight_stride + k]);
      }
      for (int64_t i = 0; i < dim; i += lanes) {
        V value[4];
        if (i < whole) {
          FOVEA_UNROLL for (int k = 0; k < 4; ++k) value[k] = LoadWide(d, values.at(j + k) + i);
        } else {
          FOVEA_UNROLL for (int k = 0; k < 4; ++k) value[k] = LoadWideN(d, values.at(j + k) + i, dim - i);
        }
        FOVEA_UNROLL for (int r = 0; r < kGroup; ++r) {
          V sum = hn::LoadU(d, to + r * padded + i);
          FOVEA_UNROLL for (int k = 0; k < 4; ++k) sum = hn::MulAdd(factor[r][k], value[k], sum);
          hn::StoreU(sum, d, to + r * padded + i);
        }
      }
    }
  }
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

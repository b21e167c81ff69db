// The inner loops of the algorithm `split`: products of few rows with keys and values in the type that they
// are stored in.
#if defined(FOVEA_FLASH_SPLIT_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SPLIT_LOOPS_INL_H_
#undef FOVEA_FLASH_SPLIT_LOOPS_INL_H_
#else
#define FOVEA_FLASH_SPLIT_LOOPS_INL_H_
#endif

#include <type_traits>

#include "kernels/simd/load-inl.h"
#include "kernels/simd/runs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// Sums that are accumulated side by side. 16 accumulators, 4 queries and a key fit the 32 registers of
/// AVX-512 and Arm; 8 accumulators fit the 16 registers of the others.
constexpr int kSums = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 16 : 8;
/// The keys whose sums by kRows queries are accumulated side by side. Three queries take as many as four.
template <int kRows>
inline constexpr int kKeysOf = kSums / (kRows == 3 ? 4 : kRows);

/// Keeps GCC from loading a vector once for each of its uses: 10 loads for 8 multiply-adds, where a Zen 3 has
/// time for 8.
template <class V>
HWY_INLINE void KeepLoaded([[maybe_unused]] V& v) {
#if HWY_TARGET == HWY_AVX2
  asm("" : "+x"(v.raw));
#endif
}

#if HWY_TARGET == HWY_AVX2
/// The sums of several keys by kRows queries, kept until each query has eight, which FoldEight folds. Four
/// queries and two keys already have eight sums. Folding those at once delayed the products of the next keys
/// (docs/performance.md).
template <int kRows>
class SumsOfEight {
 public:
  static constexpr int kKeys = kKeysOf<kRows>;
  using V = hn::Vec<hn::ScalableTag<float>>;

  /// Takes the sums of keys [j, j + kKeys). Behind the eighth key or the last of `count`, writes the scores
  /// of all keys taken since the last time.
  HWY_INLINE void Take(const V (&sums)[kSums], int64_t j, int64_t count, float* scores, int64_t stride) {
    const hn::ScalableTag<float> d;
    const int64_t at = j % 8, begin = j - at;
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int k = 0; k < kKeys; ++k)
          hn::Store(sums[r * kKeys + k], d, kept_ + (r * 8 + at + k) * 8);
    }
    if (at + kKeys < 8 && j + kKeys < count) return;
    const int64_t there = HWY_MIN(count - begin, int64_t{8});
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      V eight[8];
      FOVEA_UNROLL for (int k = 0; k < 8; ++k) eight[k] = hn::Load(d, kept_ + (r * 8 + k) * 8);
      const V folded = FoldEight(d, eight);
      float* to = scores + r * stride + begin;
      there == 8 ? hn::StoreU(folded, d, to)
                 : hn::BlendedStore(folded, hn::FirstN(d, static_cast<size_t>(there)), d, to);
    }
  }

 private:
  alignas(32) float kept_[kRows * 8 * 8];  // not filled first, which would be a kilobyte a call
};
#endif

/// Stores the sums of kRows queries and kKeysOf<kRows> keys, of which the first `count` exist. A masked
/// store, since GCC turns a loop into a call of memcpy, and saves all registers around that call.
template <int kRows, class T>
HWY_INLINE void LeaveScores(const T* sums, int64_t count, T* scores, int64_t score_stride) {
  constexpr int kKeys = kKeysOf<kRows>;
  const hn::CappedTag<T, kKeys> d;
  if (count >= kKeys) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
        hn::StoreU(hn::LoadU(d, sums + r * kKeys), d, scores + r * score_stride);
    return;
  }
  const auto there = hn::FirstN(d, static_cast<size_t>(count));
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r)
      hn::BlendedStore(hn::LoadU(d, sums + r * kKeys), there, d, scores + r * score_stride);
}

/// Loads the first `n` elements of a row of one pair of vectors in the order of LoadTwo, zeros behind. With
/// kVectors = 1, row[1] is not written.
template <int kVectors, class D, class S>
HWY_INLINE void LoadShort(D d, const S* from, int64_t n, hn::Vec<D> (&row)[2]) {
  if constexpr (kVectors == 1 && !kEvenThenOdd<S>) {
    row[0] = LoadWideN(d, from, n);
  } else if constexpr (sizeof(S) == sizeof(hn::TFromD<D>) && !kEvenThenOdd<S>) {
    row[0] = LoadWide(d, from);
    row[1] = LoadWideN(d, from + hn::Lanes(d), n - static_cast<int64_t>(hn::Lanes(d)));
  } else {
    LoadTwoN(d, from, n, row[0], row[1]);
  }
}
/// If rows of `dim` elements have loops of their own, ShortScores and AddShortRows, calls f with the number
/// of vectors that they fill. That is 1 or 2, a constant. Elsewhere a pair of vectors is shorter than heads
/// are. Returns whether it called f.
template <class T, class S, class F>
HWY_INLINE bool IfShort(int64_t dim, F&& f) {
  if constexpr ((HWY_ARCH_X86 != 0) && (HWY_TARGET <= HWY_AVX3) && sizeof(T) == 4) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    if (dim > 2 * lanes) return false;
    if constexpr (!kEvenThenOdd<S>) {
      if (dim <= lanes) {
        f.template operator()<1>();
        return true;
      }
    }
    f.template operator()<2>();
    return true;
  }
  return false;
}
/// The most lines that a row of kVectors vectors has in memory, if it begins at the start of a line.
template <int kVectors, class T, class S>
inline constexpr int kLinesOfShort = HWY_MAX(1,
                                             kVectors* static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>())) *
                                                 static_cast<int>(sizeof(S)) / 64);

/// StoredScores for rows of at most one pair of vectors, to the same bits. Loops over elements and lines to
/// fetch have constant lengths here. With lengths known only at run time, writing 16 texts with heads
/// of 24 took 1.1 to 1.35 times as long (docs/performance.md).
template <int kRows, int kVectors, class T, class S>
HWY_INLINE void ShortScores(const T* queries, int64_t padded, const StoredRows<S>& keys, int64_t dim,
                            int64_t count, bool fetch, T* scores, int64_t score_stride) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kKeys = kKeysOf<kRows>, kLanes = static_cast<int>(hn::MaxLanes(d));
  V query[kRows][kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int c = 0; c < kVectors; ++c) query[r][c] =
        hn::LoadU(d, queries + r * padded + c * kLanes);
  }
  RowsToFetch<S> ahead(keys, RowsAhead<S>(dim), fetch);
  const S* key = keys.at(0);
  for (int64_t j = 0; j < count; j += kKeys) {
    const int64_t there = HWY_MIN(count - j, int64_t{kKeys});
    V sums[kSums];
    FOVEA_UNROLL for (int i = kRows * kKeys; i < kSums; ++i) sums[i] = hn::Zero(d);  // beside three rows
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
      V row[2];
      LoadShort<kVectors>(d, key, dim, row);
      // Behind the last key the last one is read again; those sums are thrown away.
      if (k + 1 < there) key += keys.stride;
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        V sum = hn::Zero(d);
        FOVEA_UNROLL for (int c = 0; c < kVectors; ++c) sum = hn::MulAdd(query[r][c], row[c], sum);
        sums[r * kKeys + k] = sum;
      }
    }
    key += keys.stride;
    for (int k = 0; k < kKeys; ++k) ahead.template NextLines<kLinesOfShort<kVectors, T, S>>();
    alignas(64) T folded[kSums > kLanes ? kSums : kLanes];
    FoldSums<kSums, kLanes>(d, sums, folded);
    LeaveScores<kRows>(folded, there, scores + j, score_stride);
  }
}

/// scores[r · score_stride + j] = ⟨query r, key j⟩ for kRows queries and keys [0, count). Queries are rows of
/// `padded` elements in the order of LoadTwo, with zeros behind `dim`. kSums sums stay in registers: kRows
/// queries by kKeysOf<kRows> keys, so each vector of a key is loaded once for kRows queries.
template <int kRows, class T, class S>
HWY_INLINE void StoredScores(const T* queries, int64_t padded, const StoredRows<S>& keys, int64_t dim,
                             int64_t count, bool fetch, T* scores, int64_t score_stride) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kKeys = kKeysOf<kRows>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto in_short_loops = [&]<int kVectors>() HWY_ATTR {
    ShortScores<kRows, kVectors>(queries, padded, keys, dim, count, fetch, scores, score_stride);
  };
  if (IfShort<T, S>(dim, in_short_loops)) return;
  RowsToFetch<S> ahead(keys, RowsAhead<S>(dim), fetch);
#if HWY_TARGET == HWY_AVX2
  constexpr bool kFoldEight = sizeof(T) == 4 && kRows > 1;
  [[maybe_unused]] std::conditional_t<kFoldEight, SumsOfEight<kRows>, int> eight;
#endif
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
    const auto multiply = [&](int first, V(&key)[kTogether], int64_t from) HWY_ATTR {
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        V query = hn::LoadU(d, queries + r * padded + from);
        KeepLoaded(query);
        FOVEA_UNROLL for (int k = 0; k < kTogether; ++k) sums[r * kKeys + first + k] =
            hn::MulAdd(query, key[k], sums[r * kKeys + first + k]);
      }
    };
    FOVEA_UNROLL for (int first = 0; first < kKeys; first += kTogether) {
      for (int k = 0; k < kTogether; ++k) ahead.Next(dim);
      V key[kTogether], more[kTogether];
      for (i = 0; i + 2 * lanes <= dim; i += 2 * lanes) {
        FOVEA_UNROLL for (int k = 0; k < kTogether; ++k) LoadTwo(d, rows[first + k] + i, key[k], more[k]);
        multiply(first, key, i);
        multiply(first, more, i + lanes);
      }
    }
    // Unrolled as well: the sums would otherwise lie in memory, which took half the time of rows of 24.
    if (i < dim) {
      FOVEA_UNROLL for (int first = 0; first < kKeys; first += kTogether) {
        V key[kTogether], more[kTogether];
        FOVEA_UNROLL for (int k = 0; k < kTogether; ++k)
            LoadTwoN(d, rows[first + k] + i, dim - i, key[k], more[k]);
        multiply(first, key, i);
        if (kEvenThenOdd<S> || dim - i > lanes) multiply(first, more, i + lanes);
      }
    }
#if HWY_TARGET == HWY_AVX2
    if constexpr (kFoldEight) {
      eight.Take(sums, j, count, scores, score_stride);
      continue;
    }
#endif
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

/// Whether the weights of all of `count` values differ from 0, for kRows rows.
template <int kRows, class T>
HWY_INLINE bool AllWeigh(const T* weights, int64_t weight_stride, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto none = hn::FirstN(d, 0);
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) none =
        hn::Or(none, hn::Eq(hn::LoadU(d, weights + r * weight_stride + k), hn::Zero(d)));
  }
  bool all = hn::AllFalse(d, none);
  for (; k < count; ++k) {
    for (int r = 0; r < kRows; ++r) all &= weights[r * weight_stride + k] != T{0};
  }
  return all;
}

/// gathered[r] += Σ_k weights[r · weight_stride + k] · value k, for kRows rows, `count` values, and the
/// `elements` first elements of each. They are kPairs whole pairs of vectors, or a part of one pair.
template <int kRows, int kPairs, class T, class S>
HWY_INLINE void AddColumns(const T* weights, int64_t weight_stride, const S* value, int64_t stride,
                           int64_t count, int64_t elements, T* gathered, int64_t padded) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kRows][2 * kPairs];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int c = 0; c < 2 * kPairs; ++c) sums[r][c] =
        hn::LoadU(d, gathered + r * padded + c * lanes);
  }
  const bool whole = elements == 2 * kPairs * lanes;
  for (int64_t k = 0; k < count; ++k, value += stride) {
    V columns[2 * kPairs];
    if (kPairs > 1 || whole) {
      FOVEA_UNROLL for (int c = 0; c < kPairs; ++c)
          LoadTwo(d, value + 2 * c * lanes, columns[2 * c], columns[2 * c + 1]);
    } else {
      LoadTwoN(d, value, elements, columns[0], columns[1]);
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, weights[r * weight_stride + k]);
      FOVEA_UNROLL for (int c = 0; c < 2 * kPairs; ++c) sums[r][c] =
          hn::MulAdd(weight, columns[c], sums[r][c]);
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int c = 0; c < 2 * kPairs; ++c)
        hn::StoreU(sums[r][c], d, gathered + r * padded + c * lanes);
  }
}

/// The same for all `dim` elements. Calls after_each() behind each part of them.
template <int kRows, class T, class S, class F>
HWY_INLINE void AddWeighted(const T* weights, int64_t weight_stride, const S* value, int64_t stride,
                            int64_t count, int64_t dim, T* gathered, int64_t padded, F&& after_each) {
  constexpr int kPairs = HWY_MAX(kSums / kRows / 2, 1);
  const int64_t pair = 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t i = 0;
  for (; i + kPairs * pair <= dim; i += kPairs * pair, after_each())
    AddColumns<kRows, kPairs>(weights, weight_stride, value + i, stride, count, kPairs * pair, gathered + i,
                              padded);
  for (; i < dim; i += pair, after_each())
    AddColumns<kRows, 1>(weights, weight_stride, value + i, stride, count, HWY_MIN(pair, dim - i),
                         gathered + i, padded);
}

/// How many values are added while their sums stay in registers. With four at a time, loading and storing the
/// sums of four rows took a third of the time of AVX2. More than 8 were slower on a Zen 4, where bf16's dot
/// products read long caches (docs/performance.md).
constexpr int64_t kMostTogether = kSums == 8 ? 16 : 8;

/// AddStoredRows for rows of at most one pair of vectors and weights of which none is 0, to the same bits.
/// All sums stay in registers.
template <int kRows, int kVectors, class T, class S>
HWY_INLINE void AddShortRows(const T* weights, int64_t weight_stride, const StoredRows<S>& values,
                             int64_t dim, int64_t count, bool fetch, T* gathered, int64_t padded) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  V sums[kRows][kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int c = 0; c < kVectors; ++c) sums[r][c] =
        hn::LoadU(d, gathered + r * padded + c * kLanes);
  }
  RowsToFetch<S> ahead(values, RowsAhead<S>(dim), fetch);
  const S* value = values.at(0);
  for (int64_t j = 0; j < count; ++j, value += values.stride) {
    ahead.template NextLines<kLinesOfShort<kVectors, T, S>>();
    V row[2];
    LoadShort<kVectors>(d, value, dim, row);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, weights[r * weight_stride + j]);
      FOVEA_UNROLL for (int c = 0; c < kVectors; ++c) sums[r][c] = hn::MulAdd(weight, row[c], sums[r][c]);
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int c = 0; c < kVectors; ++c)
        hn::StoreU(sums[r][c], d, gathered + r * padded + c * kLanes);
  }
}

/// gathered[r] += Σ_j weights[r · weight_stride + j] · value j for kRows rows of `padded` elements in the
/// order of LoadTwo. A weight of 0 reads nothing: its key may be hidden, and its value NaN.
template <int kRows, class T, class S>
HWY_INLINE void AddStoredRows(const T* weights, int64_t weight_stride, const StoredRows<S>& values,
                              int64_t dim, int64_t count, bool fetch, T* gathered, int64_t padded) {
  const bool everywhere = AllWeigh<kRows>(weights, weight_stride, count);
  const auto in_short_loops = [&]<int kVectors>() HWY_ATTR {
    AddShortRows<kRows, kVectors>(weights, weight_stride, values, dim, count, fetch, gathered, padded);
  };
  if (everywhere && IfShort<T, S>(dim, in_short_loops)) return;
  RowsToFetch<S> ahead(values, RowsAhead<S>(dim), fetch);
  for (int64_t j = 0, n; j < count; j += n) {
    n = HWY_MIN(kMostTogether, count - j);
    bool all = everywhere || AllWeigh<kRows>(weights + j, weight_stride, n);
    if (!all) {
      n = HWY_MIN(4, n);
      all = AllWeigh<kRows>(weights + j, weight_stride, n);
    }
    int64_t to_fetch = n;
    // Two rows at a time: 16 rows are 64 lines, more than can be on their way at once.
    const auto fetch_two = [&] {
      for (int k = 0; k < 2 && to_fetch > 0; ++k, --to_fetch) ahead.Next(dim);
    };
    if (all) {
      AddWeighted<kRows>(weights + j, weight_stride, values.at(j), values.stride, n, dim, gathered, padded,
                         fetch_two);
    } else {
      for (int64_t k = j; k < j + n; ++k) {
        for (int r = 0; r < kRows; ++r) {
          const T* weight = weights + r * weight_stride + k;
          if (*weight != T{0})
            AddWeighted<1>(weight, 0, values.at(k), 0, 1, dim, gathered + r * padded, padded, [] {});
        }
      }
    }
    for (; to_fetch > 0; --to_fetch) ahead.Next(dim);
  }
}
#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// Sums of small products, as forward by chunks needs them. Rows of a state or of outputs are scaled, and one
// product or several are added, in one pass over the result. Rows of the next chunk are fetched from memory
// in the meantime (recurrence/fetched_rows-inl.h).
#if defined(FOVEA_RECURRENCE_CHUNK_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_CHUNK_SUM_INL_H_
#undef FOVEA_RECURRENCE_CHUNK_SUM_INL_H_
#else
#define FOVEA_RECURRENCE_CHUNK_SUM_INL_H_
#endif

#include "kernels/recurrence/elements-inl.h"
#include "kernels/recurrence/fetched_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The zeros of an A by pairs of tokens: row m of a lower triangle is 0 behind column m, that of an upper one
/// before it.
enum class Triangle { none, lower, upper };

/// A(m, j) = a[m·am + j·ak], and B [k][ldb], by elements X.
template <class X>
struct ChunkTerm {
  const X* a;
  int64_t am, ak;
  const X* b;
  int64_t ldb, k;
  Triangle triangle = Triangle::none;

  /// The columns of A in which rows [m, m + rows) are not all 0.
  HWY_INLINE int64_t Begin(int64_t m) const { return triangle == Triangle::upper ? m / kNumbers<X> : 0; }
  HWY_INLINE int64_t End(int64_t m, int64_t rows) const {
    return triangle == Triangle::lower ? HWY_MIN(k, ElementsOf<X>(m + rows)) : k;
  }
};

/// to = diag(end_factors) (diag(factors) A B + diag(from_factors) from + the products of `more`). Null
/// factors are 1, and a null `from` is 0.
template <class T, class X = T>
struct ChunkSum {
  T* to;
  int64_t to_stride;
  ChunkTerm<X> first = {};
  const T* product = nullptr;  // A B in the place of `first`, where an engine has made it
  int64_t product_stride = 0;
  const T* factors = nullptr;
  const T* from = nullptr;
  int64_t from_stride = 0;
  const T* from_factors = nullptr;
  int64_t from_factors_step = 1;  // 0: one factor for all rows
  const T* end_factors = nullptr;
  ChunkTerm<X> more[2] = {};
  int64_t more_count = 0;
  T* saved = nullptr;         // a second copy of the result in the shape of `to`, past the caches
  const T* dotted = nullptr;  // in the shape of `from`: *dot becomes ⟨dotted, from⟩ if AddsSideBySide
  T* dot = nullptr;
  X* pairs = nullptr;  // [rows / 2][to_stride]: the result in pairs of rows; for elements that are pairs
};

/// The rows of `count` that go by six, before those that go by five. Sixteen rows are 6 + 5 + 5 and not
/// 6 + 6 + 4, because eight accumulators of two vectors wait for each other. Below 0 where that does not come
/// out.
HWY_INLINE int64_t SixesEnd(int64_t count) {
  return count - 5 * ((6 - count % 6) % 6);
}

/// Whether products fetch a line in each of their steps.
template <int kVectors, class X>
inline constexpr bool kFetchesInLoops = kVectors == 4 && kNumbers<X> == 1;

#define FOVEA_UNROLL _Pragma("GCC unroll 8")
/// sum += A B for `count` columns of A, behind which a and b step. Fetches the lines of `run`, where it is
/// one. All accumulators stay in registers, as in Micro of simd/math-inl.h. Of a lambda in its place GCC 12
/// kept those of pairs in memory, and the gated delta rule of width 64 in bf16 took 1.8 times as long.
template <int kRows, int kVectors, class X, class V, class Run>
HWY_INLINE void AddColumnsOfA(const ChunkTerm<X>& p, int64_t count, const X*& a, const X*& b,
                              V (&sum)[kRows][kVectors], [[maybe_unused]] Run& run) {
  const hn::DFromV<V> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), am = p.am, ak = p.ak, ldb = p.ldb;
  for (int64_t k = 0; k < count; ++k, a += ak, b += ldb) {
    if constexpr (hwy::IsSame<Run, LineRun>()) run.Next();
    V row[kVectors];
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) row[v] = LoadElements(d, b + v * lanes);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const V factor = SetElements(d, a + r * am);
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) AddProduct<X>(factor, row[v], sum[r][v]);
    }
  }
}
/// sum += A B for some rows and vectors.
template <int kRows, int kVectors, class T, class X, class V, class Fetch>
HWY_INLINE void AddTerm(const ChunkTerm<X>& p, int64_t m, int64_t n, V (&sum)[kRows][kVectors], Fetch fetch) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), am = p.am, ak = p.ak, ldb = p.ldb;
  const int64_t begin = p.Begin(m), end = p.End(m, kRows);
  const X *a = p.a + m * am + begin * ak, *b = p.b + n + begin * ldb;
  std::nullptr_t none = nullptr;
  if constexpr (kFetchesInLoops<kVectors, X> && !hwy::IsSame<Fetch, std::nullptr_t>()) {
    for (int64_t k = begin; k < end; k += kRun) {
      const int64_t steps = HWY_MIN(kRun, end - k);
      LineRun run = fetch->Run(steps);
      AddColumnsOfA(p, steps, a, b, sum, run);
    }
  } else if (kVectors == 4 && kNumbers<X> == 1 && p.triangle == Triangle::lower && end == m + kRows) {
    // A square whose upper half is 0: 21 of 36 products of rows.
    AddColumnsOfA(p, m - begin, a, b, sum, none);
    FOVEA_UNROLL for (int step = 0; step < kRows; ++step, a += ak, b += ldb) {
      V row[kVectors];
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) row[v] = LoadElements(d, b + v * lanes);
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        if (r < step) continue;
        const V factor = SetElements(d, a + r * am);
        FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) AddProduct<X>(factor, row[v], sum[r][v]);
      }
    }
  } else {
    AddColumnsOfA(p, end - begin, a, b, sum, none);
  }
}

/// put(factor, elements, sum) for each vector of `from`.
template <int kRows, int kVectors, class T, class X, class V, class Put>
HWY_INLINE void ForFrom(const ChunkSum<T, X>& p, int64_t m, int64_t n, V (&sum)[kRows][kVectors], Put put) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* from = p.from + m * p.from_stride + n;
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(d, p.from_factors ? p.from_factors[(m + r) * p.from_factors_step] : T(1));
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v)
        put(factor, hn::LoadU(d, from + r * p.from_stride + v * lanes), sum[r][v]);
  }
}
/// Row r times factors[r].
template <int kRows, int kVectors, class T, class V>
HWY_INLINE void ScaleSums(const T* factors, V (&sum)[kRows][kVectors]) {
  const hn::ScalableTag<T> d;
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(d, factors[r]);
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Mul(factor, sum[r][v]);
  }
}

template <int kRows, int kVectors, class T, class X>
HWY_INLINE void SumBlock(const ChunkSum<T, X>& p, int64_t m, int64_t n, FetchedRows<T>& fetch) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kRows][kVectors];
  const bool of_engine = kNumbers<X> == 2 && p.product;
  // Sums begin with `from` where they can, and not with 0, which saves a multiply-add each.
  const bool begins = p.from && !p.factors && !of_engine;
  if (begins && p.from_factors) {
    ForFrom(p, m, n, sum, [](V factor, V x, V& to) HWY_ATTR { to = hn::Mul(factor, x); });
  } else if (begins) {
    ForFrom(p, m, n, sum, [](V, V x, V& to) HWY_ATTR { to = x; });
  } else {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
    }
  }
  if (of_engine) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] =
          hn::LoadU(d, p.product + (m + r) * p.product_stride + n + v * lanes);
    }
  } else {
    AddTerm<kRows, kVectors, T>(p.first, m, n, sum, &fetch);
  }
  if (p.factors) ScaleSums(p.factors + m, sum);
  if (p.from && !begins)
    ForFrom(p, m, n, sum, [](V factor, V x, V& to) HWY_ATTR { to = hn::MulAdd(factor, x, to); });
  for (int64_t i = 0; i < p.more_count; ++i) AddTerm<kRows, kVectors, T>(p.more[i], m, n, sum, nullptr);
  if (p.end_factors) ScaleSums(p.end_factors + m, sum);
  if (p.saved) {
    T* saved = p.saved + m * p.to_stride + n;
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v)
          hn::Stream(sum[r][v], d, saved + r * p.to_stride + v * lanes);
    }
  }
  T* to = p.to + m * p.to_stride + n;
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v)
        hn::StoreU(sum[r][v], d, to + r * p.to_stride + v * lanes);
  }
  if constexpr (kNumbers<X> == 2) {
    if (!p.pairs) return;
    // Blocks start at even rows, and all but the last have an even number of them.
    X* pairs = p.pairs + m / 2 * p.to_stride + n;
    FOVEA_UNROLL for (int r = 0; r < kRows; r += 2) {
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v)
          StorePairs(d, sum[r][v], r + 1 < kRows ? sum[r + 1 < kRows ? r + 1 : r][v] : hn::Zero(d),
                     pairs + r / 2 * p.to_stride + v * lanes);
    }
  }
}

/// Whether a sum adds one product to `from` and nothing else, as that of a state does.
template <class T, class X>
HWY_INLINE bool OnlyAdds(const ChunkSum<T, X>& p) {
  return p.from && !p.factors && p.more_count == 0 && !p.end_factors && !p.saved &&
         p.first.triangle == Triangle::none;
}
/// Keeps a pointer in one register that steps from row to row. Of six rows GCC made six pointers, read back
/// from the stack for each block.
template <class P>
HWY_INLINE void KeepStepping([[maybe_unused]] P*& pointer) {
#if HWY_ARCH_X86
  asm("" : "+r"(pointer));
#endif
}
/// SumBlock where OnlyAdds, for blocks of rows from m on, at columns n. Returns the row behind them. A
/// product over the 16 tokens of a chunk is so short that the questions of SumBlock show, and so do the
/// addresses that it makes again for each block. kSideBySide: A(m, k) and A(m + 1, k) are neighbours.
template <int kRows, int kVectors, bool kSideBySide, bool kDots, class T, class V>
HWY_INLINE int64_t AddBlocks(const ChunkSum<T>& p, int64_t m, int64_t m_end, int64_t n, FetchedRows<T>& fetch,
                             [[maybe_unused]] V (&dots)[2]) {
  if (m + kRows > m_end) return m;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), am = kSideBySide ? 1 : p.first.am,
                ak = p.first.ak, ldb = p.first.ldb, count = p.first.k, from_stride = p.from_stride,
                to_stride = p.to_stride, step = p.from_factors ? p.from_factors_step : 0;
  const T one = 1, *factor = p.from_factors ? p.from_factors + m * step : &one;
  const T *x = p.from + m * from_stride + n, *a_rows = p.first.a + m * am, *b_rows = p.first.b + n;
  [[maybe_unused]] const T* dotted = kDots ? p.dotted + m * from_stride + n : nullptr;
  T* y = p.to + m * to_stride + n;
  for (; m + kRows <= m_end; m += kRows, a_rows += kRows * am) {
    V sum[kRows][kVectors];
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r, x += from_stride, factor += step) {
      KeepStepping(x);
      KeepStepping(factor);
      const V by = hn::Set(d, *factor);
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
        const V from = hn::LoadU(d, x + v * lanes);
        sum[r][v] = hn::Mul(by, from);
        if constexpr (kDots) dots[v % 2] = hn::MulAdd(from, hn::LoadU(d, dotted + v * lanes), dots[v % 2]);
      }
      if constexpr (kDots) {
        dotted += from_stride;
        KeepStepping(dotted);
      }
    }
    [[maybe_unused]] LineRun run{nullptr, 0};
    if constexpr (kFetchesInLoops<kVectors, T>)
      run = fetch.Run(count);
    else
      fetch.Some();
    const T *a = a_rows, *b = b_rows;
    for (int64_t k = 0; k < count; ++k, a += ak, b += ldb) {
      if constexpr (kFetchesInLoops<kVectors, T>) run.Next();
      V row[kVectors];
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        const V element = hn::Set(d, a[r * am]);
        FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(element, row[v], sum[r][v]);
      }
    }
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r, y += to_stride) {
      KeepStepping(y);
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, y + v * lanes);
    }
  }
  return m;
}
/// `kVectors` vectors of columns of AddSum, from n on.
template <int kVectors, bool kSideBySide, bool kDots, class T, class V>
HWY_INLINE void AddColumns(const ChunkSum<T>& p, int64_t m_count, int64_t n, FetchedRows<T>& fetch,
                           V (&dots)[2]) {
  const int64_t sixes_end = kTileVectors == 4 ? m_count : SixesEnd(m_count);
  int64_t m = AddBlocks<6, kVectors, kSideBySide, kDots>(p, 0, sixes_end, n, fetch, dots);
  if constexpr (kTileVectors == 2)
    m = AddBlocks<5, kVectors, kSideBySide, kDots>(p, m, m_count, n, fetch, dots);
  if constexpr (kTileVectors == 4) {
    m = AddBlocks<4, kVectors, kSideBySide, kDots>(p, m, m_count, n, fetch, dots);
    m = AddBlocks<2, kVectors, kSideBySide, kDots>(p, m, m_count, n, fetch, dots);
    m = AddBlocks<1, kVectors, kSideBySide, kDots>(p, m, m_count, n, fetch, dots);
  }
}
/// Sum where OnlyAdds a product without zeros.
template <bool kSideBySide, bool kDots = false, class T>
HWY_NOINLINE void AddSum(int64_t m_count, int64_t n_count, const ChunkSum<T>& p, FetchedRows<T>& fetch) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> dots[2] = {hn::Zero(d), hn::Zero(d)};
  int64_t n = 0;
  if constexpr (kTileVectors == 4) {
    for (; n + 4 * lanes <= n_count; n += 4 * lanes)
      AddColumns<4, kSideBySide, kDots>(p, m_count, n, fetch, dots);
  }
  for (; n + 2 * lanes <= n_count; n += 2 * lanes)
    AddColumns<2, kSideBySide, kDots>(p, m_count, n, fetch, dots);
  if (n < n_count) AddColumns<1, kSideBySide, kDots>(p, m_count, n, fetch, dots);
  if constexpr (kDots) *p.dot = hn::GetLane(hn::SumOfLanes(d, hn::Add(dots[0], dots[1])));
}
/// Whether Sum of n_count columns is AddSum of rows that lie side by side, which makes the dot product that
/// it is asked for. In a pass of its own over a
/// state and Z it took 640 of 19,000 cycles of a backward chunk of SSD.
template <class T, class X>
HWY_INLINE bool AddsSideBySide(const ChunkSum<T, X>& p, int64_t n_count) {
  return kTileVectors == 4 && kNumbers<X> == 1 && OnlyAdds(p) && p.first.am == 1 &&
         n_count > static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

#undef FOVEA_UNROLL

template <int kRows, class T, class X>
HWY_INLINE void SumRows(const ChunkSum<T, X>& p, int64_t m, int64_t n_count, FetchedRows<T>& fetch) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t n = 0;
  if constexpr (kTileVectors == 4) {
    for (; n + 4 * lanes <= n_count; n += 4 * lanes) {
      if constexpr (!kFetchesInLoops<4, X>) fetch.Some();
      SumBlock<kRows, 4>(p, m, n, fetch);
    }
  }
  if (kTileVectors == 4 && n < n_count) {
    fetch.Some();
    // Backward fetches three times as many lines in a chunk as forward, mostly in blocks of eight rows.
    if (kRows == 8) fetch.Some();
  }
  for (; n + 2 * lanes <= n_count; n += 2 * lanes) {
    if (kTileVectors == 2) fetch.Some();
    SumBlock<kRows, 2>(p, m, n, fetch);
  }
  if (n < n_count) SumBlock<kRows, 1>(p, m, n, fetch);
}

/// m_count rows of n_count columns, whole vectors.
template <class T, class X>
HWY_NOINLINE void Sum(int64_t m_count, int64_t n_count, const ChunkSum<T, X>& p, FetchedRows<T>& fetch) {
  // One vector of columns: eight sums, since six wait for each other.
  if constexpr (kNumbers<X> == 2 || kTileVectors == 4) {
    if (n_count == static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()))) {
      int64_t m = 0;
      for (; m + 8 <= m_count; m += 8) SumRows<8>(p, m, n_count, fetch);
      for (; m + 4 <= m_count; m += 4) SumRows<4>(p, m, n_count, fetch);
      for (; m + 2 <= m_count; m += 2) SumRows<2>(p, m, n_count, fetch);
      if (m < m_count) SumRows<1>(p, m, n_count, fetch);
      return;
    }
  }
  if constexpr (kTileVectors == 4 && kNumbers<X> == 1) {
    if (AddsSideBySide(p, n_count)) {
      return p.dot ? AddSum<true, true>(m_count, n_count, p, fetch)
                   : AddSum<true>(m_count, n_count, p, fetch);
    }
  }
  if constexpr (kTileVectors == 2 && kNumbers<X> == 1) {
    const int64_t sixes_end = SixesEnd(m_count);
    if (sixes_end >= 0) {
      if (OnlyAdds(p))
        return p.first.am == 1 ? AddSum<true>(m_count, n_count, p, fetch)
                               : AddSum<false>(m_count, n_count, p, fetch);
      int64_t m = 0;
      for (; m < sixes_end; m += 6) SumRows<6>(p, m, n_count, fetch);
      for (; m < m_count; m += 5) SumRows<5>(p, m, n_count, fetch);
      return;
    }
  }
  ForRowGroups<6>(m_count, [&]<int kRows>(int64_t m) HWY_ATTR { SumRows<kRows>(p, m, n_count, fetch); });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

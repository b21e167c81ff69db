// The parts of every vector kernel: exponential, hyperbolic tangent, dot products, and one small matrix
// product, `Product`. It serves all five products of attention. Code that knows a Problem is in flash and
// tiles. Start with `Micro`, the loop in which the kernels spend most of their time.
//
// Each "-inl.h" file is included once for each instruction set (Highway's toggle), and everything lives in a
// namespace of that instruction set. Such code calls no template of the standard library: the linker may keep
// the copy that was compiled for AVX-512, for callers on CPUs without it too. It therefore uses HWY_MIN and
// HWY_MAX instead of std::min and std::max.
#if defined(FOVEA_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_MATH_INL_H_
#undef FOVEA_SIMD_MATH_INL_H_
#else
#define FOVEA_SIMD_MATH_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// Exp of sixteen floats by AVX-512's own instructions, which take the fraction of a number and scale by a
/// power of 2: 12 instructions instead of 18. 2^r is 1 + r times a polynomial of degree 4, minimax on [-1/2,
/// 1/2] to a relative error of 9.2e-8.
HWY_INLINE __m512 ExpByScaling(__m512 x) {
  const auto constant = [](float value) { return _mm512_set1_ps(value); };
  const __mmask16 counts = _mm512_cmp_ps_mask(x, constant(-87.0f), _CMP_NLT_UQ);  // true for a NaN too
  const __m512 log2e = constant(1.44269502f), t = _mm512_mul_ps(x, log2e);
  const __m512 lost = _mm512_fmadd_ps(x, constant(1.92596303e-8f), _mm512_fmsub_ps(x, log2e, t));
  const __m512 r = _mm512_add_ps(_mm512_reduce_ps(t, 0x00), lost);  // r = t minus its nearest integer, plus
                                                                    // the bits lost in t
  __m512 p = _mm512_fmadd_ps(constant(0.00132647273f), r, constant(0.00967151299f));
  p = _mm512_fmadd_ps(p, r, constant(0.0555073358f));
  p = _mm512_fmadd_ps(p, r, constant(0.240222424f));
  p = _mm512_fmadd_ps(p, r, constant(0.693147004f));
  p = _mm512_fmadd_ps(p, r, constant(1.0f));
  return _mm512_maskz_scalef_ps(counts, p, _mm512_roundscale_ps(t, 0x00));
}
#endif

/// The polynomial p x^n + terms[0] x^(n - 1) + ... + terms[n - 1]. Unrolled by hand: GCC 12 keeps a loop at
/// -O2, whose loads and branches took a third of the time of an exponential.
template <int kAt = 0, class D, class V = hn::Vec<D>, size_t n>
HWY_INLINE V Horner(D d, V p, V x, const hn::TFromD<D> (&terms)[n]) {
  if constexpr (kAt < static_cast<int>(n))
    return Horner<kAt + 1>(d, hn::MulAdd(p, x, hn::Set(d, terms[kAt])), x, terms);
  else
    return p;
}

/// e^x for x <= 88 (709 in double), which the caller ensures. Gives 0 where the result would be subnormal,
/// and for -inf; NaN stays NaN. The relative error is below 3e-7 (4e-16).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(V) == 64 && sizeof(hn::TFromD<D>) == 4) return V{ExpByScaling(x.raw)};
#endif
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  constexpr bool kWide = sizeof(T) == 8;
  const V low = hn::Set(d, kWide ? T(-708.0) : T(-87.0));
  const auto vanishes = hn::Lt(x, low);  // the result for such an x is thrown away
  // n = round(x / ln 2). Adding 1.5·2^(mantissa bits) rounds on every instruction set, SSE2 too.
  const V magic = hn::Set(d, kWide ? T(6755399441055744.0) : T(12582912.0));
  const V shifted = hn::MulAdd(x, hn::Set(d, T(1.4426950408889634)), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, kWide ? T(6.93147180369123816490e-01) : T(0.693145752)), x);
  r = hn::NegMulAdd(n, hn::Set(d, kWide ? T(1.90821492927058770002e-10) : T(1.42860677e-6)), r);
  V p;
  if constexpr (kWide) {  // Taylor to degree 13: |r| <= 0.347 leaves 4e-18
    p = hn::Set(d, T(1.0 / 6227020800.0));
    const T terms[] = {T(1.0 / 479001600.0),
                       T(1.0 / 39916800.0),
                       T(1.0 / 3628800.0),
                       T(1.0 / 362880.0),
                       T(1.0 / 40320.0),
                       T(1.0 / 5040.0),
                       T(1.0 / 720.0),
                       T(1.0 / 120.0),
                       T(1.0 / 24.0),
                       T(1.0 / 6.0),
                       T(0.5)};
    p = Horner(d, p, r, terms);
  } else {
    p = hn::Set(d, T(1.98756915e-4));
    const T terms[] = {T(1.39819994e-3), T(8.33345189e-3), T(4.16657963e-2), T(1.66666656e-1), T(0.5)};
    p = Horner(d, p, r, terms);
  }
  p = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, T(1)));
  using TI = hn::TFromD<hn::RebindToSigned<D>>;
  constexpr int kMantissa = kWide ? 52 : 23;
  constexpr TI kBias = kWide ? 1023 : 127;
  const auto exponent =
      hn::Add(hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic)), hn::Set(di, kBias));
  const V scale = hn::BitCast(d, hn::ShiftLeft<kMantissa>(exponent));
  return hn::IfThenZeroElse(vanishes, hn::Mul(p, scale));
}

/// min(bound, x) and max(bound, x), where NaN stays NaN. If one of two operands is NaN, x86's minimum and
/// maximum return the second operand, Arm's return the number.
template <class V>
HWY_INLINE V AtMost(V bound, V x) {
  return HWY_ARCH_X86 ? hn::Min(bound, x) : hn::IfThenElse(hn::Gt(x, bound), bound, x);
}
template <class V>
HWY_INLINE V AtLeast(V bound, V x) {
  return HWY_ARCH_X86 ? hn::Max(bound, x) : hn::IfThenElse(hn::Lt(x, bound), bound, x);
}

/// tanh x, computed from e^(2x), with an absolute error below 2e-7 (1e-15). NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1)), two = hn::Set(d, T(2));
  const V bound = hn::Set(d, T(20));
  const V clamped = AtLeast(hn::Neg(bound), AtMost(bound, x));  // beyond 20, tanh is 1 to the last bit
  return hn::Sub(one, hn::Div(two, hn::Add(Exp(d, hn::Mul(clamped, two)), one)));
}

template <class T>
HWY_INLINE T ScalarDot(const T* a, const T* b, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

/// Σ a_i b_i, in two accumulators, so that a multiply-add need not wait for the one before it.
template <class T>
HWY_INLINE T Dot(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), sum1);
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1))) + ScalarDot(a + i, b + i, n - i);
}

/// y += f·x.
template <class T>
HWY_INLINE void AddScaled(T f, const T* HWY_RESTRICT x, int64_t n, T* HWY_RESTRICT y) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, f);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < n; ++i) y[i] += f * x[i];
}

template <class T>
HWY_INLINE void Scale(T f, int64_t n, T* y) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, f);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), factor), d, y + i);
  for (; i < n; ++i) y[i] *= f;
}

#define FOVEA_UNROLL _Pragma("GCC unroll 16")
/// The sums of neighbouring lanes: those of `a` in the lower half, those of `b` in the upper half.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FoldPair([[maybe_unused]] D d, V a, V b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Add(a, b);
#else
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

#if HWY_TARGET == HWY_AVX2
/// Eight sums of eight lanes. Pairs are folded within the halves of their vectors, and the halves last. A
/// permutation across halves takes three times as long as one within them. Here are 14 permutations, 2 of
/// them across; FoldPair takes 28, of which 14 cross.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FoldEight(D d, const V* sums) {
  const hn::Repartition<double, D> pairs;
  const auto fold_pair = [&](V a, V b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto fold_four = [&](const V* s) HWY_ATTR {
    const auto a = hn::BitCast(pairs, fold_pair(s[0], s[1])), b = hn::BitCast(pairs, fold_pair(s[2], s[3]));
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                   hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
  };
  const V low = fold_four(sums), high = fold_four(sums + 4);
  return hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
}
#endif

#if HWY_TARGET == HWY_AVX2
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FoldLanes(D d, const V* sums) {
  return FoldEight(d, sums);
}
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
/// Four sums of each quarter's lanes, side by side in that quarter.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FoldFours(D d, const V* s) {
  const hn::Repartition<double, D> pairs;
  const auto fold_pair = [&](V a, V b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto a = hn::BitCast(pairs, fold_pair(s[0], s[1])), b = hn::BitCast(pairs, fold_pair(s[2], s[3]));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
}
/// Sixteen sums of sixteen lanes, folded within the quarters of their vectors first, as FoldEight does. Of 30
/// permutations 6 cross quarters; FoldPair takes 30 that all do.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V FoldLanes(D d, const V* sums) {
  // The even quarters of both, and the odd ones.
  const auto fold_quarters = [&](V a, V b) HWY_ATTR {
    return hn::Add(V{_mm512_shuffle_f32x4(a.raw, b.raw, 0x88)}, V{_mm512_shuffle_f32x4(a.raw, b.raw, 0xDD)});
  };
  return fold_quarters(fold_quarters(FoldFours(d, sums), FoldFours(d, sums + 4)),
                       fold_quarters(FoldFours(d, sums + 8), FoldFours(d, sums + 12)));
}
#endif

/// to[i] = the sum of the lanes of sums[i]. Pairs of vectors are folded into one vector, until every lane is
/// the sum of one vector. That takes 3 instructions for each sum, a reduction of each vector takes 10.
template <int kCount, int kParts, class D, class V = hn::Vec<D>, class T>
HWY_INLINE void FoldSums(D d, V* sums, T* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < kCount; ++i) hn::StoreU(sums[i], d, to + i);
#else
#if HWY_TARGET == HWY_AVX2
  if constexpr (kParts == 8 && kCount % 8 == 0 && sizeof(T) == 4) {
    FOVEA_UNROLL for (int i = 0; i < kCount; i += 8) hn::StoreU(FoldEight(d, sums + i), d, to + i);
    return;
  }
#endif
  if constexpr (kParts == 1) {
    FOVEA_UNROLL for (int i = 0; i < kCount; ++i)
        hn::StoreU(sums[i], d, to + i * static_cast<int64_t>(hn::Lanes(d)));
  } else if constexpr (kCount == 1) {
    sums[0] = FoldPair(d, sums[0], sums[0]);
    FoldSums<1, kParts / 2>(d, sums, to);
  } else {
    FOVEA_UNROLL for (int i = 0; i < kCount / 2; ++i) sums[i] = FoldPair(d, sums[2 * i], sums[2 * i + 1]);
    FoldSums<kCount / 2, kParts / 2>(d, sums, to);
  }
#endif
}

#undef FOVEA_UNROLL

/// The length of a row of n elements, rounded up to whole vectors.
template <class T>
HWY_INLINE int64_t Padded(int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  return (n + lanes - 1) / lanes * lanes;
}

/// The operands of C = A·B, where `k` is the number of rows of B. A(m, k) = a[m·am + k·ak] is read one
/// element at a time. B and C are row-major with row strides ldb and ldc. Their number of columns, n_count of
/// `Product`, is a multiple of the vector length.
template <class T>
struct ProductArgs {
  const T* a;
  int64_t am, ak;
  const T* b;
  int64_t ldb;
  T* c;
  int64_t ldc;
  int64_t k;
};

// The number of vectors in a row of a register block (the accumulators of `Micro`). 6 × 2 accumulators fit
// the 16 registers of AVX2, and 6 × 4 fit the 32 of AVX-512 and of Arm. Both hide the latency of the
// multiply-add.
constexpr int kTileVectors = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 4 : 2;

// C(m.., n..) for kRows rows and kVectors vectors of columns. All accumulators stay in registers while k
// runs; each step loads kVectors vectors of B and multiplies them by kRows elements of A each. GCC keeps the
// accumulators in registers only if the loops over them are unrolled, which -O2 does not do unasked.
// Otherwise every multiply-add waits for the store before it, and a call takes twice the time.
#define FOVEA_UNROLL _Pragma("GCC unroll 8")
template <int kRows, int kVectors, bool kAdd, class T>
HWY_INLINE void Micro(const ProductArgs<T>& p, int64_t m, int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), am = p.am, ak = p.ak, ldb = p.ldb, ldc = p.ldc;
  V sum[kRows][kVectors];
  T* c = p.c + m * ldc + n;
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) {
      if constexpr (kAdd)
        sum[r][v] = hn::LoadU(d, c + r * ldc + v * lanes);
      else
        sum[r][v] = hn::Zero(d);
    }
  }
  const T* a = p.a + m * am;
  const T* b = p.b + n;
  for (int64_t k = 0; k < p.k; ++k, a += ak, b += ldb) {
    V row[kVectors];
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, a[r * am]);
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, row[v], sum[r][v]);
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * ldc + v * lanes);
  }
}
#undef FOVEA_UNROLL

template <int kRows, bool kAdd, class T>
HWY_INLINE void RowsOf(const ProductArgs<T>& p, int64_t m, int64_t n_count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t n = 0;
  if constexpr (kTileVectors == 4) {
    for (; n + 4 * lanes <= n_count; n += 4 * lanes) Micro<kRows, 4, kAdd>(p, m, n);
  }
  for (; n + 2 * lanes <= n_count; n += 2 * lanes) Micro<kRows, 2, kAdd>(p, m, n);
  if (n < n_count) Micro<kRows, 1, kAdd>(p, m, n);
}

/// Calls f.operator()<rows>(first) if there are 1 to kMost rows.
template <int kMost, class F>
HWY_INLINE void ForRowsAtOnce(int64_t rows, int64_t first, F&& f) {
  if constexpr (kMost > 0) {
    if (rows == kMost) return f.template operator()<kMost>(first);
    ForRowsAtOnce<kMost - 1>(rows, first, f);
  }
}
/// Calls f.operator()<kRows>(first row) over `rows` rows: kMost at a time, then the rest at once.
template <int kMost, class F>
HWY_INLINE void ForRowGroups(int64_t rows, F&& f) {
  int64_t first = 0;
  for (; first + kMost <= rows; first += kMost) f.template operator()<kMost>(first);
  ForRowsAtOnce<kMost - 1>(rows - first, first, f);
}

/// C [m_count, n_count] = A·B, or C += A·B with kAdd.
template <bool kAdd, class T>
HWY_NOINLINE void Product(int64_t m_count, int64_t n_count, const ProductArgs<T>& p) {
  ForRowGroups<6>(m_count, [&]<int kRows>(int64_t m) HWY_ATTR { RowsOf<kRows, kAdd>(p, m, n_count); });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

// The additive score without a tanh for each pair of query and key. With E(x) = e^(2x), tanh(q + k) = 1 - 2 /
// (E(q)·E(k) + 1), and E is computed once for each row of queries or keys. A pair then takes a product, a
// reciprocal and a sum, a third of the time of a tanh. Rows with an element beyond kMostAdditive, where such
// a product could overflow, keep the tanh.
#if defined(FOVEA_FLASH_ADDITIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_ADDITIVE_INL_H_
#undef FOVEA_FLASH_ADDITIVE_INL_H_
#else
#define FOVEA_FLASH_ADDITIVE_INL_H_
#endif

#include "kernels/flash/flash.h"
#include "kernels/flash/online_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// If |x| is at most this for both rows, e^(2q)·e^(2k) and its square stay finite and normal.
template <class T>
constexpr T kMostAdditive = sizeof(T) == 8 ? T(170) : T(21);

/// to = e^(2x), with zeros behind n. Returns false for a row that keeps the tanh, such as one with a NaN;
/// `to` is then meaningless.
template <class T>
HWY_INLINE bool AdditiveRow(const T* x, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T within = 1;
  for (int64_t i = 0; i < n; ++i)
    within = x[i] <= kMostAdditive<T> && x[i] >= -kMostAdditive<T> ? within : T{0};
  if (within == T{0}) return false;
  Copy(x, n, to);
  Fill(T{0}, Padded<T>(n) - n, to + n);  // whole vectors are read below
  for (int64_t i = 0; i < n; i += lanes) {
    const auto value = hn::LoadU(d, to + i);
    hn::StoreU(Exp(d, hn::Add(value, value)), d, to + i);
  }
  Fill(T{0}, Padded<T>(n) - n, to + n);
  return true;
}

/// 1 / x for x in [1, e^84], correct to the last bits.
template <class D, class V>
HWY_INLINE V AdditiveReciprocal(D d, V x) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    // An estimate of 14 bits, whose precision one step of Newton's method doubles. A division takes four
    // times as long.
    const V near = hn::ApproximateReciprocal(x);
    return hn::Mul(near, hn::NegMulAdd(x, near, hn::Set(d, 2.0f)));
  }
#endif
  return hn::Div(hn::Set(d, hn::TFromD<D>(1)), x);
}

/// scores[r · score_stride + j] = Σ_d v_d tanh(q_rd + k_jd) for kRows queries and keys [0, count). Queries
/// and keys are rows made by AdditiveRow, `padded` elements apart; `vector` has zeros behind its end. 8 sums
/// are accumulated in registers at once, for kRows queries and 8 / kRows keys, so each key that is loaded
/// serves kRows queries.
template <int kRows, class T>
HWY_INLINE void AdditiveScores(const T* queries, const T* keys, int64_t padded, const T* vector, T vector_sum,
                               int64_t count, T* scores, int64_t score_stride) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kSums = 8, kKeys = kSums / kRows, kLanes = static_cast<int>(hn::MaxLanes(d));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V one = hn::Set(d, T(1));
  for (int64_t j = 0; j < count; j += kKeys) {
    V sums[kSums];
    FOVEA_UNROLL for (int i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
    const T* rows[kKeys];
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) rows[k] =
        keys + (j + k < count ? j + k : count - 1) * padded;
    for (int64_t i = 0; i < padded; i += lanes) {
      const V weight = hn::LoadU(d, vector + i);
      FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
        const V key = hn::LoadU(d, rows[k] + i);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
          const V product = hn::MulAdd(hn::LoadU(d, queries + r * padded + i), key, one);
          sums[r * kKeys + k] = hn::MulAdd(weight, AdditiveReciprocal(d, product), sums[r * kKeys + k]);
        }
      }
    }
    alignas(64) T folded[kSums > kLanes ? kSums : kLanes];
    FoldSums<kSums, kLanes>(d, sums, folded);
    for (int r = 0; r < kRows; ++r) {
      for (int k = 0; k < kKeys && j + k < count; ++k)
        scores[r * score_stride + j + k] = vector_sum - T{2} * folded[r * kKeys + k];
    }
  }
}

/// AdditiveGradient (flash/direct-inl.h) for one pair, from E(q) and E(k). With r = 1 / (E(q)·E(k) + 1), t =
/// tanh(q + k) is 1 - 2r, and 1 - t² is 4r(1 - r).
template <class T>
HWY_INLINE void AdditivePairGradient(const T* HWY_RESTRICT q, const T* HWY_RESTRICT k,
                                     const T* HWY_RESTRICT v, T ds, int64_t n, T* HWY_RESTRICT dq,
                                     T* HWY_RESTRICT dk, T* HWY_RESTRICT dv) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V one = hn::Set(d, T(1)), factor = hn::Set(d, ds), four = hn::Set(d, T(4) * ds),
          minus_two = hn::Set(d, T(-2));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V r = AdditiveReciprocal(d, hn::MulAdd(hn::LoadU(d, q + i), hn::LoadU(d, k + i), one));
    const V u = hn::Mul(hn::Mul(four, hn::LoadU(d, v + i)), hn::NegMulAdd(r, r, r));
    hn::StoreU(hn::Add(hn::LoadU(d, dq + i), u), d, dq + i);
    hn::StoreU(hn::Add(hn::LoadU(d, dk + i), u), d, dk + i);
    hn::StoreU(hn::MulAdd(factor, hn::MulAdd(minus_two, r, one), hn::LoadU(d, dv + i)), d, dv + i);
  }
  for (; i < n; ++i) {
    const T r = T{1} / (q[i] * k[i] + T{1}), u = T(4) * ds * v[i] * (r - r * r);
    dq[i] += u;
    dk[i] += u;
    dv[i] += ds * (T{1} - T{2} * r);
  }
}
#undef FOVEA_UNROLL

/// How an additive score is computed. The candidate says: the kernels do not choose.
enum class AdditivePath : uint8_t {
  tanh,        ///< a tanh for each pair
  exponential  ///< E of each row
};

/// E of every key, computed before the units of work begin.
template <class T>
struct AdditiveKeys {
  T* rows = nullptr;         ///< [batch, kv_heads, key_len, padded]; null: every pair takes its tanh
  uint8_t* small = nullptr;  ///< [batch, kv_heads, key_len]: 1 where the row holds E
  T* vector = nullptr;       ///< [padded]: v, zeros behind
  T sum = 0;                 ///< of v
};

template <class T>
HWY_INLINE AdditiveKeys<T> TakeAdditiveKeys(const Problem<T>& p, AdditivePath path, Carve& carve) {
  if (path == AdditivePath::tanh) return {};
  const int64_t rows = p.batch * p.kv_heads * p.key_len, padded = Padded<T>(p.score_dim);
  AdditiveKeys<T> keys;
  keys.rows = carve.Take<T>(rows * padded);
  keys.small = carve.Take<uint8_t>(rows);
  keys.vector = carve.Take<T>(padded);
  return keys;
}

template <class T>
HWY_NOINLINE void FillAdditiveKeys(const Problem<T>& p, Executor& executor, AdditiveKeys<T>& keys) {
  if (!keys.rows) return;
  const int64_t padded = Padded<T>(p.score_dim);
  Copy(p.additive_vector, p.score_dim, keys.vector);
  Fill(T{0}, padded - p.score_dim, keys.vector + p.score_dim);
  keys.sum = 0;
  for (int64_t i = 0; i < p.score_dim; ++i) keys.sum += p.additive_vector[i];
  constexpr int64_t kPiece = 64;
  const int64_t pieces = (p.key_len + kPiece - 1) / kPiece;
  executor.parallel_for(p.batch * p.kv_heads * pieces, [&](int64_t unit, int) {
    const int64_t head = unit / pieces, begin = unit % pieces * kPiece,
                  end = HWY_MIN(p.key_len, begin + kPiece);
    for (int64_t j = begin; j < end; ++j) {
      const int64_t row = head * p.key_len + j;
      keys.small[row] = AdditiveRow(RowAt(p.key, head / p.kv_heads, head % p.kv_heads, j), p.score_dim,
                                    keys.rows + row * padded)
                            ? 1
                            : 0;
    }
  });
}

/// The fast path of one query: its own E, null if its row keeps the tanh, and the keys of its head.
template <class T>
struct AdditiveQuery {
  const AdditiveKeys<T>* keys = nullptr;
  const T* row = nullptr;
  int64_t head_row = 0;  ///< the row of the head's first key
};

/// Whether the rows of keys [begin, end) of a head all hold E.
template <class T>
HWY_INLINE bool AllSmall(const AdditiveKeys<T>& keys, int64_t head_row, int64_t begin, int64_t end) {
  bool all = true;
  for (int64_t j = begin; j < end; ++j) all = all && keys.small[head_row + j] != 0;
  return all;
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

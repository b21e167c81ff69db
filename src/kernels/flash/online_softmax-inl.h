// What the algorithms of flash share: the online softmax of a row of scores (Milakov and Gimelshein 2018),
// hidden scores, dropout, the buffers of mods, and the groups of backward. The online softmax takes scores a
// piece at a time. It keeps a maximum and a sum for each row, and rescales the gathered values when the
// maximum rises.
#if defined(FOVEA_FLASH_ONLINE_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_ONLINE_SOFTMAX_INL_H_
#undef FOVEA_FLASH_ONLINE_SOFTMAX_INL_H_
#else
#define FOVEA_FLASH_ONLINE_SOFTMAX_INL_H_
#endif

#include "kernels/problem.h"
#include "kernels/schedule.h"
#include "kernels/simd/dropout-inl.h"
#include "kernels/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T>
constexpr T kHidden = -HUGE_VAL;  // -infinity, the score of a hidden key

/// position_of (problem.h), for code of one instruction set, which may not call templates compiled for all.
template <class T>
HWY_INLINE int64_t PositionOf(const Problem<T>& p, int64_t b, int64_t row) {
  return row + (p.query_offsets ? p.query_offsets[b] : p.query_offset);
}

/// entry_of (problem.h), likewise.
template <class T>
HWY_INLINE int64_t EntryOf(const Problem<T>& p, int64_t b) {
  return p.first_entry + b;
}

/// The site of a pair of query row and key.
template <class T>
HWY_INLINE Site SiteOf(const Problem<T>& p, int64_t b, int64_t h, int64_t row, int64_t key) {
  return Site::at(EntryOf(p, b), h, PositionOf(p, b, row), key);
}

/// keep[j] = the problem's factor of dropout for the weight of key first.key + j.
template <class T>
HWY_INLINE void KeepFactors(const Problem<T>& p, const Site& first, int64_t count, T* keep) {
  DropoutFactors<T>(p.dropout_rate, p.dropout_seed, first, count, keep);
}

/// Sets the scores of keys outside `spans` to -inf; scores[j - begin] belongs to key j of [begin, end).
template <class T>
HWY_NOINLINE void HideOutside(const SpanList& spans, int64_t begin, int64_t end, T* scores) {
  int64_t at = begin;
  for (int64_t n = 0; n < spans.count && at < end; ++n) {
    const int64_t stop = spans.data[n].begin < end ? spans.data[n].begin : end;
    if (stop > at) {
      Fill(kHidden<T>, stop - at, scores + (at - begin));
      at = stop;
    }
    if (spans.data[n].end > at) at = spans.data[n].end;
  }
  if (at < end) Fill(kHidden<T>, end - at, scores + (at - begin));
}

/// The scale that the exponential applies. Positive scales are applied there, which costs nothing. Others
/// reverse the order of scores or make all of them 0, and 0·-inf is not hidden. With those the products are
/// scaled before anything is hidden, and 1 is left.
template <class T>
HWY_INLINE T ScaleOf(const Problem<T>& p) {
  return p.scale > 0 && !p.has_mods ? static_cast<T>(p.scale) : T{1};
}
/// The factor from the derivative by a score to the derivative by q·k. With mods it is 1: mods_gradient
/// multiplies by the scale.
template <class T>
HWY_INLINE T GradientScale(const Problem<T>& p) {
  return p.has_mods ? T{1} : static_cast<T>(p.scale);
}
template <class T>
HWY_INLINE void ScaleEarly(const Problem<T>& p, int64_t n, T* products) {
  if (p.scale > 0 || p.has_mods) return;
  for (int64_t j = 0; j < n; ++j) products[j] *= static_cast<T>(p.scale);
}

/// The exponential of the weights. Kernels whose weights are rounded to 16 bits may have another one.
struct FullExponential {
  template <class D, class V>
  static HWY_INLINE V Of(D d, V x) {
    return Exp(d, x);
  }
};

/// x ← e^(scale·x - shift); returns the sum. `x` has room for whole vectors, whose spare lanes become 0. The
/// exponents are at most 0, or are clamped to 0 with `kClamp`.
///
/// Scores of which a maximum was taken have exponents of at most 0 only if both computations round scale·x
/// alike. So this file is compiled without contraction (CMakeLists.txt): a fused multiply-subtract is off by
/// half an ulp of the score, which is e^64 at a score of 2^30.
template <bool kClamp, class E = FullExponential, class T>
HWY_INLINE T Exponentials(T scale, T shift, int64_t n, T* x) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = n; i < Padded<T>(n); ++i) x[i] = kHidden<T>;
  auto sum = hn::Zero(d);
  const auto factor = hn::Set(d, scale), offset = hn::Set(d, shift);
  for (int64_t i = 0; i < n; i += lanes) {
    auto exponent = hn::Sub(hn::Mul(hn::LoadU(d, x + i), factor), offset);
    if constexpr (kClamp) exponent = hn::IfThenZeroElse(hn::Gt(exponent, hn::Zero(d)), exponent);
    const auto e = E::Of(d, exponent);
    hn::StoreU(e, d, x + i);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// The running softmax of one row: the maximum so far, and the sum of e^(score - maximum). The gathered
/// values are kept elsewhere. Two such states merge as docs/algebra.md says. A NaN among the scores makes the
/// sum NaN, and then everything that the row gives.
template <class T>
struct RowState {
  T maximum = kHidden<T>, sum = 0;
};

/// Whether the row saw no key.
template <class T>
HWY_INLINE bool Unseen(const RowState<T>& state) {
  return state.maximum == kHidden<T> && state.sum == T{0};
}

/// Adds a piece to the state, whose weights relative to the new maximum have this sum. Returns the factor for
/// the values gathered before.
template <class T>
HWY_INLINE T Advance(T maximum, T sum, RowState<T>& state) {
  // Before the first key that the row sees nothing was gathered: there is no exponential to compute.
  const bool same = state.maximum == maximum || state.maximum == kHidden<T>;
  const T factor = same ? T{1} : static_cast<T>(std::exp(state.maximum - maximum));
  state = {maximum, state.sum * factor + sum};
  return factor;
}

/// Turns the scores of one more piece (hidden ones -inf) into weights relative to the new maximum. Returns
/// the factor for the values gathered before.
template <class E = FullExponential, class T>
HWY_INLINE T Absorb(T scale, int64_t n, T* scores, RowState<T>& state) {
  const T best = MaximumOf(scores, n) * scale;
  const T maximum = best > state.maximum ? best : state.maximum;
  if (maximum == kHidden<T>) {
    for (int64_t j = 0; j < n; ++j) {
      if (scores[j] != scores[j]) state.sum = scores[j];
    }
    Fill(T{0}, Padded<T>(n), scores);
    return 1;
  }
  return Advance(maximum, Exponentials<false, E>(scale, maximum, n, scores), state);
}

/// Turns the scores of one piece into weights factor·e^(scale·s - shift). A weight is 0 where the key is
/// hidden, or where the whole row is. In a row that saw a NaN the weights are NaN, except those of hidden
/// keys.
template <bool kClamp, class T>
HWY_INLINE void WeightsOf(T scale, T shift, T factor, int64_t n, T* scores) {
  const T poison = shift + factor;
  if (poison != poison) {
    for (int64_t j = 0; j < n; ++j) scores[j] = scores[j] == kHidden<T> ? T{0} : poison;
    return Fill(T{0}, Padded<T>(n) - n, scores + n);
  }
  if (shift == kHidden<T>) return Fill(T{0}, Padded<T>(n), scores);
  Exponentials<kClamp>(scale, shift, n, scores);
  if (factor != T{1}) Scale(factor, n, scores);
}

/// x ← 1 / (1 + e^-(scale·x + bias)), exactly 0 where hidden.
template <class T>
HWY_NOINLINE void SigmoidRow(T scale, T bias, int64_t n, T* x) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = n; i < Padded<T>(n); ++i) x[i] = kHidden<T>;
  const auto factor = hn::Set(d, -scale), offset = hn::Set(d, bias), hidden = hn::Set(d, kHidden<T>),
             most = hn::Set(d, T(sizeof(T) == 8 ? 709 : 88)), one = hn::Set(d, T(1));
  for (int64_t i = 0; i < n; i += lanes) {
    const auto score = hn::LoadU(d, x + i);
    auto exponent = hn::Sub(hn::Mul(score, factor), offset);
    exponent = hn::IfThenElse(hn::Gt(exponent, most), most, exponent);
    const auto weight = hn::Div(one, hn::Add(one, Exp(d, exponent)));
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(score, hidden), weight), d, x + i);
  }
}

/// The share of a row's sum that does not belong to its head's sink: 1 / (1 + e^(sink - lse)).
template <class T>
HWY_INLINE T ShareOf(T log_sum_exp, const T* sink) {
  return sink ? T{1} / (T{1} + static_cast<T>(std::exp(*sink - log_sum_exp))) : T{1};
}

/// -inf of a row that saw no key.
template <class T>
HWY_INLINE T LogSumExp(const RowState<T>& state) {
  return state.maximum + static_cast<T>(std::log(state.sum));
}
/// The factor from weights relative to the state's maximum to final weights.
template <class T>
HWY_INLINE T FactorOf(const RowState<T>& state, const T* sink) {
  return (sink ? ShareOf(LogSumExp(state), sink) : T{1}) / state.sum;
}

/// Turns the scores of one more piece into weights, by the problem's normaliser. Returns the factor for the
/// values gathered before.
template <class E = FullExponential, class T>
HWY_INLINE T Normalize(const Problem<T>& p, T scale, int64_t n, T* scores, RowState<T>& state) {
  if (p.normalizer == NormalizerKind::softmax) return Absorb<E>(scale, n, scores, state);
  for (int64_t j = 0; j < n; ++j) {
    if (scores[j] != kHidden<T>) {
      state.maximum = 0;  // Finish then returns the log-sum-exp 0, and -inf for a row that sees nothing
      state.sum = 1;
    }
  }
  SigmoidRow(scale, static_cast<T>(p.normalizer_number), n, scores);
  return 1;
}

/// The final weights of one piece, from the running softmax: exact to the last bits however large the scores
/// are. The scores may be above the state's maximum, as far as LazyWeights lets them.
template <class T>
HWY_INLINE void FinalWeights(const Problem<T>& p, T scale, const RowState<T>& state, const T* sink, int64_t n,
                             T* scores) {
  if (p.normalizer == NormalizerKind::sigmoid)
    return SigmoidRow(scale, static_cast<T>(p.normalizer_number), n, scores);
  if (Unseen(state)) return Fill(T{0}, Padded<T>(n), scores);
  WeightsOf<false>(scale, state.maximum, FactorOf(state, sink), n, scores);
}
/// The weights of one piece from the saved log-sum-exp. That number is rounded by up to |lse|·eps, so the
/// exponents are clamped and no weight is above 1.
template <class T>
HWY_INLINE void SavedWeights(const Problem<T>& p, T scale, T log_sum_exp, const T* sink, int64_t n,
                             T* scores) {
  if (p.normalizer == NormalizerKind::sigmoid)
    return SigmoidRow(scale, static_cast<T>(p.normalizer_number), n, scores);
  WeightsOf<true>(scale, log_sum_exp, ShareOf(log_sum_exp, sink), n, scores);
}

/// scores ← the weights after dropout P∘keep, and d_scores ← dS. That is P∘(keep∘dP - D)·scale for softmax
/// and P∘(1 - P)∘keep∘dP·scale for the sigmoid. Both are exactly 0 where P is 0, since dP may be NaN there.
template <class T>
HWY_INLINE void ScoreGradientRow(const Problem<T>& p, int64_t n, T mean, T scale, const T* keep, T* weights,
                                 T* d_scores) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool sigmoid = p.normalizer == NormalizerKind::sigmoid;
  const auto zero = hn::Zero(d), center = hn::Set(d, sigmoid ? T{0} : mean), factor = hn::Set(d, scale);
  for (int64_t j = 0; j < n; j += lanes) {
    const auto weight = hn::LoadU(d, weights + j);
    auto gradient = hn::LoadU(d, d_scores + j);
    if (keep) {
      const auto kept = hn::LoadU(d, keep + j);
      gradient = hn::Mul(gradient, kept);
      hn::StoreU(hn::Mul(weight, kept), d, weights + j);
    }
    auto ds = hn::Mul(hn::Mul(weight, factor), hn::Sub(gradient, center));
    if (sigmoid) ds = hn::NegMulAdd(ds, weight, ds);
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, zero), ds), d, d_scores + j);
  }
}

/// Writes the output row from the finished state.
template <class T>
HWY_INLINE void Finish(const RowState<T>& state, const T* sink, int64_t n, const T* gathered, T* output) {
  // A row that saw nothing gives 0. Its gathered values times 0 would not do: other rows of the block may
  // have seen a NaN value, and 0 · NaN was gathered.
  if (Unseen(state)) return Fill(T{0}, n, output);
  const T inverse = FactorOf(state, sink);
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, gathered + i), hn::Set(d, inverse)), d, output + i);
  for (; i < n; ++i) output[i] = gathered[i] * inverse;
}

/// Row r of an operand. Operand::row is a template that must not be compiled here.
template <class T>
HWY_INLINE const T* RowAt(const Operand<const T*>& x, int64_t b, int64_t h, int64_t r) {
  return x.data + b * x.batch_stride + h * x.head_stride + r * x.row_stride;
}
template <class T>
HWY_INLINE T* RowAt(const Operand<T*>& x, int64_t b, int64_t h, int64_t r) {
  return x.data + b * x.batch_stride + h * x.head_stride + r * x.row_stride;
}

template <class T>
HWY_NOINLINE ModBuffers<T> TakeModBuffers(const ProblemMods<T>& mods, int64_t rows, bool backward,
                                          Carve& carve) {
  const ModBufferSizes sizes = mod_buffer_sizes(mods, rows, backward);
  ModBuffers<T> buffers;
  buffers.stages = carve.Take<T>(sizes.stages);
  buffers.arguments = carve.Take<T>(sizes.arguments);
  if (backward) {
    buffers.d_scores = carve.Take<T>(sizes.d_scores);
    buffers.d_arguments = carve.Take<T>(sizes.d_arguments);
  }
  buffers.rows = rows;
  return buffers;
}

template <class T>
HWY_NOINLINE ModSums<T> TakeModSums(const Problem<T>& p, const ProblemMods<T>& mods, int64_t groups,
                                    Carve& carve) {
  ModSums<T> sums;
  for (size_t n = 0; n < mods.count; ++n) {
    for (size_t k = 0; k < mods.list[n].count; ++k)
      sums.regions[n][k] = carve.Take<T>(mod_sum_elements(p, mods.list[n], k, groups));
  }
  return sums;
}

/// Backward splits keys into groups, about 16 units of work and at most 8 groups for a head. The shape alone
/// decides, so several threads have work and any number of them gives the same bits. Each group costs one
/// partial dQ.
constexpr int64_t kUnits = 16, kGroups = 8;
/// Where heads add to one dense gradient they take turns, so only the groups of keys are left to run in
/// parallel. Each group costs a partial dQ of all heads: therefore four groups, not eight.
constexpr int64_t kSharedGroups = 4;
template <class T>
HWY_INLINE int64_t KeyGroups(const Problem<T>& p, int64_t tiles) {
  const int64_t heads = HWY_MAX(p.batch * p.kv_heads, 1);
  if (p.shared_dense_gradient) return HWY_MAX(HWY_MIN(kSharedGroups, tiles), 1);
  return HWY_MAX(HWY_MIN(HWY_MIN(kUnits / heads, kGroups), tiles), 1);
}
/// The most keys of a group, where some calls of a plan have gradients that heads share and others have none.
template <class T>
HWY_INLINE int64_t MostGroupKeys(const Problem<T>& p, int64_t groups, int64_t tile) {
  const int64_t tiles = (p.key_len + tile - 1) / tile, least = HWY_MAX(HWY_MIN(groups, kSharedGroups), 1);
  return (tiles + least - 1) / least * tile;
}
/// An upper bound of batch · kv_heads · KeyGroups, for this problem and every smaller one: a workspace for
/// the largest call of a plan serves all its calls.
template <class T>
HWY_INLINE int64_t MostUnits(const Problem<T>& p, int64_t tiles) {
  const int64_t heads = HWY_MAX(p.batch * p.kv_heads, 1), most = HWY_MAX(HWY_MIN(kGroups, tiles), 1);
  const int64_t units = HWY_MIN(heads * most, HWY_MAX(kUnits, heads));
  return p.has_mods || p.has_weight_mods ? HWY_MAX(units, heads * HWY_MIN(most, kSharedGroups)) : units;
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

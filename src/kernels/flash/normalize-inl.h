// The normalisers over a whole row of scores: the weights, and the formula of their gradient. A row is a few
// vectors to thousands of them, and lies in the cache.
#if defined(FOVEA_FLASH_NORMALIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_NORMALIZE_INL_H_
#undef FOVEA_FLASH_NORMALIZE_INL_H_
#else
#define FOVEA_FLASH_NORMALIZE_INL_H_
#endif

#include "kernels/flash/normalize_scalar.h"
#include "kernels/flash/online_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// One row of n scores, hidden ones -inf, in a buffer with room for whole vectors. `noise` is only set for
/// normalisers that sample.
template <class T>
struct WholeRow {
  int64_t head = 0, n = 0;
  const T* noise = nullptr;
  T* spare = nullptr;  ///< room for 3n numbers and three vectors
};

template <class T>
HWY_INLINE bool HasNan(const T* x, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    if (x[j] != x[j]) return true;
  }
  return false;
}

template <class T>
HWY_INLINE double EntmaxAlpha(const Problem<T>& p, int64_t head) {
  if (p.normalizer != NormalizerKind::adaptive_entmax) return p.normalizer_number;
  return 1.01 + 0.99 / (1.0 + std::exp(-static_cast<double>(*p.normalizer_arguments[0].of(head))));
}

/// The threshold tau with Σ (y - tau)₊^power = 1. `y` holds the numbers above -1, of which the largest is 0.
/// Newton's method starts at -1, below the root. The sum is convex there, so tau rises until rounding stops
/// it.
template <class T>
HWY_NOINLINE T EntmaxThreshold(T power, int64_t count, T* y) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = count; j < Padded<T>(count); ++j) y[j] = T{-1};
  T tau{-1};
  for (int round = 0; round < 100; ++round) {
    const auto threshold = hn::Set(d, tau), zero = hn::Zero(d), one = hn::Set(d, T(1));
    auto sums = zero, slopes = zero;
    for (int64_t j = 0; j < count; j += lanes) {
      const auto above = hn::Max(hn::Sub(hn::LoadU(d, y + j), threshold), zero);
      if (power == T{1}) {
        sums = hn::Add(sums, above);
        slopes = hn::Add(slopes, hn::IfThenElseZero(hn::Gt(above, zero), one));
      } else if (power == T{2}) {
        sums = hn::MulAdd(above, above, sums);
        slopes = hn::Add(slopes, hn::Add(above, above));
      }
    }
    double sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sums))),
           slope = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, slopes)));
    for (int64_t j = 0; power != T{1} && power != T{2} && j < count; ++j) {
      if (!(y[j] > tau)) continue;
      const T raised = static_cast<T>(std::pow(y[j] - tau, power - T{1}));
      sum += static_cast<double>(raised * (y[j] - tau));
      slope += static_cast<double>(power * raised);
    }
    const T next = static_cast<T>(static_cast<double>(tau) + (sum - 1.0) / slope);
    if (!(next > tau)) break;
    tau = next;
  }
  return tau;
}

/// x ← the weights of entmax; returns tau. `best` is the maximum, which is finite.
template <class T>
HWY_NOINLINE T EntmaxRow(const Problem<T>& p, const WholeRow<T>& row, T best, T* x) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = row.n;
  for (int64_t j = n; j < Padded<T>(n); ++j) x[j] = kHidden<T>;
  // Scores are taken relative to the maximum, which is exact however large they are. A score that is 1 or
  // more below it, times alpha - 1, has weight 0.
  const double alpha = EntmaxAlpha(p, row.head);
  const T slope = static_cast<T>(alpha - 1.0), power = static_cast<T>(1.0 / (alpha - 1.0));
  const auto factor = hn::Set(d, slope), top = hn::Set(d, best), out = hn::Set(d, T(-1));
  int64_t count = 0;
  for (int64_t j = 0; j < n; j += lanes) {
    const auto y = hn::Mul(factor, hn::Sub(hn::LoadU(d, x + j), top));
    hn::StoreU(y, d, x + j);
    count += static_cast<int64_t>(hn::CompressStore(y, hn::Gt(y, out), d, row.spare + count));
  }
  const T tau = EntmaxThreshold(power, count, row.spare);
  const auto threshold = hn::Set(d, tau);
  for (int64_t j = 0; j < n; j += lanes) {
    const auto above = hn::Max(hn::Sub(hn::LoadU(d, x + j), threshold), hn::Zero(d));
    hn::StoreU(power == T{2} ? hn::Mul(above, above) : above, d, x + j);
  }
  if (power != T{1} && power != T{2}) {
    for (int64_t j = 0; j < n; ++j) x[j] = x[j] > T{0} ? static_cast<T>(std::pow(x[j], power)) : T{0};
  }
  return tau + slope * best;
}

/// x ← 1 at the first maximum of x + noise, else 0. The noise is added to the difference from `best`: a large
/// score would swallow it.
template <class T>
HWY_INLINE void DrawnKey(const WholeRow<T>& row, T best, T* x) {
  for (int64_t j = 0; j < row.n; ++j) x[j] = (x[j] - best) + row.noise[j];
  const T winner = MaximumOf(x, row.n);
  bool drawn = false;
  for (int64_t j = 0; j < row.n; ++j) {
    const bool wins = !drawn && x[j] == winner;
    x[j] = wins ? T{1} : T{0};
    drawn = drawn || wins;
  }
}

/// x ← equal shares for the largest elements, else 0.
template <class T>
HWY_INLINE void BestShares(const WholeRow<T>& row, T best, T* x) {
  T count{0};
  for (int64_t j = 0; j < row.n; ++j) count += x[j] == best ? T{1} : T{0};
  for (int64_t j = 0; j < row.n; ++j) x[j] = x[j] == best ? T{1} / count : T{0};
}

/// ln Σ e^x. Leaves the exponentials in row.spare. `best` is the maximum, which is finite.
template <class T>
HWY_INLINE T LogSumExp(const WholeRow<T>& row, T best, const T* x) {
  Copy(x, row.n, row.spare);
  return best + static_cast<T>(std::log(Exponentials<false>(T{1}, best, row.n, row.spare)));
}

/// x ← the weights, exactly 0 where hidden. Returns the log-sum-exp, or the normaliser's number in its place.
/// A NaN makes the row NaN, and so does a score of +inf where differences to it are taken. In a sigmoid's row
/// a NaN stays alone, since its elements do not depend on each other.
template <class T>
HWY_NOINLINE T SolveRow(const Problem<T>& p, const WholeRow<T>& row, T* x) {
  const bool sigmoid = p.normalizer == NormalizerKind::sigmoid;
  const T best = HasNan(x, row.n) ? static_cast<T>(NAN) : MaximumOf(x, row.n);
  if (best == kHidden<T>) {
    Fill(T{0}, row.n, x);
    return kHidden<T>;
  }
  if (sigmoid) {
    SigmoidRow(T{1}, static_cast<T>(p.normalizer_number), row.n, x);
    return 0;
  }
  if (best != best || (best == static_cast<T>(HUGE_VAL) && p.normalizer != NormalizerKind::argmax)) {
    for (int64_t j = 0; j < row.n; ++j) x[j] = x[j] == kHidden<T> ? T{0} : static_cast<T>(NAN);
    return static_cast<T>(NAN);
  }
  switch (p.normalizer) {
    case NormalizerKind::entmax:
    case NormalizerKind::adaptive_entmax:
      return EntmaxRow(p, row, best, x);
    case NormalizerKind::argmax:
      BestShares(row, best, x);
      return best;
    case NormalizerKind::sample:
    case NormalizerKind::gumbel: {
      const T log_sum_exp = LogSumExp(row, best, x);
      DrawnKey(row, best, x);
      return log_sum_exp;
    }
    case NormalizerKind::chain:
      return chain_marginals<T>(p.normalizer_arguments[0].of(row.head), row.n, x, row.spare);
    default: {
      const T sum = Exponentials<false>(T{1}, best, row.n, x),
              log_sum_exp = best + static_cast<T>(std::log(sum));
      Scale(ShareOf(log_sum_exp, sink_of(p, row.head)) / sum, row.n, x);
      return log_sum_exp;
    }
  }
}

/// The gradient of every normaliser whose slopes are known: dS = factor · slope · (dP - D), where D is the
/// mean of dP under the slopes, divided by `total`. Returns D.
template <class T>
HWY_INLINE T CenteredGradient(int64_t n, const T* slope, T total, T factor, T* gradient) {
  T mean{0};
  for (int64_t j = 0; j < n; ++j) mean += slope[j] * gradient[j];
  if (total != T{0}) mean /= total;
  for (int64_t j = 0; j < n; ++j) gradient[j] = factor * slope[j] * (gradient[j] - mean);
  return mean;
}

// The derivative of Σ dP·P by the argument "sparsity", from the slopes g = P^(2 - alpha) in row.spare:
// proposition 2 of Correia et al. 2019. A number that is added to all dP changes nothing, because weights sum
// to 1. So their mean under the slopes is taken out first. Otherwise, for an alpha near 1, the factor 1 /
// (alpha - 1)² would make the rounding of these sums larger than the result.
template <class T>
HWY_NOINLINE double SparsityGradient(double alpha, const WholeRow<T>& row, const T* weights,
                                     const T* gradient) {
  double slopes = 0, mean = 0;
  for (int64_t j = 0; j < row.n; ++j) {
    slopes += static_cast<double>(row.spare[j]);
    mean += static_cast<double>(row.spare[j]) * static_cast<double>(gradient[j]);
  }
  mean /= slopes;
  double by_weight = 0, by_entropy = 0;
  for (int64_t j = 0; j < row.n; ++j) {
    const double w = static_cast<double>(weights[j]), d = static_cast<double>(gradient[j]) - mean;
    if (w == 0) continue;
    by_weight += d * w;
    by_entropy -= d * w * std::log(w);
  }
  const double steep = 1.0 / (alpha - 1.0), sigmoid = (alpha - 1.01) / 0.99;
  return steep * (steep * by_weight + by_entropy) * 0.99 * sigmoid * (1.0 - sigmoid);
}

template <class T>
HWY_NOINLINE T EntmaxGradient(const Problem<T>& p, const WholeRow<T>& row, const T* weights, T* gradient,
                              T* d_sparsity) {
  const double alpha = EntmaxAlpha(p, row.head);
  T total{0};
  for (int64_t j = 0; j < row.n; ++j) {
    const T w = weights[j];
    const T slope = w == T{0}      ? T{0}
                    : alpha == 2.0 ? T{1}
                    : alpha == 1.5 ? static_cast<T>(std::sqrt(w))
                                   : static_cast<T>(std::pow(w, static_cast<T>(2.0 - alpha)));
    row.spare[j] = slope;
    total += slope;
  }
  if (p.normalizer == NormalizerKind::adaptive_entmax && d_sparsity)
    *d_sparsity += static_cast<T>(SparsityGradient(alpha, row, weights, gradient));
  return CenteredGradient(row.n, row.spare, total, T{1}, gradient);
}

/// The inputs of a row's gradient.
template <class T>
struct RowGradient {
  const T* scores;   ///< hidden ones -inf
  const T* weights;  ///< as SolveRow made them
  T log_sum_exp;     ///< as SolveRow returned it
  T advantage;       ///< sample
  T* d_normalizer;   ///< of the row's head: added to; null: not wanted
};

/// `gradient` holds the derivative by the weights, 0 where hidden, and then the derivative by the scores.
/// Returns D where the normaliser has one.
template <class T>
HWY_INLINE T NormalizerGradient(const Problem<T>& p, const WholeRow<T>& row, const RowGradient<T>& g,
                                T* gradient) {
  if (g.log_sum_exp != g.log_sum_exp) {  // a NaN among the scores makes the gradient NaN
    for (int64_t j = 0; j < row.n; ++j) gradient[j] = g.scores[j] == kHidden<T> ? T{0} : g.log_sum_exp;
    if (g.d_normalizer) Fill(g.log_sum_exp, p.normalizer_elements, g.d_normalizer);
    return g.log_sum_exp;
  }
  switch (p.normalizer) {
    case NormalizerKind::sigmoid:
      for (int64_t j = 0; j < row.n; ++j) gradient[j] *= g.weights[j] * (T{1} - g.weights[j]);
      return 0;
    case NormalizerKind::entmax:
    case NormalizerKind::adaptive_entmax:
      return EntmaxGradient(p, row, g.weights, gradient, g.d_normalizer);
    case NormalizerKind::argmax:
      Fill(T{0}, row.n, gradient);
      return 0;
    case NormalizerKind::sample:
      Copy(g.scores, row.n, row.spare);
      WeightsOf<true>(T{1}, g.log_sum_exp, T{1}, row.n, row.spare);
      for (int64_t j = 0; j < row.n; ++j) gradient[j] = g.advantage * (g.weights[j] - row.spare[j]);
      return 0;
    case NormalizerKind::gumbel: {
      const T inverse = static_cast<T>(1.0 / p.normalizer_number);
      const T top = MaximumOf(g.scores, row.n);
      for (int64_t j = 0; j < row.n; ++j) row.spare[j] = ((g.scores[j] - top) + row.noise[j]) * inverse;
      const T best = MaximumOf(row.spare, row.n);
      const T total = best == kHidden<T> ? T{0} : Exponentials<false>(T{1}, best, row.n, row.spare);
      if (total == T{0}) return 0;
      Scale(T{1} / total, row.n, row.spare);
      return CenteredGradient(row.n, row.spare, T{1}, inverse, gradient);
    }
    case NormalizerKind::chain:
      chain_gradient<T>(p.normalizer_arguments[0].of(row.head), row.n, g.scores, gradient, g.d_normalizer,
                        row.spare);
      return 0;
    default:
      return CenteredGradient(row.n, g.weights, T{1}, T{1}, gradient);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif

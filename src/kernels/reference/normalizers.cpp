#include "kernels/reference/normalizers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace fovea::kernels {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
using Numbers = std::vector<double>;

// The maximum; NaN where one number is NaN.
double largest(const Numbers& x) {
  double best = -infinity;
  for (const double value : x) {
    if (!(value <= best)) best = value;
    if (std::isnan(best)) return best;
  }
  return best;
}

double log_sum_exp(const Numbers& x) {
  const double best = largest(x);
  double sum = 0.0;
  for (const double value : x) sum += std::exp(value - best);
  return best + std::log(sum);
}

double log_add(double a, double b) {
  const double best = std::max(a, b);
  return best == -infinity ? best : best + std::log1p(std::exp(-std::abs(a - b)));
}

double entmax_weight(double alpha, double score, double tau) {
  return std::pow(std::max((alpha - 1.0) * score - tau, 0.0), 1.0 / (alpha - 1.0));
}

// The threshold tau for scores whose largest is 0: beside scores of 1e10, a threshold of their size would
// have errors of 1e-6. Found by bisection, since the sum falls from at least 1 at tau = -1 to 0 at tau = 0.
double entmax_threshold(double alpha, const Numbers& scores) {
  double low = -1.0, high = 0.0;
  for (int round = 0; round < 200; ++round) {
    const double tau = 0.5 * (low + high);
    if (tau == low || tau == high) break;  // no number lies between them: further rounds would change nothing
    double sum = 0.0;
    for (const double s : scores) sum += entmax_weight(alpha, s, tau);
    (sum >= 1.0 ? low : high) = tau;
  }
  return low;
}

double alpha_of(const RowNormalizer& normalizer) {
  if (normalizer.kind != NormalizerKind::adaptive_entmax) return normalizer.number;
  return 1.01 + 0.99 / (1.0 + std::exp(-normalizer.arguments[0][0]));
}

// Σ dP_j · d p_j / d a, where alpha = 1.01 + 0.99 sigmoid(a). d p_j / d alpha is proposition 2 of Correia et
// al. 2019, with the slopes g = p^(2 - alpha) and h = -p ln p: (p - g / Σg) / (alpha - 1)² + (h - g Σh / Σg)
// / (alpha - 1).
double sparsity_gradient(double alpha, const Numbers& p, const Numbers& slope, const Numbers& gradient) {
  const auto entropy = [](double x) { return x > 0.0 ? -x * std::log(x) : 0.0; };
  double slopes = 0.0, entropies = 0.0, sum = 0.0;
  for (std::size_t j = 0; j < p.size(); ++j) {
    slopes += slope[j];
    entropies += entropy(p[j]);
  }
  for (std::size_t j = 0; j < p.size(); ++j) {
    const double share = slope[j] / slopes;
    sum += gradient[j] * ((p[j] - share) / ((alpha - 1.0) * (alpha - 1.0)) +
                          (entropy(p[j]) - share * entropies) / (alpha - 1.0));
  }
  const double sigmoid = (alpha - 1.01) / 0.99;
  return sum * 0.99 * sigmoid * (1.0 - sigmoid);
}

// The distribution of a chain of variables z_j in {0, 1}, by sums over all assignments. Some variables may be
// fixed: allowed[j][z] says whether z_j = z is possible.
struct Chain {
  const Numbers& potentials;
  const Numbers& transitions;
  using Allowed = std::vector<std::array<bool, 2>>;

  // One pass along the keys. result[j][z] is ln of the weight of everything up to key j with z_j = z
  // (`forward`), or of everything behind key j. The part that both z of a key share is taken out and added to
  // `shared`. It would grow with the keys, and marginals, which are differences, would lose as many bits.
  std::vector<std::array<double, 2>> messages(const Allowed& allowed, bool forward, double& shared) const {
    const std::size_t n = potentials.size();
    std::vector<std::array<double, 2>> result(n, {-infinity, -infinity});
    std::size_t last = n;
    for (std::size_t step = 0; step < n; ++step) {
      const std::size_t j = forward ? step : n - 1 - step;
      if (potentials[j] == -infinity) continue;
      for (std::size_t z = 0; z < 2; ++z) {
        double sum = 0.0;
        if (last < n) {
          std::array<double, 2> ways{};
          for (std::size_t y = 0; y < 2; ++y)
            ways[y] = result[last][y] +
                      (forward ? transitions[2 * y + z] : own(allowed, last, y) + transitions[2 * z + y]);
          sum = log_add(ways[0], ways[1]);
        }
        result[j][z] = forward ? sum + own(allowed, j, z) : sum;
      }
      const double most = std::max(result[j][0], result[j][1]);
      for (double& message : result[j]) message -= most;
      shared += most;
      last = j;
    }
    return result;
  }
  double own(const Allowed& allowed, std::size_t j, std::size_t z) const {
    return !allowed[j][z] ? -infinity : z == 1 ? potentials[j] : 0.0;
  }
  // ln of the weight of all assignments that `allowed` permits.
  double log_weight(const Allowed& allowed) const {
    double shared = 0.0;
    const auto upto = messages(allowed, true, shared);
    for (std::size_t j = potentials.size(); j-- > 0;) {
      if (potentials[j] == -infinity) continue;
      return shared + log_add(upto[j][0], upto[j][1]);
    }
    return -infinity;
  }
  // p(z_j = 1) among the assignments that `allowed` permits.
  Numbers marginals(const Allowed& allowed) const {
    double shared = 0.0;
    const auto upto = messages(allowed, true, shared), behind = messages(allowed, false, shared);
    Numbers p(potentials.size());
    for (std::size_t j = 0; j < p.size(); ++j) {
      if (potentials[j] == -infinity) continue;
      const double one = upto[j][1] + behind[j][1];
      p[j] = std::exp(one - log_add(upto[j][0] + behind[j][0], one));
    }
    return p;
  }
  // p(z_i = a, z_j = b) at [2a + b], for neighbours i and j.
  std::array<double, 4> pair(std::size_t i, std::size_t j) const {
    double shared = 0.0;
    const auto upto = messages(free(), true, shared), behind = messages(free(), false, shared);
    Numbers ways(4);
    for (std::size_t n = 0; n < 4; ++n)
      ways[n] = upto[i][n / 2] + transitions[n] + own(free(), j, n % 2) + behind[j][n % 2];
    const double total = log_sum_exp(ways);
    std::array<double, 4> p{};
    for (std::size_t n = 0; n < 4; ++n) p[n] = std::exp(ways[n] - total);
    return p;
  }
  Allowed free() const { return Allowed(potentials.size(), {true, true}); }
};

// d p_j / d potential_i = p_i (p(j | i = 1) - p_j). The derivative by a transition has the same form, with
// the probability that two neighbours take it.
void chain_gradient(const Chain& chain, const Numbers& p, Numbers& gradient, double* d_transitions) {
  const auto centered = [&](double weight, const Chain::Allowed& held, const Numbers& d) {
    const Numbers given = chain.marginals(held);
    double sum = 0.0;
    for (std::size_t j = 0; j < p.size(); ++j) sum += d[j] * (given[j] - p[j]);
    return weight * sum;
  };
  Numbers result(p.size());
  std::size_t last = p.size();
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (chain.potentials[i] == -infinity) continue;
    Chain::Allowed one = chain.free();
    one[i][0] = false;
    result[i] = centered(p[i], one, gradient);
    const auto taken = last < p.size() ? chain.pair(last, i) : std::array<double, 4>{};
    for (std::size_t n = 0; last < p.size() && n < 4; ++n) {
      Chain::Allowed pair = chain.free();
      pair[last][1 - n / 2] = false;
      pair[i][1 - n % 2] = false;
      d_transitions[n] += centered(taken[n], pair, gradient);
    }
    last = i;
  }
  gradient = result;
}

Numbers softmax(const Numbers& x, double total) {
  Numbers p;
  for (const double value : x) p.push_back(std::exp(value - total));
  return p;
}

// c·ln(n)·s for each of n scores s; a score of -infinity still hides.
Numbers scaled_by_count(double scale, const Numbers& scores) {
  Numbers result = scores;
  const double factor = scale * std::log(static_cast<double>(scores.size()));
  for (double& s : result)
    if (s != -infinity) s *= factor;
  return result;
}

RowNormalizer without_count(RowNormalizer normalizer) {
  normalizer.count_scale.reset();
  return normalizer;
}

}  // namespace

double solve(const RowNormalizer& normalizer, const Numbers& scores, const Numbers& noise, Numbers& weights) {
  if (normalizer.count_scale && !scores.empty())
    return solve(without_count(normalizer), scaled_by_count(*normalizer.count_scale, scores), noise, weights);
  weights.assign(scores.size(), 0.0);
  const double best = largest(scores);
  // A row of only -infinity is as good as hidden by a mask: 0/0 would make it NaN.
  if (best == -infinity) return -infinity;
  if (normalizer.kind == NormalizerKind::sigmoid) {
    for (std::size_t j = 0; j < scores.size(); ++j)
      weights[j] = scores[j] == -infinity ? 0.0 : 1.0 / (1.0 + std::exp(-(scores[j] + normalizer.number)));
    return 0.0;
  }
  if (std::isnan(best) || (best == infinity && normalizer.kind != NormalizerKind::argmax)) {
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (scores[j] != -infinity) weights[j] = std::numeric_limits<double>::quiet_NaN();
    return std::numeric_limits<double>::quiet_NaN();
  }
  Numbers contest = scores;
  switch (normalizer.kind) {
    case NormalizerKind::entmax:
    case NormalizerKind::adaptive_entmax: {
      const double alpha = alpha_of(normalizer);
      for (double& s : contest) s -= best;
      const double tau = entmax_threshold(alpha, contest);
      for (std::size_t j = 0; j < scores.size(); ++j) weights[j] = entmax_weight(alpha, contest[j], tau);
      return (alpha - 1.0) * best + tau;
    }
    case NormalizerKind::sample:
    case NormalizerKind::gumbel:
      // The weight goes to one key, the first of several equal ones. It is (s - best) + noise, since a large
      // s would swallow the noise.
      for (std::size_t j = 0; j < scores.size(); ++j) contest[j] = (contest[j] - best) + noise[j];
      weights[static_cast<std::size_t>(std::max_element(contest.begin(), contest.end()) - contest.begin())] =
          1.0;
      return log_sum_exp(scores);
    case NormalizerKind::argmax: {
      const double winner = largest(contest);
      const auto count = static_cast<double>(std::count(contest.begin(), contest.end(), winner));
      for (std::size_t j = 0; j < scores.size(); ++j) weights[j] = contest[j] == winner ? 1.0 / count : 0.0;
      return best;
    }
    case NormalizerKind::chain: {
      const Chain chain{scores, normalizer.arguments[0]};
      weights = chain.marginals(chain.free());
      return chain.log_weight(chain.free());
    }
    default: {
      // The sink acts as a key with that score and value 0; the log-sum-exp leaves it out.
      const double total = log_sum_exp(scores);
      const Numbers& sink = normalizer.arguments[0];
      weights = softmax(scores, sink.empty() ? total : log_sum_exp({total, sink[0]}));
      return total;
    }
  }
}

double solve_gradient(const RowNormalizer& normalizer, const Numbers& scores, const Numbers& noise,
                      const Numbers& weights, double advantage, Numbers& gradient,
                      const NormalizerSums& sums) {
  if (largest(scores) == -infinity) {
    gradient.assign(gradient.size(), 0.0);
    return 0.0;
  }
  if (normalizer.count_scale) {
    const double mean =
        solve_gradient(without_count(normalizer), scaled_by_count(*normalizer.count_scale, scores), noise,
                       weights, advantage, gradient, sums);
    const double log_count = std::log(static_cast<double>(scores.size()));
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (scores[j] != -infinity) *sums.count_scale += gradient[j] * log_count * scores[j];
      gradient[j] *= *normalizer.count_scale * log_count;
    }
    return mean;
  }
  Numbers slope = weights;
  double factor = 1.0;
  switch (normalizer.kind) {
    case NormalizerKind::sigmoid:
      for (std::size_t j = 0; j < scores.size(); ++j) gradient[j] *= weights[j] * (1.0 - weights[j]);
      return 0.0;
    case NormalizerKind::argmax:
      gradient.assign(gradient.size(), 0.0);
      return 0.0;
    case NormalizerKind::sample: {
      const Numbers soft = softmax(scores, log_sum_exp(scores));
      for (std::size_t j = 0; j < scores.size(); ++j) gradient[j] = advantage * (weights[j] - soft[j]);
      return 0.0;
    }
    case NormalizerKind::chain:
      chain_gradient({scores, normalizer.arguments[0]}, weights, gradient, sums.arguments);
      return 0.0;
    case NormalizerKind::entmax:
    case NormalizerKind::adaptive_entmax: {
      const double alpha = alpha_of(normalizer);
      for (double& s : slope) s = s > 0.0 ? std::pow(s, 2.0 - alpha) : 0.0;
      if (normalizer.kind == NormalizerKind::adaptive_entmax)
        sums.arguments[0] += sparsity_gradient(alpha, weights, slope, gradient);
      break;
    }
    case NormalizerKind::gumbel:
      factor = 1.0 / normalizer.number;
      for (std::size_t j = 0; j < scores.size(); ++j)
        slope[j] = ((scores[j] - largest(scores)) + noise[j]) * factor;
      slope = softmax(slope, log_sum_exp(slope));
      break;
    default:
      break;
  }
  // dS = slope ∘ (dP - D), where D is the mean of dP under the slopes. With a sink the slopes of a softmax
  // sum to less than 1, and D is not divided by their sum.
  double mean = 0.0, total = 0.0;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    mean += slope[j] * gradient[j];
    total += slope[j];
  }
  if (normalizer.kind == NormalizerKind::entmax || normalizer.kind == NormalizerKind::adaptive_entmax)
    mean /= total;
  for (std::size_t j = 0; j < scores.size(); ++j) gradient[j] = factor * slope[j] * (gradient[j] - mean);
  return mean;
}

}  // namespace fovea::kernels

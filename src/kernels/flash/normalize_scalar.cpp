#include "kernels/flash/normalize_scalar.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fovea/attention/sample.h"

namespace fovea::kernels {
namespace {

template <class T>
constexpr T outside = -std::numeric_limits<T>::infinity();

// ln(e^a + e^b)
template <class T>
T log_add(T a, T b) {
  const T most = std::max(a, b);
  return most + std::log1p(std::exp(-std::abs(a - b)));
}

template <class T>
T sigmoid(T x) {
  return T{1} / (T{1} + std::exp(-x));
}

// Messages are log odds r = ln(m(1) / m(0)). A step to the next key turns r into ln(e^t01 + e^(r + t11)) -
// ln(e^t00 + e^(r + t10)). A step back does the same with t01 and t10 exchanged.
template <class T>
struct Step {
  T stay0, rise, fall, stay1;  // t00, t01, t10, t11
  explicit Step(const T* t) : stay0(t[0]), rise(t[1]), fall(t[2]), stay1(t[3]) {}
  T forward(T odds) const { return step(odds, rise, fall); }
  T backward(T odds) const { return step(odds, fall, rise); }
  // Large odds are taken out of both logarithms: in their difference the transitions would be lost.
  T step(T odds, T up, T down) const {
    return odds > T{0} ? log_add(up - odds, stay1) - log_add(stay0 - odds, down)
                       : log_add(up, odds + stay1) - log_add(stay0, odds + down);
  }
};

// Computes the odds of everything up to and including each key (`before`), and of everything behind it
// (`behind`; may be null). Returns ln Z.
template <class T>
T messages(const T* transitions, std::int64_t count, const T* potentials, T* before, T* behind) {
  const Step<T> step(transitions);
  std::int64_t last = -1;
  T log_z{0};
  for (std::int64_t j = 0; j < count; ++j) {
    if (potentials[j] == outside<T>) continue;
    if (last < 0) {
      before[j] = potentials[j];
    } else {
      before[j] = potentials[j] + step.forward(before[last]);
      log_z += log_add(step.stay0, before[last] + step.fall);
    }
    last = j;
  }
  if (last < 0) return outside<T>;
  log_z += log_add(T{0}, before[last]);
  if (!behind) return log_z;
  behind[last] = 0;
  for (std::int64_t j = last, next = last; j-- > 0;) {
    if (potentials[j] == outside<T>) continue;
    behind[j] = step.backward(potentials[next] + behind[next]);
    next = j;
  }
  return log_z;
}

}  // namespace

template <class T>
void gumbel_row(std::uint64_t seed, const Site& first, std::int64_t count, T* to) {
  const std::int64_t begin = first.key, end = first.key + count;
  for (std::int64_t j = begin; j < end;) {
    const auto noise = gumbel_noise(seed, first.batch, first.head, first.query, j / 4);
    const std::int64_t stop = std::min(end, (j / 4 + 1) * 4);
    for (; j < stop; ++j) to[j - begin] = static_cast<T>(noise[static_cast<std::size_t>(j % 4)]);
  }
}

template <class T>
T chain_marginals(const T* transitions, std::int64_t count, T* potentials, T* spare) {
  const Step<T> step(transitions);
  const T log_z = messages<T>(transitions, count, potentials, spare, nullptr);
  T behind{0};
  for (std::int64_t j = count; j-- > 0;) {
    if (potentials[j] == outside<T>) {
      potentials[j] = 0;
      continue;
    }
    const T ahead = potentials[j] + behind;
    potentials[j] = sigmoid(spare[j] + behind);
    behind = step.backward(ahead);
  }
  return log_z;
}

template <class T>
void chain_gradient(const T* transitions, std::int64_t count, const T* potentials, T* d_marginals,
                    T* d_transitions, T* spare) {
  const Step<T> step(transitions);
  T *before = spare, *behind = spare + count, *d_behind = spare + 2 * count;
  if (messages(transitions, count, potentials, before, behind) == outside<T>) return;
  T sums[4] = {};  // by t00, t01, t10, t11
  // A marginal is sigmoid(before + behind). First along the keys, for the part of `behind`, which depends on
  // the later keys.
  std::int64_t last = -1;
  for (std::int64_t j = 0; j < count; ++j) {
    if (potentials[j] == outside<T>) continue;
    const T p = sigmoid(before[j] + behind[j]);
    d_marginals[j] *= p * (T{1} - p);
    d_behind[j] = d_marginals[j];
    if (last >= 0) {
      const T ahead = potentials[j] + behind[j], d = d_behind[last];
      const T up = sigmoid(ahead + step.stay1 - step.fall), down = sigmoid(ahead + step.rise - step.stay0);
      sums[0] -= d * (T{1} - down);
      sums[1] -= d * down;
      sums[2] += d * (T{1} - up);
      sums[3] += d * up;
      d_behind[j] += d * (up - down);
    }
    last = j;
  }
  // Then back, for the part of `before`, which depends on the earlier keys. A potential is part of its own
  // `before`, and of the `behind` of the key before it. The latter part is d_behind less the marginal's own
  // share.
  std::int64_t next = -1;
  T d_next{0};
  for (std::int64_t j = count; j-- > 0;) {
    if (potentials[j] == outside<T>) {
      d_marginals[j] = 0;
      continue;
    }
    T d_before = d_marginals[j];
    if (next >= 0) {
      const T up = sigmoid(before[j] + step.stay1 - step.rise),
              down = sigmoid(before[j] + step.fall - step.stay0);
      sums[0] -= d_next * (T{1} - down);
      sums[2] -= d_next * down;
      sums[1] += d_next * (T{1} - up);
      sums[3] += d_next * up;
      d_before += d_next * (up - down);
    }
    d_marginals[j] = d_before + (d_behind[j] - d_marginals[j]);
    d_next = d_before;
    next = j;
  }
  for (int n = 0; d_transitions && n < 4; ++n) d_transitions[n] += sums[n];
}

#define FOVEA_INSTANTIATE(T)                                                 \
  template void gumbel_row<T>(std::uint64_t, const Site&, std::int64_t, T*); \
  template T chain_marginals<T>(const T*, std::int64_t, T*, T*);             \
  template void chain_gradient<T>(const T*, std::int64_t, const T*, T*, T*, T*);
FOVEA_INSTANTIATE(float)
FOVEA_INSTANTIATE(double)
#undef FOVEA_INSTANTIATE

}  // namespace fovea::kernels

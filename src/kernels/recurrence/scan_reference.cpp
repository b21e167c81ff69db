// The selective scan in double, from its definition: one sequence and one channel at a time, all states kept.
#include <cmath>
#include <vector>

#include "kernels/recurrence/scan.h"
#include "kernels/reference/reference.h"

namespace fovea::kernels {
namespace {

using Vector = std::vector<double>;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Gradients that channels or sequences share, in double.
struct Shared {
  Vector b, c;  // [tokens of the sequence][groups][state_dim]
};

template <class T>
class Channel {
 public:
  Channel(const ScanProblem<T>& p, std::int64_t n, std::int64_t c)
      : p_(p),
        n_(n),
        c_(c),
        group_(c / p.group_channels()),
        sequence_(p.sequences[n]),
        states_(sequence_.count + 1) {
    offset_ = (n * p.channels + c) * p.state_dim;
    Vector state(at(p.state_dim));
    const T* const initial = p.initial_state.of(n, p.state_size());
    for (std::int64_t i = 0; initial && i < p.state_dim; ++i)
      state[at(i)] = static_cast<double>(initial[c * p.state_dim + i]);
    states_[0] = state;
    for (std::int64_t t = 0; t < sequence_.count; ++t) {
      for (std::int64_t i = 0; i < p.state_dim; ++i)
        state[at(i)] = decay(t, i) * state[at(i)] + step(t) * b(t, i) * read(p.x, t);
      states_[at(t + 1)] = state;
    }
  }

  void forward(const ScanResults<T>& results) const {
    for (std::int64_t t = 0; results.output.data && t < sequence_.count; ++t) {
      const double z = p_.z.data ? read(p_.z, t) : 0.0;
      write(ungated(t) * (p_.z.data ? z * sigmoid(z) : 1.0), results.output, t);
    }
    T* const final = results.final_state.of(n_, p_.state_size());
    for (std::int64_t i = 0; final && i < p_.state_dim; ++i)
      final[c_ * p_.state_dim + i] = static_cast<T>(states_.back()[at(i)]);
  }

  // d_a [state_dim], d_d and d_bias are sums over sequences, `shared` over channels.
  void backward(const ScanGradientProblem<T>& g, double* d_a, double& d_d, double& d_bias,
                Shared& shared) const {
    Vector derivative(at(p_.state_dim));
    for (std::int64_t i = 0; g.d_final_state && i < p_.state_dim; ++i)
      derivative[at(i)] = static_cast<double>(g.d_final_state[offset_ + i]);
    for (std::int64_t t = sequence_.count; t-- > 0;) {
      double dy = g.d_output.data ? read(g.d_output, t) : 0.0;
      if (p_.z.data) {
        const double z = read(p_.z, t), share = sigmoid(z);
        if (g.z.data) write(dy * ungated(t) * share * (1.0 + z * (1.0 - share)), g.z, t);
        dy *= z * share;
      }
      const double x = read(p_.x, t), delta = step(t);
      double d_x = skip() * dy, d_step = 0;
      d_d += x * dy;
      for (std::int64_t i = 0; i < p_.state_dim; ++i) {
        double& element = derivative[at(i)];
        const std::size_t pair = at((t * p_.groups + group_) * p_.state_dim + i);
        element += c(t, i) * dy;
        shared.c[pair] += states_[at(t + 1)][at(i)] * dy;
        shared.b[pair] += element * delta * x;
        d_x += element * delta * b(t, i);
        const double through_decay = element * decay(t, i) * states_[at(t)][at(i)];
        d_step += element * b(t, i) * x + through_decay * rate(i);
        d_a[i] += through_decay * delta;
        element *= decay(t, i);
      }
      const double d_delta = p_.softplus ? d_step * sigmoid(raw(t)) : d_step;
      d_bias += d_delta;
      if (g.x.data) write(d_x, g.x, t);
      if (g.delta.data) write(d_delta, g.delta, t);
    }
    for (std::int64_t i = 0; g.initial_state && i < p_.state_dim; ++i)
      g.initial_state[offset_ + i] = static_cast<T>(derivative[at(i)]);
  }

 private:
  double read(const StoredRows<const std::byte>& rows, std::int64_t t) const { return element(rows, t, c_); }
  double element(const StoredRows<const std::byte>& rows, std::int64_t t, std::int64_t first) const {
    T x;
    read_stored(rows, sequence_.entry, sequence_.row(t), first, 1, &x);
    return static_cast<double>(x);
  }
  void write(double value, const StoredRows<std::byte>& rows, std::int64_t t) const {
    const T x = static_cast<T>(value);
    write_stored(&x, c_, 1, rows, sequence_.entry, sequence_.row(t));
  }
  double b(std::int64_t t, std::int64_t i) const { return element(p_.b, t, group_ * p_.b_group + i); }
  double c(std::int64_t t, std::int64_t i) const { return element(p_.c, t, group_ * p_.c_group + i); }
  double rate(std::int64_t i) const { return static_cast<double>(p_.a[c_ * p_.state_dim + i]); }
  double skip() const { return p_.d ? static_cast<double>(p_.d[c_]) : 0.0; }
  double raw(std::int64_t t) const {
    return read(p_.delta, t) + (p_.delta_bias ? static_cast<double>(p_.delta_bias[c_]) : 0.0);
  }
  double step(std::int64_t t) const {
    const double x = raw(t);
    return !p_.softplus ? x : x > 30 ? x : std::log1p(std::exp(x));  // beyond 30 the two are one double
  }
  double decay(std::int64_t t, std::int64_t i) const { return std::exp(step(t) * rate(i)); }
  double ungated(std::int64_t t) const {
    double sum = skip() * read(p_.x, t);
    for (std::int64_t i = 0; i < p_.state_dim; ++i) sum += c(t, i) * states_[at(t + 1)][at(i)];
    return sum;
  }

  const ScanProblem<T>& p_;
  std::int64_t n_, c_, group_, offset_ = 0;
  const TokenSequence& sequence_;
  std::vector<Vector> states_;  // before every token, and behind the last
};

template <class T>
void forward(const ScanProblem<T>& p, const ScanResults<T>& results, Executor& executor, std::byte*) {
  executor.parallel_for(p.sequence_count * p.channels, [&](std::int64_t unit, int) {
    Channel<T>(p, unit / p.channels, unit % p.channels).forward(results);
  });
}

template <class T>
void write_pairs(const ScanProblem<T>& p, const TokenSequence& sequence, const Vector& sums,
                 const StoredRows<std::byte>& to, std::int64_t group_stride) {
  for (std::int64_t i = 0; to.data && i < sequence.count * p.groups * p.state_dim; ++i) {
    const std::int64_t token = i / (p.groups * p.state_dim), group = i / p.state_dim % p.groups;
    const T x = static_cast<T>(sums[at(i)]);
    write_stored(&x, group * group_stride + i % p.state_dim, 1, to, sequence.entry, sequence.row(token));
  }
}

template <class T>
void backward(const ScanProblem<T>& p, const ScanGradientProblem<T>& g, Executor&, std::byte*) {
  Vector a(at(p.channels * p.state_dim)), d(at(p.channels)), bias(at(p.channels));
  for (std::int64_t n = 0; n < p.sequence_count; ++n) {
    const TokenSequence& sequence = p.sequences[n];
    const Vector zeros(at(sequence.count * p.groups * p.state_dim));
    Shared shared{zeros, zeros};
    for (std::int64_t c = 0; c < p.channels; ++c)
      Channel<T>(p, n, c).backward(g, a.data() + c * p.state_dim, d[at(c)], bias[at(c)], shared);
    write_pairs(p, sequence, shared.b, g.b, g.b_group);
    write_pairs(p, sequence, shared.c, g.c, g.c_group);
  }
  const auto put = [](const Vector& from, T* to) {
    for (std::size_t i = 0; to && i < from.size(); ++i) to[i] = static_cast<T>(from[i]);
  };
  put(a, g.a);
  put(d, g.d);
  put(bias, g.delta_bias);
}

template <class T>
ScanCode<T> code() {
  const auto no_bytes = [](const ScanProblem<T>&, int) { return std::size_t{0}; };
  return {no_bytes, forward<T>, no_bytes, backward<T>};
}

}  // namespace

ScanCandidate scan_reference_candidate() {
  return {.name = "reference", .isa = reference_candidate().isa, .f32 = code<float>(), .f64 = code<double>()};
}

}  // namespace fovea::kernels

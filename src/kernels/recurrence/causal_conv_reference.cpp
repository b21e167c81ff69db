// The convolution in double, from its definition: one sequence and one channel at a time, with the state and
// the inputs in one list.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/recurrence/causal_conv.h"
#include "kernels/reference/reference.h"

namespace fovea::kernels {
namespace {

using Vector = std::vector<double>;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

template <class T>
class Channel {
 public:
  Channel(const ConvProblem<T>& p, std::int64_t n, std::int64_t c)
      : p_(p), n_(n), c_(c), sequence_(p.sequences[n]), before_(p.width - 1) {
    const T* const state = p.initial_state.of(n, p.state_size());
    for (std::int64_t i = 0; i < before_; ++i)
      inputs_.push_back(state ? static_cast<double>(state[i * p.channels + c]) : 0.0);
    for (std::int64_t t = 0; t < sequence_.count; ++t) inputs_.push_back(element(p.x, t));
    for (std::int64_t j = 0; j < p.width; ++j)
      weight_.push_back(static_cast<double>(p.weight[c * p.width + j]));
  }

  void forward(const ConvResults<T>& results) const {
    for (std::int64_t t = 0; results.output.data && t < sequence_.count; ++t) {
      const double sum = sum_of(t);
      const T y = static_cast<T>(p_.silu ? sum * sigmoid(sum) : sum);
      write_stored(&y, c_, 1, results.output, sequence_.entry, sequence_.row(t));
    }
    T* const state = results.final_state.of(n_, p_.state_size());
    for (std::int64_t i = 0; state && i < before_; ++i)
      state[i * p_.channels + c_] = static_cast<T>(inputs_[at(sequence_.count + i)]);
  }

  // Adds to d_weight [width] and d_bias, which sequences share.
  void backward(const ConvGradientProblem<T>& g, double* d_weight, double& d_bias) const {
    Vector d_inputs(inputs_.size());
    for (std::int64_t i = 0; g.d_final_state && i < before_; ++i)
      d_inputs[at(sequence_.count + i)] += static_cast<double>(g.d_final_state[state_index(i)]);
    for (std::int64_t t = 0; g.d_output.data && t < sequence_.count; ++t) {
      const double sum = sum_of(t), share = sigmoid(sum);
      const double derivative =
          element(g.d_output, t) * (p_.silu ? share * (1.0 + sum * (1.0 - share)) : 1.0);
      for (std::int64_t j = 0; j < p_.width; ++j) {
        d_inputs[at(t + j)] += weight_[at(j)] * derivative;
        d_weight[j] += inputs_[at(t + j)] * derivative;
      }
      d_bias += derivative;
    }
    for (std::int64_t t = 0; g.x.data && t < sequence_.count; ++t) {
      const T d_x = static_cast<T>(d_inputs[at(before_ + t)]);
      write_stored(&d_x, c_, 1, g.x, sequence_.entry, sequence_.row(t));
    }
    for (std::int64_t i = 0; g.initial_state && i < before_; ++i)
      g.initial_state[state_index(i)] = static_cast<T>(d_inputs[at(i)]);
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::int64_t state_index(std::int64_t i) const { return (n_ * before_ + i) * p_.channels + c_; }
  double element(const StoredRows<const std::byte>& rows, std::int64_t t) const {
    T x;
    read_stored(rows, sequence_.entry, sequence_.row(t), c_, 1, &x);
    return static_cast<double>(x);
  }
  double sum_of(std::int64_t t) const {
    double sum = p_.bias ? static_cast<double>(p_.bias[c_]) : 0.0;
    for (std::int64_t j = 0; j < p_.width; ++j) sum += weight_[at(j)] * inputs_[at(t + j)];
    return sum;
  }

  const ConvProblem<T>& p_;
  std::int64_t n_, c_;
  const TokenSequence& sequence_;
  std::int64_t before_;
  Vector inputs_, weight_;  // [width - 1 + tokens], [width]
};

template <class T>
void forward(const ConvProblem<T>& p, const ConvResults<T>& results, Executor&, std::byte*) {
  for (std::int64_t unit = 0; unit < p.sequence_count * p.channels; ++unit)
    Channel<T>(p, unit / p.channels, unit % p.channels).forward(results);
}

template <class T>
void backward(const ConvProblem<T>& p, const ConvGradientProblem<T>& g, Executor&, std::byte*) {
  for (std::int64_t c = 0; c < p.channels; ++c) {
    Vector d_weight(static_cast<std::size_t>(p.width));
    double d_bias = 0;
    for (std::int64_t n = 0; n < p.sequence_count; ++n)
      Channel<T>(p, n, c).backward(g, d_weight.data(), d_bias);
    for (std::int64_t j = 0; g.weight && j < p.width; ++j)
      g.weight[c * p.width + j] = static_cast<T>(d_weight[static_cast<std::size_t>(j)]);
    if (g.bias) g.bias[c] = static_cast<T>(d_bias);
  }
}

template <class T>
ConvCode<T> code() {
  const auto no_bytes = [](const ConvProblem<T>&, int) { return std::size_t{0}; };
  return {no_bytes, forward<T>, no_bytes, backward<T>};
}

}  // namespace

ConvCandidate conv_reference_candidate() {
  return {.name = "reference", .isa = reference_candidate().isa, .f32 = code<float>(), .f64 = code<double>()};
}

}  // namespace fovea::kernels

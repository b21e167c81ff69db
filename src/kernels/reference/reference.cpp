#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/dropout.h"

namespace fovea::kernels {
namespace {

template <class T>
double score(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t kv, std::int64_t i,
             std::int64_t j) {
  const T *q = p.query.row(b, h, i), *k = p.key.row(b, kv, j);
  double sum = 0.0;
  for (std::int64_t d = 0; d < p.score_dim; ++d) {
    const auto qd = static_cast<double>(q[d]), kd = static_cast<double>(k[d]);
    sum +=
        p.score == ScoreKind::dot ? qd * kd : static_cast<double>(p.additive_vector[d]) * std::tanh(qd + kd);
  }
  return sum * p.scale;
}

// One query's row: the keys it sees, their weights before dropout, what dropout makes of each, and the
// log-sum-exp.
struct Row {
  std::vector<std::int64_t> keys;
  std::vector<double> weights, kept;
  double log_sum_exp = -std::numeric_limits<double>::infinity();
};

template <class T>
Row row_of(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t kv = h / (p.query_heads / p.kv_heads), position = i + p.query_offset;
  const QueryBlock block{b, position, position + 1, p.key_len, p.key_lengths};
  const DropoutDecision decision = DropoutDecision::for_rate(p.dropout_rate);
  Row row;
  double best = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < p.key_len; ++j) {
    if (!p.mask->node().allows({b, h, position, j}, block)) continue;  // a hidden key is not even read
    row.keys.push_back(j);
    row.weights.push_back(score(p, b, h, kv, i, j));
    if (!(row.weights.back() <= best)) best = row.weights.back();
  }
  // Scores of -infinity alone hide as a mask does: 0/0 would make NaN of them.
  if (best == -std::numeric_limits<double>::infinity()) return {};
  double sum = 0.0;
  for (const double s : row.weights) sum += std::exp(s - best);
  row.log_sum_exp = best + std::log(sum);
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    row.weights[n] = std::exp(row.weights[n] - row.log_sum_exp);
    const auto bytes = dropout_bytes(p.dropout_seed, b, h, position, row.keys[n] / 16);
    row.kept.push_back(bytes[row.keys[n] % 16] < decision.keep_threshold ? decision.scale : 0.0);
  }
  return row;
}

template <class T>
void write_weights(const Problem<T>& p, const ForwardOutputs<T>& out, const Row& row, std::int64_t b,
                   std::int64_t h, std::int64_t i) {
  const auto heads = out.weight_heads;
  for (std::int64_t slot = 0;
       slot < (heads.empty() ? p.query_heads : static_cast<std::int64_t>(heads.size())); ++slot) {
    if ((heads.empty() ? slot : heads[slot]) != h) continue;
    T* to = out.weights.row(b, slot, i);
    std::fill_n(to, p.key_len, T{0});
    for (std::size_t n = 0; n < row.keys.size(); ++n) to[row.keys[n]] = static_cast<T>(row.weights[n]);
  }
}

template <class T>
void forward(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor, std::span<std::byte>) {
  const std::int64_t rows = p.batch * p.query_heads * p.query_len;
  executor.parallel_for(rows, [&](std::int64_t unit, int) {
    const std::int64_t i = unit % p.query_len, h = unit / p.query_len % p.query_heads,
                       b = unit / p.query_len / p.query_heads;
    const std::int64_t kv = h / (p.query_heads / p.kv_heads);
    const Row row = row_of(p, b, h, i);
    std::vector<double> sum(static_cast<std::size_t>(p.value_dim));
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const T* v = p.value.row(b, kv, row.keys[n]);
      for (std::int64_t d = 0; d < p.value_dim; ++d)
        sum[d] += row.weights[n] * row.kept[n] * static_cast<double>(v[d]);
    }
    T* o = out.output.row(b, h, i);
    for (std::int64_t d = 0; d < p.value_dim; ++d) o[d] = static_cast<T>(sum[d]);
    if (out.log_sum_exp) out.log_sum_exp[unit] = static_cast<T>(row.log_sum_exp);
    if (out.weights.data) write_weights(p, out, row, b, h, i);
  });
}

// Gradients in double, [rows, dim] for one (batch, head).
struct Sums {
  std::vector<double> values;
  std::int64_t dim;
  Sums(std::int64_t rows, std::int64_t width) : values(static_cast<std::size_t>(rows * width)), dim(width) {}
  double* row(std::int64_t r) { return values.data() + r * dim; }
};

// dS times the derivative of the score, by query, key and v.
template <class T>
void score_gradient(const Problem<T>& p, const T* q, const T* k, double ds, double* dq, double* dk,
                    double* dv) {
  for (std::int64_t d = 0; d < p.score_dim; ++d) {
    const auto qd = static_cast<double>(q[d]), kd = static_cast<double>(k[d]);
    if (p.score == ScoreKind::dot) {
      dq[d] += ds * kd;
      dk[d] += ds * qd;
    } else {
      const double t = std::tanh(qd + kd),
                   through = ds * static_cast<double>(p.additive_vector[d]) * (1.0 - t * t);
      dq[d] += through;
      dk[d] += through;
      dv[d] += ds * t;
    }
  }
}

template <class T>
void store(const Operand<T*>& to, std::int64_t b, std::int64_t h, std::int64_t rows, Sums& from) {
  if (!to.data) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t d = 0; d < from.dim; ++d) to.row(b, h, r)[d] = static_cast<T>(from.row(r)[d]);
  }
}

// One (batch, kv head): serial, in a fixed order.
template <class T>
void backward_unit(const Problem<T>& p, const BackwardProblem<T>& g, std::int64_t b, std::int64_t kv,
                   std::vector<double>& d_vector) {
  const std::int64_t group = p.query_heads / p.kv_heads;
  Sums dk(p.key_len, p.score_dim), dv(p.key_len, p.value_dim);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    Sums dq(p.query_len, p.score_dim);
    for (std::int64_t i = 0; i < p.query_len; ++i) {
      const Row row = row_of(p, b, h, i);
      const T* d_output = g.d_output.row(b, h, i);
      std::vector<double> dp(row.keys.size());
      double mean = 0.0;  // D = Σ P·dP, which equals ⟨dO, O⟩
      for (std::size_t n = 0; n < row.keys.size(); ++n) {
        const T* v = p.value.row(b, kv, row.keys[n]);
        for (std::int64_t d = 0; d < p.value_dim; ++d) {
          dp[n] += row.kept[n] * static_cast<double>(d_output[d]) * static_cast<double>(v[d]);
          dv.row(row.keys[n])[d] += row.weights[n] * row.kept[n] * static_cast<double>(d_output[d]);
        }
        mean += row.weights[n] * dp[n];
      }
      for (std::size_t n = 0; n < row.keys.size(); ++n) {
        score_gradient(p, p.query.row(b, h, i), p.key.row(b, kv, row.keys[n]),
                       row.weights[n] * (dp[n] - mean) * p.scale, dq.row(i), dk.row(row.keys[n]),
                       d_vector.data());
      }
    }
    store(g.d_query, b, h, p.query_len, dq);
  }
  store(g.d_key, b, kv, p.key_len, dk);
  store(g.d_value, b, kv, p.key_len, dv);
}

template <class T>
void backward(const Problem<T>& p, const BackwardProblem<T>& g, Executor& executor, std::span<std::byte>) {
  const std::int64_t units = p.batch * p.kv_heads;
  std::vector<std::vector<double>> d_vector(static_cast<std::size_t>(units),
                                            std::vector<double>(static_cast<std::size_t>(p.score_dim)));
  executor.parallel_for(units, [&](std::int64_t unit, int) {
    backward_unit(p, g, unit / p.kv_heads, unit % p.kv_heads, d_vector[unit]);
  });
  if (!g.d_additive_vector) return;
  for (std::int64_t d = 0; d < p.score_dim; ++d) {
    double sum = 0.0;
    for (const auto& part : d_vector) sum += part[d];
    g.d_additive_vector[d] = static_cast<T>(sum);
  }
}

template <class T>
std::size_t no_workspace(const Problem<T>&, int) {
  return 0;
}

}  // namespace

const KernelTable& reference_kernel() {
  static const KernelTable table{
      .name = "reference",
      .isa = "reference",
      .forward_workspace = no_workspace<float>,
      .backward_workspace = no_workspace<float>,
      .forward_workspace_f64 = no_workspace<double>,
      .backward_workspace_f64 = no_workspace<double>,
      .forward = forward<float>,
      .backward = backward<float>,
      .forward_f64 = forward<double>,
      .backward_f64 = backward<double>,
      .supported = [] { return true; },
      .refuse = [](ScoreKind, DType, std::int64_t, std::int64_t) -> const char* { return nullptr; }};
  return table;
}

}  // namespace fovea::kernels

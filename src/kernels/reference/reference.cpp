#include "kernels/reference/reference.h"

#include <algorithm>
#include <array>
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

// The mods one site at a time, in double; what each of them got, for the derivatives.
template <class T>
struct Chain {
  std::array<double, max_mods + 1> scores{};  // before each mod, and after the last
  std::array<std::array<double, max_mod_arguments>, max_mods> arguments{};
};

template <class T>
std::int64_t index_of(const Problem<T>& p, const ProblemMod<T>& mod, const ModStrides& strides,
                      std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (mod.node->entries() > 0)
    return b * strides[0] + h * strides[1] + mod.node->entry(i + p.query_offset - j) * strides[3];
  return b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3];
}

// A tile of one score.
struct One {
  std::array<double, mod_lanes> score{}, result{}, d_result{}, d_score{};
  std::array<std::array<double, mod_lanes>, max_mod_arguments> arguments{}, d_arguments{};
  ModTile<double> tile;
  template <class T>
  One(const Problem<T>& p, const Chain<T>& chain, std::size_t n, std::int64_t b, std::int64_t h,
      std::int64_t i, std::int64_t j) {
    score.fill(chain.scores[n]);
    tile.rows = tile.count = 1;
    tile.stride = mod_lanes;
    tile.first = {static_cast<std::int32_t>(b), static_cast<std::int32_t>(h),
                  static_cast<std::int32_t>(i + p.query_offset), static_cast<std::int32_t>(j)};
    tile.scores = score.data();
    tile.result = result.data();
    for (std::size_t k = 0; k < p.mods.list[n].count; ++k) {
      arguments[k].fill(chain.arguments[n][k]);
      tile.arguments[k] = {arguments[k].data(), 0};
      tile.d_arguments[k] = d_arguments[k].data();
    }
    tile.d_result = d_result.data();
    tile.d_scores = d_score.data();
  }
};

template <class T>
Chain<T> chain_of(const Problem<T>& p, double score, std::int64_t b, std::int64_t h, std::int64_t i,
                  std::int64_t j) {
  Chain<T> chain;
  chain.scores[0] = score;
  for (std::size_t n = 0; n < p.mods.count; ++n) {
    const ProblemMod<T>& mod = p.mods.list[n];
    for (std::size_t k = 0; k < mod.count; ++k) {
      const ModArgument<T>& x = mod.arguments[k];
      chain.arguments[n][k] = static_cast<double>(x.data[index_of(p, mod, x.strides, b, h, i, j)]);
    }
    One one(p, chain, n, b, h, i, j);
    mod.node->code_f64(ModIsa::any).apply(mod.node->self(), one.tile);
    chain.scores[n + 1] = one.result[0];
  }
  return chain;
}

// Gradients of mod arguments in double, in the order of the arguments, elements as in the caller's tensors.
template <class T>
using ModDoubles = std::array<std::array<std::vector<double>, max_mod_arguments>, max_mods>;

// The derivative of the loss by the score before the mods; what the arguments get is added to `sums`.
template <class T>
double back_through(const Problem<T>& p, const Chain<T>& chain, double d_result, std::int64_t b,
                    std::int64_t h, std::int64_t i, std::int64_t j, ModDoubles<T>& sums) {
  for (std::size_t n = p.mods.count; n-- > 0;) {
    const ProblemMod<T>& mod = p.mods.list[n];
    One one(p, chain, n, b, h, i, j);
    one.d_result.fill(d_result);
    mod.node->code_f64(ModIsa::any).gradient(mod.node->self(), one.tile);
    for (std::size_t k = 0; k < mod.count; ++k) {
      const ModArgument<T>& x = mod.arguments[k];
      if (!x.gradient) continue;
      // Row-major over the argument's own sizes.
      const std::int64_t last = mod.node->entries() > 0 ? mod.node->entry(i + p.query_offset - j) : j;
      const std::int64_t at[4] = {b, h, i, last};
      std::int64_t index = 0;
      for (std::size_t axis = 0; axis < 4; ++axis)
        index = index * x.sizes[axis] + (x.sizes[axis] > 1 ? at[axis] : 0);
      sums[n][k][static_cast<std::size_t>(index)] += one.d_arguments[k][0];
    }
    d_result = one.d_score[0];
  }
  return d_result;
}

template <class T>
ModDoubles<T> mod_doubles(const Problem<T>& p) {
  ModDoubles<T> sums;
  for (std::size_t n = 0; n < p.mods.count; ++n) {
    for (std::size_t k = 0; k < p.mods.list[n].count; ++k) {
      const ModArgument<T>& x = p.mods.list[n].arguments[k];
      if (x.gradient)
        sums[n][k].resize(static_cast<std::size_t>(x.sizes[0] * x.sizes[1] * x.sizes[2] * x.sizes[3]));
    }
  }
  return sums;
}

template <class T>
void store_mod_gradients(const Problem<T>& p, const std::vector<ModDoubles<T>>& units) {
  for (std::size_t n = 0; n < p.mods.count; ++n) {
    for (std::size_t k = 0; k < p.mods.list[n].count; ++k) {
      const ModArgument<T>& x = p.mods.list[n].arguments[k];
      if (!x.gradient) continue;
      for (std::int64_t e = 0; e < x.sizes[0] * x.sizes[1] * x.sizes[2] * x.sizes[3]; ++e) {
        double sum = 0.0;
        for (const ModDoubles<T>& unit : units) sum += unit[n][k][static_cast<std::size_t>(e)];
        std::int64_t rest = e, at = 0;
        for (std::size_t axis = 4; axis-- > 0;) {
          at += rest % x.sizes[axis] * x.gradient_strides[axis];
          rest /= x.sizes[axis];
        }
        x.gradient[at] = static_cast<T>(sum);
      }
    }
  }
}

// One query's row: the keys it sees, their weights before dropout, what dropout makes of each, and the
// log-sum-exp.
struct Row {
  std::vector<std::int64_t> keys;
  std::vector<double> weights, kept;
  double log_sum_exp = -std::numeric_limits<double>::infinity();
};

template <class T>
void keep(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t position, Row& row) {
  const DropoutDecision decision = DropoutDecision::for_rate(p.dropout_rate);
  for (const std::int64_t key : row.keys) {
    const auto bytes = dropout_bytes(p.dropout_seed, b, h, position, key / 16);
    row.kept.push_back(bytes[key % 16] < decision.keep_threshold ? decision.scale : 0.0);
  }
}

template <class T>
Row row_of(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t kv = h / (p.query_heads / p.kv_heads), position = i + p.query_offset;
  const QueryBlock block{b, position, position + 1, p.key_len, p.key_lengths};
  Row row;
  double best = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < p.key_len; ++j) {
    if (!p.mask->node().allows({b, h, position, j}, block)) continue;  // a hidden key is not even read
    row.keys.push_back(j);
    row.weights.push_back(chain_of(p, score(p, b, h, kv, i, j), b, h, i, j).scores[p.mods.count]);
    if (!(row.weights.back() <= best)) best = row.weights.back();
  }
  // Scores of -infinity alone hide as a mask does: 0/0 would make NaN of them.
  if (best == -std::numeric_limits<double>::infinity()) return {};
  if (p.normalizer == NormalizerKind::sigmoid) {
    row.log_sum_exp = 0.0;
    for (double& s : row.weights) s = 1.0 / (1.0 + std::exp(-(s + p.sigmoid_bias)));
    keep(p, b, h, position, row);
    return row;
  }
  double sum = 0.0;
  for (const double s : row.weights) sum += std::exp(s - best);
  row.log_sum_exp = best + std::log(sum);
  // The sink is a key of that score and value 0; the log-sum-exp leaves it out.
  if (p.sink) sum += std::exp(static_cast<double>(p.sink[h]) - best);
  const double total = best + std::log(sum);
  for (double& s : row.weights) s = std::exp(s - total);
  keep(p, b, h, position, row);
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
                   std::vector<double>& d_vector, ModDoubles<T>& d_mods) {
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
        const std::int64_t j = row.keys[n];
        const double weight = row.weights[n];
        double ds = p.normalizer == NormalizerKind::sigmoid ? weight * (1.0 - weight) * dp[n]
                                                            : weight * (dp[n] - mean);
        if (p.mods.count > 0)
          ds = back_through(p, chain_of(p, score(p, b, h, kv, i, j), b, h, i, j), ds, b, h, i, j, d_mods);
        score_gradient(p, p.query.row(b, h, i), p.key.row(b, kv, j), ds * p.scale, dq.row(i), dk.row(j),
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
  std::vector<ModDoubles<T>> d_mods(static_cast<std::size_t>(units), mod_doubles(p));
  executor.parallel_for(units, [&](std::int64_t unit, int) {
    backward_unit(p, g, unit / p.kv_heads, unit % p.kv_heads, d_vector[unit], d_mods[unit]);
  });
  store_mod_gradients(p, d_mods);
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

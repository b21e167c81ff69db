#include "kernels/reference/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/dropout.h"
#include "fovea/attention/sample.h"
#include "fovea/core/cancellation.h"
#include "kernels/reference/normalizers.h"

namespace fovea::kernels {
namespace {

template <class T>
double score(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t kv, std::int64_t i,
             std::int64_t j, double seen) {
  const T *q = p.query.row(b, h, i), *k = p.key.row(b, kv, j);
  double sum = 0.0;
  for (std::int64_t d = 0; d < p.score_dim; ++d) {
    const auto qd = static_cast<double>(q[d]), kd = static_cast<double>(k[d]);
    const double coverage =
        p.score == ScoreKind::coverage ? static_cast<double>(p.coverage_vector[d]) * seen : 0.0;
    sum += p.score == ScoreKind::dot
               ? qd * kd
               : static_cast<double>(p.additive_vector[d]) * std::tanh(qd + kd + coverage);
  }
  return sum * p.scale;
}

// The mods at one site, in double: the input of each mod and its arguments, which the derivatives need.
template <class T>
struct Chain {
  std::array<double, max_mods + 1> scores{};  // before each mod, and after the last
  std::array<std::array<double, max_mod_arguments>, max_mods> arguments{};
};

template <class T>
std::int64_t index_of(const Problem<T>& p, const ProblemMod<T>& mod, const ModStrides& strides,
                      std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (mod.node->entries() > 0)
    return b * strides[0] + h * strides[1] + i * strides[2] +
           mod.node->entry(position_of(p, b, i) - j) * strides[3];
  return b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3];
}

// A tile of one score.
struct One {
  std::array<double, mod_lanes> score{}, result{}, d_result{}, d_score{};
  std::array<std::array<double, mod_lanes>, max_mod_arguments> arguments{}, d_arguments{};
  ModTile<double> tile;
  template <class T>
  One(const Problem<T>& p, const ProblemMods<T>& mods, const Chain<T>& chain, std::size_t n, std::int64_t b,
      std::int64_t h, std::int64_t i, std::int64_t j) {
    score.fill(chain.scores[n]);
    tile.rows = tile.count = 1;
    tile.stride = mod_lanes;
    tile.first = Site::at(entry_of(p, b), h, position_of(p, b, i), j);
    tile.scores = score.data();
    tile.result = result.data();
    for (std::size_t k = 0; k < mods.list[n].count; ++k) {
      arguments[k].fill(chain.arguments[n][k]);
      tile.arguments[k] = {arguments[k].data(), 0};
      tile.d_arguments[k] = d_arguments[k].data();
    }
    tile.d_result = d_result.data();
    tile.d_scores = d_score.data();
  }
};

template <class T>
Chain<T> chain_of(const Problem<T>& p, const ProblemMods<T>& mods, double score, std::int64_t b,
                  std::int64_t h, std::int64_t i, std::int64_t j) {
  Chain<T> chain;
  chain.scores[0] = score;
  for (std::size_t n = 0; n < mods.count; ++n) {
    const ProblemMod<T>& mod = mods.list[n];
    for (std::size_t k = 0; k < mod.count; ++k) {
      const ModArgument<T>& x = mod.arguments[k];
      chain.arguments[n][k] = static_cast<double>(x.data[index_of(p, mod, x.strides, b, h, i, j)]);
    }
    One one(p, mods, chain, n, b, h, i, j);
    mod.node->code_f64(ModIsa::any).apply(mod.node->self(), one.tile);
    chain.scores[n + 1] = one.result[0];
  }
  return chain;
}

// Gradients of mod arguments in double. They are in the order of the arguments, and their elements in the
// order of the caller's tensors.
template <class T>
using ModDoubles = std::array<std::array<std::vector<double>, max_mod_arguments>, max_mods>;

// Returns the derivative of the loss by the score before the mods; adds the gradients of the arguments to
// `sums`.
template <class T>
double back_through(const Problem<T>& p, const ProblemMods<T>& mods, const Chain<T>& chain, double d_result,
                    std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, ModDoubles<T>& sums) {
  for (std::size_t n = mods.count; n-- > 0;) {
    const ProblemMod<T>& mod = mods.list[n];
    One one(p, mods, chain, n, b, h, i, j);
    one.d_result.fill(d_result);
    mod.node->code_f64(ModIsa::any).gradient(mod.node->self(), one.tile);
    for (std::size_t k = 0; k < mod.count; ++k) {
      const ModArgument<T>& x = mod.arguments[k];
      if (!x.gradient) continue;
      // Row-major over the argument's own sizes.
      const std::int64_t last = mod.node->entries() > 0 ? mod.node->entry(position_of(p, b, i) - j) : j;
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
ModDoubles<T> mod_doubles(const ProblemMods<T>& mods) {
  ModDoubles<T> sums;
  for (std::size_t n = 0; n < mods.count; ++n) {
    for (std::size_t k = 0; k < mods.list[n].count; ++k) {
      const ModArgument<T>& x = mods.list[n].arguments[k];
      if (x.gradient)
        sums[n][k].resize(static_cast<std::size_t>(x.sizes[0] * x.sizes[1] * x.sizes[2] * x.sizes[3]));
    }
  }
  return sums;
}

// The row of one query: the keys that it sees, their scores, noise and weights, the factors of the weight
// mods and of dropout (`kept`), and the log-sum-exp or the normaliser's number in its place.
struct Row {
  std::vector<std::int64_t> keys;
  std::vector<double> scores, noise, weights, factors, kept;
  double log_sum_exp = -std::numeric_limits<double>::infinity();
  double returned(std::size_t n) const { return weights[n] * factors[n]; }
};

template <class T>
RowNormalizer normalizer_of(const Problem<T>& p, std::int64_t h) {
  RowNormalizer normalizer{
      .kind = p.normalizer, .count_scale = {}, .number = p.normalizer_number, .arguments = {}};
  if (p.count_scale) normalizer.count_scale = static_cast<double>(p.count_scale[h]);
  for (const NormalizerArgument<T>& argument : p.normalizer_arguments) {
    const T* numbers = argument.of(h);
    normalizer.arguments.emplace_back(numbers, numbers + (numbers ? argument.elements : 0));
  }
  return normalizer;
}

// The coverage of a head: for each key, the sum of the weights that earlier queries gave it.
using Coverage = std::vector<double>;

template <class T>
Row row_of(const Problem<T>& p, std::int64_t b, std::int64_t h, std::int64_t i, const Coverage& seen) {
  const std::int64_t kv = h / (p.query_heads / p.kv_heads), position = position_of(p, b, i),
                     entry = entry_of(p, b);
  const QueryBlock block{entry, h, position, position + 1, p.key_len, p.key_lengths};
  const DropoutDecision decision = DropoutDecision::for_rate(p.dropout_rate);
  Row row;
  for (std::int64_t j = 0; j < p.key_len; ++j) {
    if (!p.mask->node().allows(Site::at(entry, h, position, j), block))
      continue;  // a hidden key is not even read
    row.keys.push_back(j);
    const double s = score(p, b, h, kv, i, j, seen[static_cast<std::size_t>(j)]);
    row.scores.push_back(chain_of(p, p.mods, s, b, h, i, j).scores[p.mods.count]);
    row.noise.push_back(
        gumbel_noise(p.sample_seed, entry, h, position, j / 4)[static_cast<std::size_t>(j % 4)]);
    row.factors.push_back(chain_of(p, p.weight_mods, 1.0, b, h, i, j).scores[p.weight_mods.count]);
    const auto bytes = dropout_bytes(p.dropout_seed, entry, h, position, j / 16);
    row.kept.push_back(bytes[static_cast<std::size_t>(j % 16)] < decision.keep_threshold ? decision.scale
                                                                                         : 0.0);
  }
  row.log_sum_exp = solve(normalizer_of(p, h), row.scores, row.noise, row.weights);
  // Scores of -infinity alone hide as a mask does. Keys that nobody sees get no gradient.
  if (row.log_sum_exp == -std::numeric_limits<double>::infinity()) return {};
  return row;
}

template <class T>
void add_coverage(const Problem<T>& p, const Row& row, Coverage& seen) {
  if (p.score != ScoreKind::coverage) return;
  for (std::size_t n = 0; n < row.keys.size(); ++n)
    seen[static_cast<std::size_t>(row.keys[n])] += row.returned(n);
}

// body(slot of the head, slot of the row) for every place where the row's weights are asked for.
template <class Body>
void for_slots(std::span<const std::int64_t> heads, std::span<const std::int64_t> rows, std::int64_t h,
               std::int64_t i, std::int64_t all_heads, std::int64_t all_rows, Body&& body) {
  const auto size = [](std::span<const std::int64_t> list, std::int64_t all) {
    return list.empty() ? all : static_cast<std::int64_t>(list.size());
  };
  for (std::int64_t a = 0; a < size(heads, all_heads); ++a) {
    for (std::int64_t r = 0; r < size(rows, all_rows); ++r) {
      if ((heads.empty() ? a : heads[static_cast<std::size_t>(a)]) == h &&
          (rows.empty() ? r : rows[static_cast<std::size_t>(r)]) == i)
        body(a, r);
    }
  }
}

template <class T>
void write_row(const Problem<T>& p, const ForwardOutputs<T>& out, const Row& row, std::int64_t b,
               std::int64_t h, std::int64_t i) {
  const std::int64_t kv = h / (p.query_heads / p.kv_heads);
  if (out.output.data) {
    std::vector<double> sum(static_cast<std::size_t>(p.value_dim));
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      const T* v = p.value.row(b, kv, row.keys[n]);
      for (std::int64_t d = 0; d < p.value_dim; ++d)
        sum[d] += row.returned(n) * row.kept[n] * static_cast<double>(v[d]);
    }
    T* o = out.output.row(b, h, i);
    for (std::int64_t d = 0; d < p.value_dim; ++d) o[d] = static_cast<T>(sum[d]);
  }
  if (out.log_sum_exp)
    out.log_sum_exp[(b * p.query_heads + h) * p.query_len + i] = static_cast<T>(row.log_sum_exp);
  if (!out.weights.data) return;
  for_slots(out.weight_heads, out.weight_rows, h, i, p.query_heads, p.query_len,
            [&](std::int64_t head, std::int64_t slot) {
              T* to = out.weights.row(b, head, slot);
              std::fill_n(to, p.key_len, T{0});
              for (std::size_t n = 0; n < row.keys.size(); ++n)
                to[row.keys[n]] = static_cast<T>(row.returned(n));
            });
}

// The specification multiplies by the count of keys itself, so the mod that does so for the kernels is left
// out.
template <class T>
Problem<T> as_specified(const Problem<T>& p) {
  Problem<T> own = p;
  if (p.count_scale) --own.mods.count;
  return own;
}

template <class T>
void forward(const Problem<T>& given, const ForwardOutputs<T>& out, Executor& executor, std::byte*) {
  const Problem<T> p = as_specified(given);
  executor.parallel_for(p.batch * p.query_heads, [&](std::int64_t unit, int) {
    const std::int64_t h = unit % p.query_heads, b = unit / p.query_heads;
    Coverage seen(static_cast<std::size_t>(p.key_len));
    for (std::int64_t i = 0; i < p.query_len; ++i) {
      throw_if_cancelled();
      const Row row = row_of(p, b, h, i, seen);
      write_row(p, out, row, b, h, i);
      add_coverage(p, row, seen);
    }
  });
}

// Gradients in double, [rows, dim] for one (batch, head).
struct Sums {
  std::vector<double> values;
  std::int64_t dim;
  Sums(std::int64_t rows, std::int64_t width) : values(static_cast<std::size_t>(rows * width)), dim(width) {}
  double* row(std::int64_t r) { return values.data() + r * dim; }
};

// Adds ds times the derivatives of the score by query, key, v and w; returns ds times its derivative by the
// coverage.
template <class T>
double score_gradient(const Problem<T>& p, const T* q, const T* k, double seen, double ds, double* dq,
                      double* dk, double* dv, double* dw) {
  double d_seen = 0.0;
  for (std::int64_t d = 0; d < p.score_dim; ++d) {
    const auto qd = static_cast<double>(q[d]), kd = static_cast<double>(k[d]);
    if (p.score == ScoreKind::dot) {
      dq[d] += ds * kd;
      dk[d] += ds * qd;
      continue;
    }
    const double w = p.score == ScoreKind::coverage ? static_cast<double>(p.coverage_vector[d]) : 0.0;
    const double t = std::tanh(qd + kd + w * seen),
                 through = ds * static_cast<double>(p.additive_vector[d]) * (1.0 - t * t);
    dq[d] += through;
    dk[d] += through;
    dv[d] += ds * t;
    dw[d] += seen * through;
    d_seen += through * w;
  }
  return d_seen;
}

template <class T>
void store(const Operand<T*>& to, std::int64_t b, std::int64_t h, std::int64_t rows, Sums& from) {
  if (!to.data) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t d = 0; d < from.dim; ++d) to.row(b, h, r)[d] = static_cast<T>(from.row(r)[d]);
  }
}

// The sums of one unit of work, a (batch entry, kv head).
template <class T>
struct UnitSums {
  std::vector<double> vector, coverage, normalizer, count_scale;
  ModDoubles<T> mods, weight_mods;
  explicit UnitSums(const Problem<T>& p)
      : vector(static_cast<std::size_t>(p.score_dim)),
        coverage(static_cast<std::size_t>(p.score_dim)),
        normalizer(static_cast<std::size_t>(p.query_heads * p.normalizer_elements)),
        count_scale(static_cast<std::size_t>(p.query_heads)),
        mods(mod_doubles(p.mods)),
        weight_mods(mod_doubles(p.weight_mods)) {}
};

template <class T>
void store_mod_gradients(const Problem<T>& p, const ProblemMods<T>& mods,
                         const std::vector<UnitSums<T>>& units, ModDoubles<T> UnitSums<T>::*part) {
  for (std::size_t n = 0; n < mods.count; ++n) {
    for (std::size_t k = 0; k < mods.list[n].count; ++k) {
      const ModArgument<T>& x = mods.list[n].arguments[k];
      if (!x.gradient) continue;
      for (std::int64_t e = 0; e < x.sizes[0] * x.sizes[1] * x.sizes[2] * x.sizes[3]; ++e) {
        double sum = 0.0;
        for (const UnitSums<T>& unit : units) sum += (unit.*part)[n][k][static_cast<std::size_t>(e)];
        std::int64_t rest = e, at = 0;
        for (std::size_t axis = 4; axis-- > 0;) {
          at += rest % x.sizes[axis] * x.gradient_strides[axis];
          rest /= x.sizes[axis];
        }
        x.gradient[at] =
            static_cast<T>(p.adds_mod_gradients ? static_cast<double>(x.gradient[at]) + sum : sum);
      }
    }
  }
}

// The gradient of one row by its scores; what the row gives to the values is added to dv.
template <class T>
std::vector<double> row_gradient(const Problem<T>& p, const BackwardProblem<T>& g, const Row& row,
                                 std::int64_t b, std::int64_t h, std::int64_t i, const Coverage& later,
                                 Sums& dv, UnitSums<T>& sums) {
  const std::int64_t kv = h / (p.query_heads / p.kv_heads), index = (b * p.query_heads + h) * p.query_len + i;
  std::vector<double> d_returned(row.keys.size());
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    d_returned[n] = later[static_cast<std::size_t>(row.keys[n])];
    for (std::int64_t d = 0; g.d_output.data && d < p.value_dim; ++d) {
      const auto dod = static_cast<double>(g.d_output.row(b, h, i)[d]);
      d_returned[n] += row.kept[n] * dod * static_cast<double>(p.value.row(b, kv, row.keys[n])[d]);
      dv.row(row.keys[n])[d] += row.returned(n) * row.kept[n] * dod;
    }
  }
  if (g.d_weights.data) {
    for_slots(g.weight_heads, g.weight_rows, h, i, p.query_heads, p.query_len,
              [&](std::int64_t head, std::int64_t slot) {
                for (std::size_t n = 0; n < row.keys.size(); ++n)
                  d_returned[n] += static_cast<double>(g.d_weights.row(b, head, slot)[row.keys[n]]);
              });
  }
  std::vector<double> gradient(row.keys.size());
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const std::int64_t j = row.keys[n];
    // A score of -infinity hides as a mask does: no gradient comes back to it, not even a later row's NaN.
    if (row.scores[n] == -std::numeric_limits<double>::infinity()) d_returned[n] = 0.0;
    back_through(p, p.weight_mods, chain_of(p, p.weight_mods, 1.0, b, h, i, j),
                 row.weights[n] * d_returned[n], b, h, i, j, sums.weight_mods);
    gradient[n] = row.factors[n] * d_returned[n];
  }
  const double advantage = g.advantage ? static_cast<double>(g.advantage[index]) : 0.0;
  const double mean =
      solve_gradient(normalizer_of(p, h), row.scores, row.noise, row.weights, advantage, gradient,
                     {sums.normalizer.data() + h * p.normalizer_elements, sums.count_scale.data() + h});
  if (g.mean) g.mean[index] = static_cast<T>(mean);
  return gradient;
}

// One (batch entry, kv head), serially and in a fixed order. The rows of a head run from the last to the
// first, as coverage needs it.
template <class T>
void backward_unit(const Problem<T>& p, const BackwardProblem<T>& g, std::int64_t b, std::int64_t kv,
                   UnitSums<T>& sums) {
  const std::int64_t group = p.query_heads / p.kv_heads;
  Sums dk(p.key_len, p.score_dim), dv(p.key_len, p.value_dim);
  for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    Sums dq(p.query_len, p.score_dim);
    std::vector<Coverage> seen{Coverage(static_cast<std::size_t>(p.key_len))};
    for (std::int64_t i = 0; i < p.query_len; ++i) {
      throw_if_cancelled();
      seen.push_back(seen.back());
      if (p.score == ScoreKind::coverage)
        add_coverage(p, row_of(p, b, h, i, seen[static_cast<std::size_t>(i)]), seen.back());
    }
    Coverage later(static_cast<std::size_t>(p.key_len));
    for (std::int64_t i = p.query_len; i-- > 0;) {
      throw_if_cancelled();
      const Coverage& before = seen[static_cast<std::size_t>(i)];
      const Row row = row_of(p, b, h, i, before);
      const std::vector<double> gradient = row_gradient(p, g, row, b, h, i, later, dv, sums);
      for (std::size_t n = 0; n < row.keys.size(); ++n) {
        if (row.scores[n] == -std::numeric_limits<double>::infinity())
          continue;  // as good as hidden: no gradient comes back
        const std::int64_t j = row.keys[n];
        const double covered = before[static_cast<std::size_t>(j)];
        const Chain<T> chain = chain_of(p, p.mods, score(p, b, h, kv, i, j, covered), b, h, i, j);
        const double ds = back_through(p, p.mods, chain, gradient[n], b, h, i, j, sums.mods);
        const double by_coverage =
            score_gradient(p, p.query.row(b, h, i), p.key.row(b, kv, j), covered, ds * p.scale, dq.row(i),
                           dk.row(j), sums.vector.data(), sums.coverage.data());
        if (p.score == ScoreKind::coverage) later[static_cast<std::size_t>(j)] += by_coverage;
      }
    }
    store(g.d_query, b, h, p.query_len, dq);
  }
  store(g.d_key, b, kv, p.key_len, dk);
  store(g.d_value, b, kv, p.key_len, dv);
}

template <class T>
void add_units(const std::vector<UnitSums<T>>& units, std::vector<double> UnitSums<T>::*part, T* to) {
  if (!to) return;
  for (std::size_t d = 0; d < (units[0].*part).size(); ++d) {
    double sum = 0.0;
    for (const UnitSums<T>& unit : units) sum += (unit.*part)[d];
    to[d] = static_cast<T>(sum);
  }
}

template <class T>
void backward(const Problem<T>& given, const BackwardProblem<T>& g, Executor& executor, std::byte*) {
  const Problem<T> p = as_specified(given);
  std::vector<UnitSums<T>> units(static_cast<std::size_t>(p.batch * p.kv_heads), UnitSums<T>(p));
  executor.parallel_for(p.batch * p.kv_heads, [&](std::int64_t unit, int) {
    backward_unit(p, g, unit / p.kv_heads, unit % p.kv_heads, units[static_cast<std::size_t>(unit)]);
  });
  store_mod_gradients(p, p.mods, units, &UnitSums<T>::mods);
  store_mod_gradients(p, p.weight_mods, units, &UnitSums<T>::weight_mods);
  add_units(units, &UnitSums<T>::vector, g.d_additive_vector);
  add_units(units, &UnitSums<T>::coverage, g.d_coverage_vector);
  add_units(units, &UnitSums<T>::normalizer, g.d_normalizer);
  if (p.count_scale)
    add_units(units, &UnitSums<T>::count_scale, given.mods.list[p.mods.count].arguments[0].gradient);
}

template <class T>
std::size_t no_workspace(const Problem<T>&, int) {
  return 0;
}

}  // namespace

Candidate reference_candidate() {
  static const Isa isa{.name = "reference", .absence = []() -> const char* { return nullptr; }};
  return {.name = isa.name,
          .isa = &isa,
          .refuse = [](const Request&) -> const char* { return nullptr; },
          .block_queries = 1,
          .tile_keys = 1,
          .f32 = {no_workspace<float>, forward<float>, no_workspace<float>, backward<float>},
          .f64 = {no_workspace<double>, forward<double>, no_workspace<double>, backward<double>}};
}

}  // namespace fovea::kernels

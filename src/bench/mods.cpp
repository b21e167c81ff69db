#include "bench/mods.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "bench/timing.h"
#include "fovea/attention/elementwise.h"
#include "fovea/attention/expression.h"
#include "fovea/attention/make_mod.h"
#include "fovea/attention/normalizer_properties.h"
#include "fovea/core/error.h"
#include "fovea/plan/plan.h"

namespace fovea::bench {
namespace {

struct Row {
  std::string name;
  AttentionSpec spec = {};
  std::vector<std::pair<std::string, Tensor>> arguments = {};
  Tensor advantage = {};
};

struct Times {
  double forward = 0.0, backward = 0.0;
};

Times measure(const ModsBench& o, const Row& row) {
  const Shape shape{1, o.heads, o.length, o.head_dim};
  const auto drawn = [&](std::uint64_t seed) { return rounded_to(o.dtype, random_operand(shape, seed)); };
  const Tensor q = drawn(1), k = drawn(2), v = drawn(3), d_output = drawn(4), out(o.dtype, shape),
               d_q(o.dtype, shape), d_k(o.dtype, shape), d_v(o.dtype, shape),
               lse(DType::f32, {1, o.heads, o.length});
  const AttentionPlan plan = make_plan(row.spec,
                                       {.num_query_heads = o.heads,
                                        .num_kv_heads = o.heads,
                                        .query_len = o.length,
                                        .key_len = o.length,
                                        .head_dim = o.head_dim,
                                        .value_dim = o.head_dim},
                                       {.dtype = o.dtype, .kernel = o.kernel});
  const bool by_scores = derivative_of(row.spec.normalizer) != WeightDerivative::none;
  AttentionInputs in{.query = q, .key = k, .value = v};
  AttentionGradients g{.value = d_v};
  if (by_scores) {
    g.query = d_q;
    g.key = d_k;
  }
  for (const auto& [name, argument] : row.arguments) {
    in.arguments.set(name, argument);
    if (by_scores || name.starts_with("weight_mods"))
      g.arguments.set(name, Tensor(DType::f32, argument.shape()));
  }
  AttentionLoss loss;
  loss.output = out;
  loss.log_sum_exp = lse;
  loss.d_output = d_output;
  if (row.advantage) loss.advantage = row.advantage;
  Times best;
  best.forward = best_seconds(o.repeat, [&] { attend(plan, in, {.output = out, .log_sum_exp = lse}); });
  best.backward = best_seconds(o.repeat, [&] { attend_backward(plan, in, loss, g); });
  return best;
}

std::vector<Row> rows_of(const ModsBench& o) {
  const Tensor slopes = random_operand({1, o.heads, 1, 1}, 5);
  const Mod own = make_mod("alibi as a lambda", {"slope"}, [](auto score, Site at, auto slope) {
    return score - slope * (at.query - at.key);
  });
  const Mod decay = make_mod("decay", {"slope"}, [](auto score, Site at, auto slope) {
    return score * elementwise::exp(-elementwise::sigmoid(slope) * 0.01 * (at.query - at.key));
  });
  const Tensor centers = random_operand({1, 1, o.length, 1}, 9);
  std::vector<Row> rows{
      {"none"},
      {"dropout", {.dropout = {0.1}}},
      {"soft cap", {.mods = {SoftCap{50}}}},
      {"alibi", {.mods = {AlibiBias{}}}, {{"mods[0].slope", slopes}}},
      {"alibi as a lambda", {.mods = {own}}, {{"mods[0].slope", slopes}}},
      {"lambda of exp and sigmoid", {.mods = {decay}}, {{"mods[0].slope", slopes}}},
      {"relative, 32 buckets",
       {.mods = {RelativeBias{}}},
       {{"mods[0].table", random_operand({1, o.heads, 1, 32}, 6)}}},
      {"dense bias a head",
       {.mods = {DenseBias{}}},
       {{"mods[0].bias", random_operand({1, o.heads, o.length, o.length}, 7)}}},
      {"dense bias, shared",
       {.mods = {DenseBias{}}},
       {{"mods[0].bias", random_operand({1, 1, o.length, o.length}, 8)}}},
      {"weights: gaussian", {.weight_mods = {LocalGaussian{500}}}, {{"weight_mods[0].center", centers}}}};
  for (const Normalizer& normalizer :
       std::initializer_list<Normalizer>{Sigmoid{-7.6}, Sparsemax{}, Entmax{1.5}, Entmax{1.25}, HardArgmax{},
                                         HardSample{}, GumbelSample{}, LinearChain{}})
    rows.push_back({to_string(normalizer), {.normalizer = normalizer}});
  for (Row& row : rows) {
    if (std::holds_alternative<LinearChain>(row.spec.normalizer))
      row.arguments = {{"normalizer.transitions", random_operand({2, 2}, 10)}};
    if (derivative_of(row.spec.normalizer) == WeightDerivative::estimate)
      row.advantage = random_operand({1, o.heads, o.length}, 11);
  }
  return rows;
}

}  // namespace

void measure_mods(const ModsBench& bench, const std::function<void(const ModsRow&)>& tell) {
  std::optional<Times> plain;
  const std::vector<Row> rows = rows_of(bench);
  const auto wanted = [&](const Row& row) { return row.name.find(bench.only) != std::string::npos; };
  if (std::none_of(rows.begin(), rows.end(), wanted))
    throw InvalidArgument("fovea bench mods", "--only", "part of a row's name, such as alibi", bench.only);
  for (const Row& row : rows) {
    if (plain && !wanted(row)) continue;
    const Times times = measure(bench, row);
    if (!plain) plain = times;
    tell({row.name, times.forward, times.forward / plain->forward, times.backward,
          times.backward / plain->backward});
  }
}

}  // namespace fovea::bench

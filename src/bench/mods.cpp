#include "bench/mods.h"

#include <algorithm>
#include <deque>
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

// The calls of a row, with all their tensors.
class Calls {
 public:
  Calls(const ModsBench& o, const Row& row)
      : plan_(make_plan(row.spec,
                        {.num_query_heads = o.heads,
                         .num_kv_heads = o.heads,
                         .query_len = o.length,
                         .key_len = o.length,
                         .head_dim = o.head_dim,
                         .value_dim = o.head_dim},
                        {.dtype = o.dtype, .kernel = o.kernel})) {
    const Shape shape{1, o.heads, o.length, o.head_dim};
    const auto drawn = [&](std::uint64_t seed) {
      return keep(rounded_to(o.dtype, random_operand(shape, seed)));
    };
    const auto made = [&](DType dtype, const Shape& of) { return keep(Tensor(dtype, of)); };
    in_ = {.query = drawn(1), .key = drawn(2), .value = drawn(3)};
    out_ = {.output = made(o.dtype, shape), .log_sum_exp = made(DType::f32, {1, o.heads, o.length})};
    gradients_.value = made(o.dtype, shape);
    const bool by_scores = derivative_of(row.spec.normalizer) != WeightDerivative::none;
    if (by_scores) {
      gradients_.query = made(o.dtype, shape);
      gradients_.key = made(o.dtype, shape);
    }
    for (const auto& [name, argument] : row.arguments) {
      in_.arguments.set(name, argument);
      if (by_scores || name.starts_with("weight_mods"))
        gradients_.arguments.set(name, Tensor(DType::f32, argument.shape()));
    }
    loss_ = {.output = out_.output, .log_sum_exp = out_.log_sum_exp, .d_output = drawn(4)};
    if (row.advantage) loss_.advantage = row.advantage;
  }
  double forward_seconds() const {
    return best_seconds(1, [&] { attend(plan_, in_, out_); });
  }
  double backward_seconds() const {
    return best_seconds(1, [&] { attend_backward(plan_, in_, loss_, gradients_); });
  }

 private:
  const Tensor& keep(Tensor tensor) { return kept_.emplace_back(std::move(tensor)); }

  AttentionPlan plan_;
  std::deque<Tensor> kept_;
  AttentionInputs in_;
  AttentionOutputs out_;
  AttentionLoss loss_;
  AttentionGradients gradients_;
};

// Medians of turns, in each of which plain attention runs right before the row.
ModsRow measure(const ModsBench& o, const Row& row, const Calls& plain) {
  const Calls calls(o, row);
  const auto medians = [&](double (Calls::*seconds)() const, double& time, double& ratio) {
    std::vector<double> times, ratios;
    for (std::int64_t turn = 0; turn <= o.repeat; ++turn) {
      const double beside = (plain.*seconds)(), own = (calls.*seconds)();
      if (turn == 0) continue;  // threads have met these sizes
      times.push_back(own);
      ratios.push_back(own / beside);
    }
    time = median(std::move(times));
    ratio = median(std::move(ratios));
  };
  ModsRow measured{.name = row.name};
  medians(&Calls::forward_seconds, measured.forward_seconds, measured.forward_ratio);
  medians(&Calls::backward_seconds, measured.backward_seconds, measured.backward_ratio);
  return measured;
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
  const std::vector<Row> rows = rows_of(bench);
  const auto wanted = [&](const Row& row) { return row.name.find(bench.only) != std::string::npos; };
  if (std::none_of(rows.begin(), rows.end(), wanted))
    throw InvalidArgument("fovea bench mods", "--only", "part of a row's name, such as alibi", bench.only);
  const Calls plain(bench, rows.front());
  for (const Row& row : rows) {
    if (wanted(row)) tell(measure(bench, row, plain));
  }
}

}  // namespace fovea::bench

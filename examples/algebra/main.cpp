// Three parts of your own: a time decay that learns, a graph's neighbourhood, a robot's mask.
#include <cstdio>
#include <set>
#include <utility>
#include <vector>

#include "fovea/attention/make_mod.h"
#include "fovea/attention/masks.h"
#include "fovea/core/philox.h"
#include "fovea/plan/plan.h"

using namespace fovea;

Tensor random_tensor(Shape shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    tensor.data<float>()[i] = static_cast<float>(2.0 * random.next_uniform() - 1.0);
  return tensor;
}

// A mod is a lambda. Its captures are constants; its parameters after the site are learned.
void time_decay() {
  const Mod decay = make_mod("decay", {"rate"}, [](auto score, Site at, auto rate) {
    return score - rate * elementwise::log(1.0 + (at.query - at.key));
  });
  const std::int64_t length = 64;
  const AttentionShape shape{.query_len = length, .key_len = length, .head_dim = 16, .value_dim = 16};
  const AttentionPlan plan = make_plan({.mods = {decay}, .mask = Causal{}}, shape);
  const Shape rows{1, 1, length, 16};
  const Tensor q = random_tensor(rows, 1), k = random_tensor(rows, 2), v = random_tensor(rows, 3);
  Tensor rate(DType::f32, {1, 1, 1, 1}), d_rate(DType::f32, {1, 1, 1, 1});
  Tensor output(DType::f32, rows), target(DType::f32, rows), lse(DType::f32, {1, 1, length});
  const AttentionInputs inputs{.query = q, .key = k, .value = v, .arguments = {{"mods[0].rate", rate}}};

  rate.fill(1.5);  // the decay to be found
  attend(plan, inputs, {.output = target});
  rate.fill(0.0);
  for (int step = 0; step < 200; ++step) {
    attend(plan, inputs, {.output = output, .log_sum_exp = lse});
    Tensor difference(DType::f32, rows);  // the derivative of half the squared distance
    for (std::int64_t i = 0; i < output.count(); ++i)
      difference.data<float>()[i] = output.data<float>()[i] - target.data<float>()[i];
    attend_backward(plan, inputs, output, lse, difference, {.arguments = {{"mods[0].rate", d_rate}}});
    *rate.data<float>() -= 0.02f * *d_rate.data<float>();
  }
  std::printf("learned a decay of %.3f\n", *rate.data<float>());
}

// A mask can be any function of the site, evaluated once. Pairs that it hides are not computed.
void graph_neighbourhood() {
  const std::set<std::pair<std::int64_t, std::int64_t>> edges{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {1, 4}};
  const Predicate neighbours("graph", {.query_end = 5, .key_len = 5}, [&](const Site& at) {
    return at.query == at.key || edges.contains({at.query, at.key}) || edges.contains({at.key, at.query});
  });
  const AttentionPlan plan =
      make_plan({.mask = neighbours}, {.query_len = 5, .key_len = 5, .head_dim = 1, .value_dim = 1});
  Tensor zeros = Tensor::zeros(DType::f32, {1, 1, 5, 1}), nodes(DType::f32, {1, 1, 5, 1}),
         means = zeros.clone();
  for (int i = 0; i < 5; ++i) nodes.data<float>()[i] = static_cast<float>(i);
  attend(plan, zeros, zeros, nodes, means);  // equal scores: the mean of the neighbourhood
  std::printf("means of neighbours:");
  for (int i = 0; i < 5; ++i) std::printf(" %.2f", means.data<float>()[i]);
  std::printf("\n");
}

// Vision and language see each other completely; each action sees them and the actions before it.
void robot() {
  std::vector<std::int64_t> groups(256 + 32, 0);               // 256 image patches, 32 words
  for (std::int64_t a = 1; a <= 16; ++a) groups.push_back(a);  // 16 actions
  const auto length = static_cast<std::int64_t>(groups.size());
  const AttentionPlan plan = make_plan(
      {.mask = Groups{groups}}, {.query_len = length, .key_len = length, .head_dim = 64, .value_dim = 64});
  std::printf("%s\n", explain(plan).substr(explain(plan).find("tiles of")).c_str());
}

int main() {
  time_decay();
  graph_neighbourhood();
  robot();
}

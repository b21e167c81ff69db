// fovea bench mods: what a score mod costs beside plain attention, built-in ones beside a lambda of one's
// own.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/bench.h"
#include "cli/commands.h"
#include "fovea/attention/elementwise.h"
#include "fovea/core/philox.h"
#include "fovea/nn/module.h"
#include "fovea/plan/plan.h"

namespace fovea::cli {
namespace {

struct Options {
  std::int64_t length = 2048, heads = 4, dim = 64, repeat = 5;
  std::string kernel;
  int threads = 0;
};

struct Row {
  std::string name;
  Mods mods;
  std::vector<Tensor> arguments;
};

struct Times {
  double forward = 0.0, backward = 0.0;
};

Times measure(const Options& o, const Row& row) {
  const Shape shape{1, o.heads, o.length, o.dim};
  const Tensor q = random_operand(shape, 1), k = random_operand(shape, 2), v = random_operand(shape, 3),
               d_output = random_operand(shape, 4), out(DType::f32, shape), d_q(DType::f32, shape),
               d_k(DType::f32, shape), d_v(DType::f32, shape), lse(DType::f32, {1, o.heads, o.length});
  const AttentionPlan plan = make_plan({.mods = row.mods},
                                       {.num_query_heads = o.heads,
                                        .num_kv_heads = o.heads,
                                        .query_len = o.length,
                                        .key_len = o.length,
                                        .head_dim = o.dim,
                                        .value_dim = o.dim},
                                       {.kernel = o.kernel});
  const std::vector<ConstTensorView> arguments(row.arguments.begin(), row.arguments.end());
  std::vector<Tensor> gradients;
  for (const Tensor& argument : row.arguments) gradients.emplace_back(DType::f32, argument.shape());
  const std::vector<TensorView> d_arguments(gradients.begin(), gradients.end());
  AttentionInputs in{.query = q, .key = k, .value = v};
  in.mod_arguments = arguments;
  AttentionGradients g{.query = d_q, .key = d_k, .value = d_v};
  g.mod_arguments = d_arguments;
  Times best;
  best.forward = best_seconds(o.repeat, [&] { attend(plan, in, {.output = out, .log_sum_exp = lse}); });
  best.backward = best_seconds(o.repeat, [&] { attend_backward(plan, in, out, lse, d_output, g); });
  return best;
}

void run(const Options& o) {
  nn::use_openmp(o.threads);
  const Tensor slopes = random_operand({1, o.heads, 1, 1}, 5);
  const Mod own = make_mod("alibi as a lambda", {"slope"}, [](auto score, ModSite at, auto slope) {
    return score - slope * (at.query - at.key);
  });
  const Mod decay = make_mod("decay", {"slope"}, [](auto score, ModSite at, auto slope) {
    return score * elementwise::exp(-elementwise::sigmoid(slope) * 0.01 * (at.query - at.key));
  });
  const std::vector<Row> rows{
      {"none", {}, {}},
      {"soft cap", {SoftCap{50}}, {}},
      {"alibi", {AlibiBias{}}, {slopes}},
      {"alibi as a lambda", {own}, {slopes}},
      {"lambda of exp and sigmoid", {decay}, {slopes}},
      {"relative, 32 buckets", {RelativeBias{}}, {random_operand({1, o.heads, 1, 32}, 6)}},
      {"dense bias a head", {DenseBias{}}, {random_operand({1, o.heads, o.length, o.length}, 7)}},
      {"dense bias, shared", {DenseBias{}}, {random_operand({1, 1, o.length, o.length}, 8)}}};
  fmt::print(
      "Score mods, length {}, {} heads of {}, f32, {} threads; gradients of their arguments included.\n",
      o.length, o.heads, o.dim, default_executor().thread_count());
  fmt::print("{:<26} {:>10} {:>6} {:>11} {:>6}\n", "mod", "forward ms", "ratio", "backward ms", "ratio");
  Times plain;
  for (const Row& row : rows) {
    const Times times = measure(o, row);
    if (row.mods.empty()) plain = times;
    fmt::print("{:<26} {:>10.2f} {:>6.2f} {:>11.2f} {:>6.2f}\n", row.name, 1e3 * times.forward,
               times.forward / plain.forward, 1e3 * times.backward, times.backward / plain.backward);
    std::fflush(stdout);
  }
}

}  // namespace

void register_bench_mods(CLI::App& bench) {
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand("mods", "What score mods cost beside plain attention");
  command->add_option("--length", o->length, "of queries and keys")->check(CLI::Range(1, 1 << 15));
  command->add_option("--heads", o->heads)->check(CLI::Range(1, 1024));
  command->add_option("--head-dim", o->dim)->check(CLI::Range(1, 4096));
  command->add_option("--kernel", o->kernel, "avx512, avx2, baseline or reference; default: the best");
  command->add_option("--repeat", o->repeat, "the best of so many runs counts")->check(CLI::Range(1, 1000));
  command->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli

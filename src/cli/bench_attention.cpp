// fovea bench attention: time, arithmetic and memory of the engine. Machines are shared and noisy, so every
// number stands beside a limit measured in the same run: a large f32 matrix product on the same threads. Each
// row is measured in a process of its own, whose memory no other row has seen.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "autograd/gemm.h"
#include "bench/cases.h"
#include "bench/memory.h"
#include "cli/bench.h"
#include "fovea/attention/expression.h"
#include "fovea/core/philox.h"
#include "fovea/nn/module.h"
#include "fovea/plan/plan.h"

namespace fovea::cli {
namespace {

using namespace bench;

struct Options {
  std::vector<std::int64_t> lengths{1024, 4096};
  std::vector<std::string> masks{"everything", "causal", "window(255,0)"};
  std::string score = "scaled-dot", kernel, clock = "wall";
  std::int64_t batch = 1, heads = 16, kv_heads = 0, dim = 64, repeat = 3, rounds = 1;
  int threads = 0;
};

double product_gflops(Clock clock) {
  constexpr std::int64_t n = 1536;
  const Tensor a = random_operand({n, n}, 1), b = random_operand({n, n}, 2), c(DType::f32, {n, n});
  const double seconds = best_seconds(
      5,
      [&] {
        autograd::gemm(n, n, n, {a.data<float>(), n}, {b.data<float>(), n}, 0.0f, c.data<float>(), n);
      },
      clock);
  return 2e-9 * n * n * n / seconds;
}

struct Timed {
  double seconds = 0.0, megabytes = 0.0;
};
struct Row {
  Timed forward, backward;
};

// In a process of its own: memory is what it grew by.
Row measure(const Options& o, const AttentionPlan& plan, std::int64_t length) {
  const AttentionSpec& spec = plan.spec();
  const std::int64_t kv_heads = plan.shape().num_kv_heads;
  reset_peak_memory();
  const double before = peak_memory();
  const Shape queries{o.batch, o.heads, length, o.dim}, keys{o.batch, kv_heads, length, o.dim};
  const Tensor q = random_operand(queries, 1), k = random_operand(keys, 2), v = random_operand(keys, 3),
               vector = random_operand({o.dim}, 4), matrix = random_operand({o.dim, o.dim}, 5),
               output(DType::f32, queries), lse(DType::f32, {o.batch, o.heads, length});
  AttentionInputs in{.query = q, .key = k, .value = v};
  if (std::holds_alternative<Additive>(spec.score)) in.arguments.set("score.v", vector);
  if (std::holds_alternative<Bilinear>(spec.score)) in.arguments.set("score.W", matrix);
  Row row;
  const Clock clock = o.clock == "cpu" ? Clock::cpu : Clock::wall;
  row.forward.seconds = best_seconds(
      o.repeat, [&] { attend(plan, in, {.output = output, .log_sum_exp = lse}); }, clock);
  row.forward.megabytes = peak_memory() - before;
  const Tensor d_output = random_operand(queries, 6), d_q(DType::f32, queries), d_k(DType::f32, keys),
               d_v(DType::f32, keys);
  row.backward.seconds = best_seconds(
      o.repeat,
      [&] { attend_backward(plan, in, output, lse, d_output, {.query = d_q, .key = d_k, .value = d_v}); },
      clock);
  row.backward.megabytes = peak_memory() - before;
  return row;
}

Row measure_apart(const Options& o, const AttentionPlan& plan, std::int64_t length) {
  const std::vector<double> numbers = in_own_process([&] {
    const Row row = measure(o, plan, length);
    return std::vector<double>{row.forward.seconds, row.forward.megabytes, row.backward.seconds,
                               row.backward.megabytes};
  });
  return {{numbers.at(0), numbers.at(1)}, {numbers.at(2), numbers.at(3)}};
}

AttentionShape shape_for(const Options& o, std::int64_t length) {
  return {.batch = o.batch,
          .num_query_heads = o.heads,
          .num_kv_heads = o.kv_heads ? o.kv_heads : o.heads,
          .query_len = length,
          .key_len = length,
          .head_dim = o.dim,
          .value_dim = o.dim,
          .hidden = o.dim};
}

// `products` of 2·dim operations a pair; beside `full`, the row of `everything`, if there is one.
void print_pass(const Timed& pass, int products, double pairs, const Timed* full, double all_pairs,
                const Options& o, double limit) {
  const double gflops =
      2e-9 * products * pairs * static_cast<double>(o.batch * o.heads * o.dim) / pass.seconds;
  fmt::print(" {:>11.2f} {:>8.1f} {:>6.0f}% {:>8} {:>9.1f}", 1e3 * pass.seconds, gflops, 100 * gflops / limit,
             full ? fmt::format("{:.2f}", pass.seconds / pairs / (full->seconds / all_pairs)) : "-",
             pass.megabytes);
}

void better(Timed& best, const Timed& next) {
  best.seconds = std::min(best.seconds, next.seconds);
  best.megabytes = std::min(best.megabytes, next.megabytes);
}

// Rounds, so that what else the machine does falls on all rows alike.
std::vector<Row> measure_rounds(const Options& o, const std::vector<AttentionPlan>& plans,
                                std::int64_t length) {
  std::vector<Row> rows;
  for (std::int64_t round = 0; round < o.rounds; ++round) {
    for (std::size_t n = 0; n < plans.size(); ++n) {
      const Row row = measure_apart(o, plans[n], length);
      if (round == 0) rows.push_back(row);
      better(rows[n].forward, row.forward);
      better(rows[n].backward, row.backward);
    }
  }
  return rows;
}

void print_length(const Options& o, AttentionSpec spec, const std::vector<Mask>& masks, std::int64_t length,
                  double limit, std::size_t width) {
  std::vector<AttentionPlan> plans;
  for (const Mask& mask : masks) {
    spec.mask = mask;
    plans.push_back(make_plan(spec, shape_for(o, length), {.kernel = o.kernel}));
  }
  const std::vector<Row> rows = measure_rounds(o, plans, length);
  const double all_pairs = static_cast<double>(length) * static_cast<double>(length);
  const Row* full = nullptr;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    if (to_string(masks[n]) == "everything") full = &rows[n];
  }
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const auto pairs = static_cast<double>(visible_pairs(masks[n], length, length));
    fmt::print("{:<{}} {:>7} {:>6.2f}%", o.masks[n], width, length, 100 * pairs / all_pairs);
    // Backward: the scores once more, dP, dV, dQ, dK.
    print_pass(rows[n].forward, 2, pairs, full ? &full->forward : nullptr, all_pairs, o, limit);
    print_pass(rows[n].backward, 5, pairs, full ? &full->backward : nullptr, all_pairs, o, limit);
    fmt::print("\n");
  }
  std::fflush(stdout);
}

void run(const Options& o) {
  nn::use_openmp(o.threads);
  if (o.kv_heads > 0 && o.heads % o.kv_heads != 0)
    throw InvalidArgument("fovea bench attention", "--kv-heads",
                          "a divisor of --heads " + std::to_string(o.heads), std::to_string(o.kv_heads));
  AttentionSpec spec;
  if (o.score == "dot") spec.score = Dot{};
  if (o.score == "bilinear") spec.score = Bilinear{};
  if (o.score == "additive") spec.score = Additive{};
  std::vector<Mask> masks;
  for (const std::string& text : o.masks) masks.push_back(parse_mask(text));
  const Clock clock = o.clock == "cpu" ? Clock::cpu : Clock::wall;
  const double limit = in_own_process([clock] { return std::vector<double>{product_gflops(clock)}; }).at(0);
  const std::int64_t longest = *std::max_element(o.lengths.begin(), o.lengths.end());
  const AttentionPlan named = make_plan(spec, shape_for(o, longest), {.kernel = o.kernel});
  fmt::print(
      "{}, {} score, batch {}, heads {}/{}, head_dim {}, f32, {} threads. Limit: a 1536^3 f32 product, "
      "{:.0f} GFLOP/s. Times of the {} clock.\nGFLOP/s count the pairs that the mask keeps; /pair is the "
      "time a pair kept, where "
      "everything takes 1; MB is what the process of the row grew by: operands, results, workspace.\n",
      named.kernel(), o.score, o.batch, o.heads, o.kv_heads ? o.kv_heads : o.heads, o.dim,
      default_executor().thread_count(), limit, o.clock);
  std::size_t width = 4;
  for (const std::string& text : o.masks) width = std::max(width, text.size());
  fmt::print("{:<{}} {:>7} {:>7}", "mask", width, "length", "kept");
  for (const char* pass : {"forward ms", "backward ms"})
    fmt::print(" {:>11} {:>8} {:>7} {:>8} {:>9}", pass, "GFLOP/s", "limit", "/pair", "MB");
  fmt::print("\n");
  for (const std::int64_t length : o.lengths) print_length(o, spec, masks, length, limit, width);
}

}  // namespace

void register_bench_attention(CLI::App& bench) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      bench.add_subcommand("attention", "Time, arithmetic and memory of the attention engine");
  command->add_option("--lengths", o->lengths, "of queries and keys")->check(CLI::Range(1, 1 << 22));
  command->add_option("--masks", o->masks,
                      "expressions, as fovea attend reads them; beside everything, if it is among them");
  command->add_option("--score", o->score)
      ->check(CLI::IsMember({"scaled-dot", "dot", "bilinear", "additive"}));
  command->add_option("--batch", o->batch)->check(CLI::Range(1, 65536));
  command->add_option("--heads", o->heads)->check(CLI::Range(1, 65536));
  command->add_option("--kv-heads", o->kv_heads, "default: as many as heads")->check(CLI::Range(1, 65536));
  command->add_option("--head-dim", o->dim)->check(CLI::Range(1, 4096));
  command->add_option("--kernel", o->kernel, "avx512, avx2, baseline or reference; default: the best");
  command->add_option("--repeat", o->repeat, "the best of so many runs counts")->check(CLI::Range(1, 1000));
  command->add_option("--rounds", o->rounds, "all rows so many times over, the best of each counts")
      ->check(CLI::Range(1, 1000));
  command->add_option("--clock", o->clock, "cpu: time that the process used, all threads together")
      ->check(CLI::IsMember({"wall", "cpu"}));
  command->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli

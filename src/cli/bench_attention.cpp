// fovea bench attention: time, arithmetic and memory of the engine. Machines are shared and noisy, so every
// number stands beside a limit measured in the same run: a large f32 matrix product on the same threads.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "autograd/gemm.h"
#include "cli/bench.h"
#include "cli/memory.h"
#include "fovea/attention/expression.h"
#include "fovea/core/philox.h"
#include "fovea/nn/module.h"
#include "fovea/plan/plan.h"

namespace fovea::cli {
namespace {

struct Options {
  std::vector<std::int64_t> lengths{1024, 4096};
  std::vector<std::string> masks{"everything", "causal", "window(255,0)"};
  std::string score = "scaled-dot", kernel;
  std::int64_t batch = 1, heads = 16, kv_heads = 0, dim = 64, repeat = 3;
  int threads = 0;
};

double product_gflops() {
  constexpr std::int64_t n = 1536;
  const Tensor a = random_operand({n, n}, 1), b = random_operand({n, n}, 2), c(DType::f32, {n, n});
  const double seconds = best_seconds(5, [&] {
    autograd::gemm(n, n, n, {a.data<float>(), n}, {b.data<float>(), n}, 0.0f, c.data<float>(), n);
  });
  return 2e-9 * n * n * n / seconds;
}

// Pairs of a query and a key that the mask lets meet, in one batch entry and head.
std::int64_t visible_pairs(const Mask& mask, std::int64_t length) {
  std::int64_t pairs = 0;
  for (std::int64_t row = 0; row < length; ++row) {
    for (const KeySpan& span : mask.node().spans({0, row, row + 1, length, {}}).some)
      pairs += span.end - span.begin;
  }
  return pairs;
}

void measure(const Options& o, const AttentionSpec& spec, std::int64_t length, double limit) {
  const std::int64_t kv_heads = o.kv_heads ? o.kv_heads : o.heads;
  const AttentionShape shape{.batch = o.batch,
                             .num_query_heads = o.heads,
                             .num_kv_heads = kv_heads,
                             .query_len = length,
                             .key_len = length,
                             .head_dim = o.dim,
                             .value_dim = o.dim,
                             .hidden = o.dim};
  const AttentionPlan plan = make_plan(spec, shape, {.kernel = o.kernel});
  reset_peak_memory();
  const Shape queries{o.batch, o.heads, length, o.dim}, keys{o.batch, kv_heads, length, o.dim};
  const Tensor q = random_operand(queries, 1), k = random_operand(keys, 2), v = random_operand(keys, 3),
               vector = random_operand({o.dim}, 4), matrix = random_operand({o.dim, o.dim}, 5),
               output(DType::f32, queries), lse(DType::f32, {o.batch, o.heads, length});
  AttentionInputs in{.query = q, .key = k, .value = v};
  if (std::holds_alternative<Additive>(spec.score)) in.parameters.v = vector;
  if (std::holds_alternative<Bilinear>(spec.score)) in.parameters.W = matrix;
  const double forward =
      best_seconds(o.repeat, [&] { attend(plan, in, {.output = output, .log_sum_exp = lse}); });
  const double forward_memory = peak_memory();
  const Tensor d_output = random_operand(queries, 6), d_q(DType::f32, queries), d_k(DType::f32, keys),
               d_v(DType::f32, keys);
  const double backward = best_seconds(o.repeat, [&] {
    attend_backward(plan, in, output, lse, d_output, {.query = d_q, .key = d_k, .value = d_v});
  });
  // Two products forward, five backward (the scores once more, dP, dV, dQ, dK), of 2·dim operations a pair.
  const double pair =
      2e-9 * static_cast<double>(visible_pairs(spec.mask, length) * o.batch * o.heads * o.dim);
  fmt::print("{:<16} {:>7} {:>10.2f} {:>8.1f} {:>6.0f}% {:>9.1f} {:>11.2f} {:>8.1f} {:>6.0f}% {:>9.1f}\n",
             to_string(spec.mask), length, 1e3 * forward, 2 * pair / forward, 200 * pair / forward / limit,
             forward_memory, 1e3 * backward, 5 * pair / backward, 500 * pair / backward / limit,
             peak_memory());
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
  const double limit = product_gflops();
  const AttentionPlan named =
      make_plan(spec, {.query_len = 1, .key_len = 1, .head_dim = o.dim, .value_dim = o.dim, .hidden = o.dim},
                {.kernel = o.kernel});
  fmt::print(
      "{}, {} score, batch {}, heads {}/{}, head_dim {}, f32, {} threads. Limit: a 1536^3 f32 product, "
      "{:.0f} "
      "GFLOP/s.\nGFLOP/s count the pairs that the mask lets meet; MB is the peak resident size of the whole "
      "process, operands included.\n",
      named.kernel(), o.score, o.batch, o.heads, o.kv_heads ? o.kv_heads : o.heads, o.dim,
      default_executor().thread_count(), limit);
  fmt::print("{:<16} {:>7} {:>10} {:>8} {:>7} {:>9} {:>11} {:>8} {:>7} {:>9}\n", "mask", "length",
             "forward ms", "GFLOP/s", "limit", "MB", "backward ms", "GFLOP/s", "limit", "MB");
  for (const std::int64_t length : o.lengths) {
    for (const Mask& mask : masks) {
      spec.mask = mask;
      measure(o, spec, length, limit);
    }
  }
}

}  // namespace

void register_bench_attention(CLI::App& bench) {
  auto o = std::make_shared<Options>();
  CLI::App* command =
      bench.add_subcommand("attention", "Time, arithmetic and memory of the attention engine");
  command->add_option("--lengths", o->lengths, "of queries and keys")->check(CLI::Range(1, 1 << 22));
  command->add_option("--masks", o->masks, "expressions, as fovea attend reads them");
  command->add_option("--score", o->score)
      ->check(CLI::IsMember({"scaled-dot", "dot", "bilinear", "additive"}));
  command->add_option("--batch", o->batch)->check(CLI::Range(1, 65536));
  command->add_option("--heads", o->heads)->check(CLI::Range(1, 65536));
  command->add_option("--kv-heads", o->kv_heads, "default: as many as heads")->check(CLI::Range(1, 65536));
  command->add_option("--head-dim", o->dim)->check(CLI::Range(1, 4096));
  command->add_option("--kernel", o->kernel, "avx512, avx2, baseline or reference; default: the best");
  command->add_option("--repeat", o->repeat, "the best of so many runs counts")->check(CLI::Range(1, 1000));
  command->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->callback([o] { run(*o); });
}

}  // namespace fovea::cli

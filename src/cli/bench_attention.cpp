#include <fmt/format.h>

#include <algorithm>

#include "bench/attention.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "fovea/attention/expression.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/nn/module.h"

namespace fovea::cli {
namespace {

struct BenchAttentionCommand {
  std::vector<std::int64_t> lengths{1024, 4096};
  std::vector<std::string> masks{"everything", "causal", "window(255,0)"};
  std::string score = "scaled-dot", clock = "wall";
  bench::AttentionBench bench;
  int threads = 0;
};

void print_pass(const bench::PassCost& pass) {
  fmt::print(" {:>11.2f} {:>8.1f} {:>6.0f}% {:>8} {:>9.1f}", 1e3 * pass.seconds, pass.gflops,
             100 * pass.share_of_limit, pass.per_pair ? fmt::format("{:.2f}", *pass.per_pair) : "-",
             pass.megabytes);
}

void print_header(const BenchAttentionCommand& o, double limit, std::size_t width) {
  const bench::AttentionSizes& sizes = o.bench.sizes;
  const std::int64_t longest = *std::max_element(o.lengths.begin(), o.lengths.end());
  fmt::print(
      "{}, {} score, batch {}, heads {}/{}, head_dim {}, f32, {} threads. Limit: a 1536^3 f32 product, "
      "{:.0f} GFLOP/s. Times of the {} clock.\nGFLOP/s count the pairs that the mask keeps; /pair is the "
      "time for each kept pair, divided by that of everything; MB is the growth of the row's process: "
      "operands, results, workspace.\n",
      bench::plan_for(o.bench, Everything{}, longest).kernel(), o.score, sizes.batch, sizes.heads,
      sizes.kv_heads, sizes.head_dim, default_executor().thread_count(), limit, o.clock);
  fmt::print("{:<{}} {:>7} {:>7}", "mask", width, "length", "kept");
  for (const char* pass : {"forward ms", "backward ms"})
    fmt::print(" {:>11} {:>8} {:>7} {:>8} {:>9}", pass, "GFLOP/s", "limit", "/pair", "MB");
  fmt::print("\n");
}

void run(BenchAttentionCommand o) {
  nn::use_threads(o.threads);
  bench::AttentionSizes& sizes = o.bench.sizes;
  if (sizes.kv_heads > 0 && sizes.heads % sizes.kv_heads != 0)
    throw InvalidArgument("fovea bench attention", "--kv-heads",
                          "a divisor of --heads " + std::to_string(sizes.heads),
                          std::to_string(sizes.kv_heads));
  if (sizes.kv_heads == 0) sizes.kv_heads = sizes.heads;
  if (o.score == "dot") o.bench.score = Dot{};
  if (o.score == "bilinear") o.bench.score = Bilinear{};
  if (o.score == "additive") o.bench.score = Additive{};
  if (o.clock == "cpu") o.bench.clock = bench::Clock::cpu;
  std::vector<Mask> masks;
  std::size_t width = 4;
  for (const std::string& text : o.masks) {
    masks.push_back(parse_mask(text));
    width = std::max(width, text.size());
  }
  const double limit = bench::product_limit(o.bench.clock);
  print_header(o, limit, width);
  for (const std::int64_t length : o.lengths) {
    const std::vector<bench::AttentionRow> rows = bench::measure_masks(o.bench, masks, length, limit);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      fmt::print("{:<{}} {:>7} {:>6.2f}%", o.masks[n], width, length, 100 * rows[n].kept);
      print_pass(rows[n].forward);
      print_pass(rows[n].backward);
      fmt::print("\n");
    }
    std::fflush(stdout);
  }
}

}  // namespace

void register_bench_attention(Command bench) {
  auto o = std::make_shared<BenchAttentionCommand>();
  bench::AttentionSizes& sizes = o->bench.sizes;
  sizes.kv_heads = 0;
  Command command = bench.add_subcommand("attention", "Time, arithmetic and memory of the attention engine");
  command.add_option("--lengths", o->lengths, "numbers of queries and of keys").check(in_range(1, 1 << 22));
  command.add_option("--masks", o->masks,
                     "expressions, as fovea attend reads them; with everything among them, /pair compares "
                     "the others with it");
  command.add_option("--score", o->score, "how a query and a key are compared")
      .check(one_of({"scaled-dot", "dot", "bilinear", "additive"}));
  command.add_option("--batch", sizes.batch, "texts").check(in_range(1, 65536));
  command.add_option("--heads", sizes.heads, "of queries").check(in_range(1, 65536));
  command.add_option("--kv-heads", sizes.kv_heads, "default: the number of --heads")
      .check(in_range(1, 65536));
  command.add_option("--head-dim", sizes.head_dim, "numbers of a row").check(in_range(1, 4096));
  command.add_option("--kernel", o->bench.kernel, "avx512, avx2, baseline or reference; default: the best");
  command.add_option("--repeat", o->bench.repeat, "runs, of which the best counts").check(in_range(1, 1000));
  command.add_option("--rounds", o->bench.rounds, "times that all rows are measured; the best of each counts")
      .check(in_range(1, 1000));
  command.add_option("--clock", o->clock, "cpu: time that the process used, all threads together")
      .check(one_of({"wall", "cpu"}));
  add_threads_option(command, o->threads);
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli

#include <fmt/format.h>

#include "bench/mods.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "fovea/core/executor.h"
#include "fovea/nn/module.h"

namespace fovea::cli {
namespace {

struct BenchModsCommand {
  bench::ModsBench bench;
  int threads = 0;
};

void run(const BenchModsCommand& o) {
  nn::use_threads(o.threads);
  fmt::print(
      "Mods and normalisers, length {}, {} heads of {}, {}, {} threads; gradients of arguments included.\n",
      o.bench.length, o.bench.heads, o.bench.head_dim, to_string(o.bench.dtype),
      default_executor().thread_count());
  fmt::print("{:<26} {:>10} {:>6} {:>11} {:>6}\n", "beside softmax alone", "forward ms", "ratio",
             "backward ms", "ratio");
  bench::measure_mods(o.bench, [](const bench::ModsRow& row) {
    fmt::print("{:<26} {:>10.2f} {:>6.2f} {:>11.2f} {:>6.2f}\n", row.name, 1e3 * row.forward_seconds,
               row.forward_ratio, 1e3 * row.backward_seconds, row.backward_ratio);
    std::fflush(stdout);
  });
}

}  // namespace

void register_bench_mods(Command bench) {
  auto o = std::make_shared<BenchModsCommand>();
  Command command = bench.add_subcommand("mods", "What mods and normalisers cost beside plain softmax");
  command.add_option("--length", o->bench.length, "the number of queries and of keys")
      .check(in_range(1, 1 << 15));
  command.add_option("--heads", o->bench.heads).check(in_range(1, 1024));
  command.add_option("--head-dim", o->bench.head_dim).check(in_range(1, 4096));
  const std::vector<std::pair<std::string, DType>> types{{"f32", DType::f32}, {"bf16", DType::bf16}};
  command.add_choice("--dtype", o->bench.dtype, types, "of queries, keys, values and results")
      .option_text("f32 or bf16=f32");
  command.add_option("--only", o->bench.only, "rows whose names contain this text");
  command.add_option("--kernel", o->bench.kernel,
                     "avx512bf16, avx512, avx2, baseline or reference; default: the best");
  command.add_option("--repeat", o->bench.repeat, "turns, whose medians count").check(in_range(1, 1000));
  add_threads_option(command, o->threads);
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli

// `fovea bench packed`: packed batches compared with their sequences run alone.
#include <fmt/format.h>

#include "bench/packed.h"
#include "cli/bench.h"
#include "fovea/core/executor.h"

namespace fovea::cli {
namespace {

void run(bench::PackedBench bench) {
  if (bench.threads == 0) bench.threads = default_executor().thread_count();
  fmt::print(
      "Packed batches beside their sequences run alone, lengths 1 to {}, {} heads ({} of keys) of {}, "
      "causal.\n",
      bench.longest, bench.heads, bench.kv_heads, bench.head_dim);
  fmt::print("{:<22} {:>5} {:>4} {:>7} {:>10} {:>6} {:>11} {:>6}\n", "", "of", "", "threads", "forward ms",
             "ratio", "backward ms", "ratio");
  bench::measure_packed(bench, [](const bench::PackedRow& row) {
    fmt::print("{:<22} {:>5} {:>4} {:>7} {:>10.2f} {:>6.2f} {:>11.2f} {:>6.2f}\n", row.name, row.sequences,
               to_string(row.dtype), row.threads, 1e3 * row.forward_seconds, row.forward_ratio,
               1e3 * row.backward_seconds, row.backward_ratio);
    std::fflush(stdout);
  });
}

}  // namespace

void register_bench_packed(Command command_group) {
  auto o = std::make_shared<bench::PackedBench>(bench::PackedBench{.threads = 0});
  Command command = command_group.add_subcommand("packed", "Packed batches beside their sequences run alone");
  command.add_option("--longest", o->longest, "the longest sequence").check(in_range(1, 1 << 15));
  command.add_option("--heads", o->heads).check(in_range(1, 1024));
  command.add_option("--kv-heads", o->kv_heads).check(in_range(1, 1024));
  command.add_option("--head-dim", o->head_dim).check(in_range(1, 4096));
  command.add_option("--kernel", o->kernel, "avx512, avx2, baseline or reference; default: the best");
  command.add_option("--repeat", o->repeat, "runs, of which the best counts").check(in_range(1, 1000));
  command.add_option("--cpu-threads", o->threads, "threads of the rows that use several; 0: all")
      .check(in_range(0, 1024));
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli

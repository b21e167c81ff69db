// `fovea bench products`: linear layers at inference beside oneDNN's, and the limit of this machine.
#include <fmt/format.h>

#include "bench/products.h"
#include "cli/bench.h"
#include "fovea/core/executor.h"
#include "fovea/nn/module.h"

namespace fovea::cli {
namespace {

void print_row(const bench::ProductRow& row) {
  fmt::print(
      "{:>5} {:>5} {:>6} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>7.2f} {:>7.2f} {:>7.2f} "
      "{:>7.2f} {:>7.1f}\n",
      row.rows, row.in, row.out, 1e6 * row.packed, 1e6 * row.int8, 1e6 * row.bf16, 1e6 * row.by_row,
      1e6 * row.onednn, row.packed / row.onednn, row.int8 / row.onednn, row.bf16 / row.onednn,
      row.by_row / row.onednn, 100.0 * row.limit / row.packed);
  std::fflush(stdout);
}

void run(bench::ProductBench bench, int threads) {
  nn::use_threads(threads);
  bench.threads = default_executor().thread_count();
  fmt::print(
      "Products of f32 rows with a matrix [out, in], {} threads: weights packed once, in f32, in int8 "
      "and in bf16, weights as they are by row, and oneDNN's sgemm. All but sgemm give a row the same bits "
      "in any "
      "batch. Times in µs, ratios "
      "to "
      "sgemm, and the share of the limit that packed weights of f32 reach, in %. The limit reads the matrix "
      "from "
      "memory, so a share above 100 means a matrix that stayed in the caches.\n",
      bench.threads);
  fmt::print("{:>5} {:>5} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7} {:>7}\n", "rows",
             "in", "out", "packed", "int8", "bf16", "by row", "sgemm", "packed", "int8", "bf16", "by row",
             "share");
  bench::measure_products(bench, print_row);
}

}  // namespace

void register_bench_products(CLI::App& command_group) {
  auto o = std::make_shared<bench::ProductBench>();
  auto threads = std::make_shared<int>(0);
  CLI::App* command = command_group.add_subcommand(
      "products", "Linear layers at inference, by packed weights and by row, compared with oneDNN");
  command->add_option("--rows", o->rows, "rows of a product")->delimiter(',')->check(CLI::Range(1, 1 << 20));
  command->add_option("--repeat", o->repeat, "turns, of which the best counts")->check(CLI::Range(1, 1000));
  command->add_option("--cpu-threads", *threads, "threads; 0: all")->check(CLI::Range(0, 1024));
  command->callback([o, threads] { run(*o, *threads); });
}

}  // namespace fovea::cli

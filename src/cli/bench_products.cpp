// `fovea bench products`: linear layers at inference beside oneDNN's, and the limit of this machine.
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "bench/products.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "fovea/core/executor.h"
#include "fovea/nn/module.h"

namespace fovea::cli {
namespace {

// What was not measured is a dash.
std::string number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}
std::string ratio(double ours, double onednn) {
  return std::isfinite(onednn) ? number(ours / onednn, 2) : "-";
}

void print_row(const bench::ProductRow& row) {
  fmt::print(
      "{:>5} {:>5} {:>6} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>10} {:>7} {:>7} {:>7} {:>7} {:>7.1f}\n",
      row.rows, row.in, row.out, 1e6 * row.packed, 1e6 * row.int8, 1e6 * row.bf16, 1e6 * row.by_row,
      number(1e6 * row.onednn, 1), ratio(row.packed, row.onednn), ratio(row.int8, row.onednn),
      ratio(row.bf16, row.onednn), ratio(row.by_row, row.onednn), 100.0 * row.limit / row.packed);
  std::fflush(stdout);
}

void print_training_row(const bench::TrainingProductRow& row) {
  const auto [what, rows, columns, depth, transposed] = row.product;
  fmt::print("{:<28} {:>5} {:>7} {:>6} {:>10.0f} {:>10} {:>8} {:>8.2f} {:>8.2f} {:>7.0f}\n", what, rows,
             columns, depth, 1e6 * row.gemm, number(1e6 * row.onednn, 0), ratio(row.gemm, row.onednn),
             row.halves / row.gemm, row.smallest / row.gemm, 100.0 * row.limit / row.gemm);
  std::fflush(stdout);
}

void run_training(const bench::ProductBench& bench) {
  fmt::print(
      "Products of a training in f32, {} threads: as the layers compute them, cut into blocks of which "
      "each is computed on one thread, and whole, by oneDNN's sgemm on a team of OpenMP. Times in "
      "µs; their ratio; the times of blocks of half the rows and columns and of blocks of 64 x 64, over "
      "those of our blocks; the share of the arithmetic peak that ours reach, in %.\n",
      bench.threads);
  fmt::print("{:<28} {:>5} {:>7} {:>6} {:>10} {:>10} {:>8} {:>8} {:>8} {:>7}\n", "product", "rows", "columns",
             "depth", "blocks", "sgemm", "ratio", "halves", "64 x 64", "share");
  bench::measure_training_products(bench, print_training_row);
}

void run(bench::ProductBench bench, int threads, bool training) {
  nn::use_threads(threads);
  bench.threads = default_executor().thread_count();
  if (training) return run_training(bench);
  fmt::print(
      "Products of f32 rows with a matrix [out, in], {} threads: weights packed once, in f32, in int8 and "
      "in bf16, weights as they are by row, and oneDNN's sgemm. All but sgemm give a row the same bits in "
      "any batch. Times in µs, ratios to sgemm, and the share of the limit that packed weights of f32 "
      "reach, in %. The limit reads the matrix from memory, so a share above 100 means a matrix that "
      "stayed in the caches. Without libdnnl, sgemm is not measured.\n",
      bench.threads);
  fmt::print("{:>5} {:>5} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7} {:>7}\n", "rows",
             "in", "out", "packed", "int8", "bf16", "by row", "sgemm", "packed", "int8", "bf16", "by row",
             "share");
  bench::measure_products(bench, print_row);
}

}  // namespace

void register_bench_products(Command command_group) {
  auto o = std::make_shared<bench::ProductBench>();
  auto threads = std::make_shared<int>(0);
  auto training = std::make_shared<bool>(false);
  Command command = command_group.add_subcommand(
      "products", "Linear layers, at inference by packed weights and by row, compared with oneDNN");
  Option rows =
      command.add_option("--rows", o->rows, "rows of a product").delimiter(',').check(in_range(1, 1 << 20));
  command.add_flag("--training", *training, "instead, the products of a training, cut into blocks and whole")
      .excludes(rows);
  command.add_option("--repeat", o->repeat, "turns, of which the best counts").check(in_range(1, 1000));
  add_threads_option(command, *threads);
  command.callback([o, threads, training] { run(*o, *threads, *training); });
}

}  // namespace fovea::cli

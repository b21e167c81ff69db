// `fovea bench cache`: attention over a cache compared with tensors, and operations on the cache.
#include <fmt/format.h>

#include <algorithm>

#include "bench/cached.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::cli {
namespace {

std::string milliseconds(double seconds) {
  if (seconds <= 0.0) return "";
  return seconds < 1e-4 ? fmt::format("{:.5f}", 1e3 * seconds) : fmt::format("{:.3f}", 1e3 * seconds);
}
std::string ratio(double value) {
  return value > 0.0 ? fmt::format("{:.2f}", value) : "";
}

void print_stores(const bench::CachedBench& bench) {
  fmt::print(
      "Attention over a cache, {} heads ({} of keys) of {}, causal, {} threads. Medians, times in ms.\n"
      "price: contiguous store / tensors, what bits that depend on positions alone cost. speed: contiguous / "
      "pages.\n"
      "In the mixed row `tensors` is the sum of its entries run alone, and price is pages of 64 / that "
      "sum.\n",
      bench.heads, bench.kv_heads, bench.head_dim, bench.threads);
  fmt::print("{:<34} {:>4} {:>9} {:>11} {:>6} {:>9} {:>6} {:>9} {:>6}\n", "", "", "tensors", "contiguous",
             "price", "pages 64", "speed", "pages 16", "speed");
  bool any = false;
  bench::measure_cached(bench, [&any](const bench::CachedRow& row) {
    any = true;
    fmt::print("{:<34} {:>4} {:>9} {:>11} {:>6} {:>9} {:>6} {:>9} {:>6}\n", row.name, to_string(row.dtype),
               milliseconds(row.tensors), milliseconds(row.contiguous), ratio(row.price),
               milliseconds(row.pages_64), ratio(row.speed_64), milliseconds(row.pages_16),
               ratio(row.speed_16));
    std::fflush(stdout);
  });
  if (!any && !bench.only.empty())
    throw InvalidArgument("fovea bench cache", "--only", "part of a row's name, such as batch 16",
                          bench.only);
}

void print_shared(const bench::CachedBench& bench) {
  fmt::print(
      "\nA step of {} texts with {} keys in common, {} threads. Medians, times in ms; "
      "gain: with a copy of the keys each / forks.\n{:>12} {:>6} {:>12} {:>9} {:>6}\n",
      bench.texts, bench.prefix, bench.threads, "heads", "", "copies", "forks", "gain");
  bench::measure_shared(bench, [](const bench::SharedRow& row) {
    fmt::print("{:>12} {:>6} {:>12} {:>9} {:>6}\n", fmt::format("{}/{}", row.heads, row.kv_heads),
               to_string(row.dtype), milliseconds(row.apart), milliseconds(row.together), ratio(row.gain));
    std::fflush(stdout);
  });
}

void print_operations() {
  fmt::print("\nOperations on a sequence in pages of 64, in microseconds.\n{:>8} {:>6} {:>16} {:>6} {:>20}\n",
             "rows", "fork", "fork and append", "step", "truncate and append");
  bench::measure_operations([](const bench::OperationRow& row) {
    fmt::print("{:>8} {:>6.2f} {:>16.2f} {:>6.2f} {:>20.2f}\n", row.rows, 1e6 * row.fork,
               1e6 * row.fork_and_append, 1e6 * row.step, 1e6 * row.truncate);
    std::fflush(stdout);
  });
}

struct Parts {
  std::vector<std::string> names{"stores", "shared", "operations"};
  bool has(const char* name) const { return std::find(names.begin(), names.end(), name) != names.end(); }
};

void run(bench::CachedBench bench, const Parts& parts) {
  if (bench.threads == 0) bench.threads = default_executor().thread_count();
  if (parts.has("stores")) print_stores(bench);
  if (parts.has("shared")) print_shared(bench);
  if (parts.has("operations")) print_operations();
}

}  // namespace

void register_bench_cached(Command command_group) {
  auto o = std::make_shared<bench::CachedBench>(bench::CachedBench{.threads = 0});
  auto parts = std::make_shared<Parts>();
  Command command = command_group.add_subcommand(
      "cache", "Attention over a cache beside tensors, and the time of operations on the cache");
  command.add_option("--heads", o->heads).check(in_range(1, 1024));
  command.add_option("--kv-heads", o->kv_heads).check(in_range(1, 1024));
  command.add_option("--head-dim", o->head_dim).check(in_range(1, 4096));
  command
      .add_option("--lengths", o->lengths,
                  "keys of a sequence; short ones are measured too, such as 16,64,300")
      .delimiter(',')
      .check(in_range(1, 1 << 22));
  command.add_option("--batches", o->batches, "sequences that decode together")
      .delimiter(',')
      .check(in_range(1, 4096));
  command.add_option("--most-megabytes", o->most_megabytes, "rows that need more memory are left out")
      .check(in_range(1, 1 << 24));
  command.add_option("--kernel", o->kernel, "avx512, avx2, baseline or reference; default: the best");
  command.add_option("--only", o->only, "the rows over stores whose names contain this");
  command.add_option("--repeat", o->repeat, "turns; times and ratios are medians over them")
      .check(in_range(1, 1000));
  add_threads_option(command, o->threads);
  command.add_option("--texts", o->texts, "texts with a common prefix").check(in_range(2, 1024));
  command.add_option("--prefix", o->prefix, "keys that they have in common").check(in_range(1, 1 << 22));
  command.add_option("--parts", parts->names, "stores, shared, operations; default: all")
      .delimiter(',')
      .check(one_of({"stores", "shared", "operations"}));
  command.callback([o, parts] { run(*o, *parts); });
}

}  // namespace fovea::cli

#include "cli/bench.h"

#include <fmt/format.h>

#include "bench/decode.h"
#include "bench/measure.h"
#include "cli/commands.h"
#include "fovea/nn/module.h"

namespace fovea::cli {
namespace {

struct BenchCommand {
  std::vector<std::int64_t> lengths{32, 64, 128, 256, 512};
  int threads = 0, beam = 1;
};

void print_row(const bench::DecodeRow& row) {
  fmt::print("{:<13} {:>6} {:>5} {:>9.0f} {:>9.0f} {:>6.1f} {:>9} {:>9} {:>6.1f} {:>6.1f} {:>10} {:>11}\n",
             row.model, row.length, row.on.ids == row.off.ids ? "yes" : "NO", row.on.tokens_per_second,
             row.off.tokens_per_second, row.ratio, row.on.stats.peak_state_bytes,
             row.off.stats.peak_state_bytes, row.on.megabytes, row.off.megabytes,
             row.on.stats.score_evaluations, row.off.stats.score_evaluations);
}

void run_decode(const BenchCommand& o) {
  nn::use_threads(o.threads);
  fmt::print(
      "Decoding one sentence, {}, source and target of the same length. Models are untrained: time does "
      "not depend on the weights. Bytes are the keys, values and states kept from one step to the next; MB "
      "is the "
      "peak resident size of the whole process.\n",
      o.beam == 1 ? std::string("greedy") : fmt::format("by {} beams", o.beam));
  fmt::print("{:<13} {:>6} {:>5} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>6} {:>10} {:>11}\n", "model",
             "length", "same", "tok/s on", "tok/s off", "ratio", "bytes on", "bytes off", "MB on", "MB off",
             "scores on", "scores off");
  bench::measure_decoding(o.lengths, o.beam, print_row);
}

}  // namespace

void register_bench(Command app) {
  Command bench = app.add_subcommand("bench", "Benchmarks, whose ratios come from one run");
  bench.require_subcommand();
  bench.when_read([] { end_on_signals(bench::remove_work_folders); });
  register_bench_attention(bench);
  register_bench_kernels(bench);
  register_bench_mods(bench);
  register_bench_packed(bench);
  register_bench_cached(bench);
  register_bench_recurrence(bench);
  register_bench_products(bench);
  register_bench_train(bench);
  register_bench_inference(bench);
  register_bench_model(bench);
  auto o = std::make_shared<BenchCommand>();
  Command decode =
      bench.add_subcommand("decode", "Decoding with and without reuse of keys, values and states");
  decode.add_option("--lengths", o->lengths, "source and target lengths").check(in_range(2, 100000));
  decode.add_option("--beam-size", o->beam, "1: greedy").check(in_range(1, 1000));
  add_threads_option(decode, o->threads);
  decode.callback([o] { run_decode(*o); });
}

}  // namespace fovea::cli

#include "cli/bench.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "cli/commands.h"
#include "cli/memory.h"
#include "fovea/core/philox.h"
#include "fovea/models/decoding.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"

namespace fovea::cli {
namespace {

struct Options {
  std::vector<std::int64_t> lengths{32, 64, 128, 256, 512};
  int threads = 0;
};

struct Timed {
  std::vector<std::int32_t> ids;
  models::DecodeStats stats;
  double seconds = 0.0, megabytes = 0.0;
};

Timed decode_once(models::SequenceToSequence& model, std::int64_t length, models::Reuse reuse) {
  std::vector<std::int32_t> source(static_cast<std::size_t>(length) - 1);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = 4 + static_cast<std::int32_t>(i * 7919 % 990);
  reset_peak_memory();
  const auto begin = std::chrono::steady_clock::now();
  Timed timed;
  const auto result = models::decode(model, {source}, {.exact_length = length, .reuse = reuse}, &timed.stats);
  timed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  timed.megabytes = peak_memory();
  timed.ids = result[0][0].ids;
  return timed;
}

void run_decode(const Options& o) {
  nn::use_openmp(o.threads);
  const std::pair<const char*, std::unique_ptr<models::SequenceToSequence>> list[] = {
      {"rnn none", models::make_rnn({.vocabulary = 1000, .attention = models::RnnAttention::none}, 1)},
      {"rnn additive", models::make_rnn({.vocabulary = 1000}, 1)},
      {"transformer", models::make_transformer({.vocabulary = 1000}, 1)}};
  fmt::print(
      "Decoding one sentence, greedy, source and target of the same length. Models are untrained: time does "
      "not depend on the weights. Bytes are the keys, values and states kept from one step to the next; MB "
      "is the "
      "peak resident size of the whole process.\n");
  fmt::print("{:<13} {:>6} {:>5} {:>9} {:>9} {:>6} {:>9} {:>9} {:>6} {:>6} {:>10} {:>11}\n", "model",
             "length", "same", "tok/s on", "tok/s off", "ratio", "bytes on", "bytes off", "MB on", "MB off",
             "scores on", "scores off");
  for (const auto& [name, model] : list) {
    for (const std::int64_t length : o.lengths) {
      decode_once(*model, std::min<std::int64_t>(length, 32), models::Reuse::on);
      const Timed on = decode_once(*model, length, models::Reuse::on),
                  off = decode_once(*model, length, models::Reuse::off);
      const auto tokens = static_cast<double>(length);
      fmt::print(
          "{:<13} {:>6} {:>5} {:>9.0f} {:>9.0f} {:>6.1f} {:>9} {:>9} {:>6.1f} {:>6.1f} {:>10} {:>11}\n", name,
          length, on.ids == off.ids ? "yes" : "NO", tokens / on.seconds, tokens / off.seconds,
          off.seconds / on.seconds, on.stats.peak_state_bytes, off.stats.peak_state_bytes, on.megabytes,
          off.megabytes, on.stats.score_evaluations, off.stats.score_evaluations);
    }
  }
}

}  // namespace

Tensor random_operand(Shape shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  PhiloxStream stream(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    tensor.data<float>()[i] = static_cast<float>(2.0 * stream.next_uniform() - 1.0);
  return tensor;
}

double best_seconds(std::int64_t repeat, const std::function<void()>& body, Clock clock) {
  const auto now = [clock] {
    timespec time{};
    clock_gettime(clock == Clock::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < repeat; ++i) {
    const double begin = now();
    body();
    best = std::min(best, now() - begin);
  }
  return best;
}

void register_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure, as ratios within one run");
  bench->require_subcommand(1);
  register_bench_attention(*bench);
  register_bench_kernels(*bench);
  register_bench_mods(*bench);
  register_bench_packed(*bench);
  auto o = std::make_shared<Options>();
  CLI::App* decode =
      bench->add_subcommand("decode", "Decoding with and without reuse of keys, values and states");
  decode->add_option("--lengths", o->lengths, "source and target lengths")->check(CLI::Range(2, 100000));
  decode->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  decode->callback([o] { run_decode(*o); });
}

}  // namespace fovea::cli

// `fovea bench train`: updates of small models, by the number of threads.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "bench/train.h"
#include "cli/bench.h"
#include "cli/bench_rivals.h"

namespace fovea::cli {
namespace {

void run(const bench::TrainBench& bench) {
  fmt::print(
      "Updates of small models. \"of peak\" is the time of all multiply-adds at the measured peak of these "
      "threads and this precision, divided by the time of an update. \"gain\" is beside the first row of a "
      "model. Parts are "
      "shares of the time of all threads.\n{:<12} {:<9} {:>7} {:>10} {:>10} {:>6} {:>8}  parts, %\n",
      "model", "precision", "threads", "ms", "tokens/s", "gain", "of peak");
  std::map<std::string, double> first;
  RivalLines lines;
  bench::measure_training(bench, [&](const bench::TrainRow& row) {
    const double alone = first.try_emplace(row.model, row.seconds).first->second;
    fmt::print("{:<12} {:<9} {:>7} {:>10.2f} {:>10.0f} {:>5.2f}x {:>7.1f}%  {}\n", row.model,
               autograd::to_string(row.precision), row.threads, 1e3 * row.seconds, row.tokens_per_second,
               alone / row.seconds, 100.0 * row.share, parts_text(row.parts));
    lines.print(row.model, row.seconds, row.rivals);
    std::fflush(stdout);
  });
}

}  // namespace

void register_bench_train(Command command_group) {
  auto o = std::make_shared<bench::TrainBench>();
  Command command = command_group.add_subcommand("train", "Training of small models: speed, threads, parts");
  command
      .add_option("--models", o->models, "any of: transformer, base (512 wide, 6 + 6 layers), rnn, language")
      .delimiter(',')
      .check(one_of(bench::train_models()));
  command.add_option("--threads", o->threads, "numbers of threads, which run in turns")
      .delimiter(',')
      .check(in_range(1, 1024));
  auto precisions = std::make_shared<std::vector<std::string>>(1, "f32");
  command.add_option("--precision", *precisions, "operands of products, which run in turns: f32, bf16")
      .delimiter(',')
      .check(one_of({"f32", "bf16"}));
  command.add_option("--vocabulary", o->vocabulary, "of the translators").check(in_range(8, 1 << 22));
  command.add_option("--mini-batch-words", o->batch_words, "tokens of a batch").check(in_range(1, 1 << 20));
  command.add_option("--rounds", o->rounds, "turns").check(in_range(1, 1000));
  command.add_option("--updates", o->updates, "updates of a turn").check(in_range(1, 100000));
  add_rivals(command, o->rivals, "PyTorch");
  command.callback([o, precisions] {
    o->precisions.clear();
    for (const std::string& precision : *precisions)
      o->precisions.push_back(autograd::parse_operands(precision));
    run(*o);
  });
}

}  // namespace fovea::cli

// `fovea bench translate` and `fovea bench generate`: models at work, by the number of threads.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>

#include "bench/inference.h"
#include "cli/bench.h"
#include "cli/bench_rivals.h"

namespace fovea::cli {
namespace {

using Measure = void (*)(const bench::InferenceBench&,
                         const std::function<void(const bench::InferenceRow&)>&);

struct Task {
  const char* width;  // what the column of widths counts
  const char* unit;
  Measure measure;
};

void run(const bench::InferenceBench& bench, const Task& task) {
  fmt::print(
      "Untrained models: time does not depend on the values of the weights. \"of peak\" is the time of all "
      "multiply-adds at the measured peaks of these threads, that of the weights' type for their products "
      "and "
      "of f32 for others, divided by the time of the task. \"gain\" is beside the first number of threads. "
      "Parts are shares of the time of all "
      "threads.\n{:<12} {:<7} {:>5} {:>7} "
      "{:>10} {:>12} {:>6} {:>8}  parts, %\n",
      "model", "weights", task.width, "threads", "tokens/s", task.unit, "gain", "of peak");
  std::map<std::string, double> first;
  RivalLines lines;
  task.measure(bench, [&](const bench::InferenceRow& row) {
    const std::string_view weights = autograd::to_string(row.weights);
    const double alone =
        first.try_emplace(fmt::format("{} {} {}", row.model, weights, row.width), row.seconds).first->second;
    fmt::print("{:<12} {:<7} {:>5} {:>7} {:>10.0f} {:>12.1f} {:>5.2f}x {:>7.1f}%  {}\n", row.model, weights,
               row.width, row.threads, row.tokens_per_second, row.per_second, alone / row.seconds,
               100.0 * row.share, parts_text(row.parts));
    std::fflush(stdout);
    lines.print(row.model, row.seconds, row.rivals);
  });
}

Command add_command(Command group, const char* name, const char* description,
                    const std::vector<std::string>& models, const Task& task,
                    const std::shared_ptr<bench::InferenceBench>& o) {
  Command command = group.add_subcommand(name, description);
  command.add_option("--models", o->models, "any of: " + fmt::format("{}", fmt::join(models, ", ")))
      .delimiter(',')
      .check(one_of(models));
  command.add_option("--threads", o->threads, "numbers of threads, which run in turns")
      .delimiter(',')
      .check(in_range(1, 1024));
  auto weights = std::make_shared<std::vector<std::string>>(1, "f32");
  command.add_option("--weights", *weights, "types of the weights: f32, bf16, int8")
      .delimiter(',')
      .check(one_of({"f32", "bf16", "int8"}));
  command.add_option("--rounds", o->rounds, "turns").check(in_range(1, 1000));
  command.callback([o, weights, task] {
    o->weights.clear();
    for (const std::string& type : *weights) o->weights.push_back(autograd::parse_weight_type(type));
    run(*o, task);
  });
  return command;
}

}  // namespace

void register_bench_inference(Command command_group) {
  auto translation = std::make_shared<bench::InferenceBench>();
  translation->models = {"transformer", "rnn"};
  translation->widths = {1, 5};
  Command translate = add_command(
      command_group, "translate", "Translation by small models: speed, threads, parts",
      bench::translation_models(), {"beam", "sentences/s", bench::measure_translation}, translation);
  translate.add_option("--beam-size", translation->widths, "1: greedy")
      .delimiter(',')
      .check(in_range(1, 1000));
  translate.add_option("--vocabulary", translation->vocabulary, "of source and target")
      .check(in_range(8, 1 << 22));
  translate.add_option("--sentences", translation->sentences, "to translate").check(in_range(1, 1 << 20));
  add_rivals(translate, translation->rivals, "CTranslate2");
  translate.add_option("--mini-batch", translation->batch, "sentences of a batch")
      .check(in_range(1, 1 << 16));

  auto generation = std::make_shared<bench::InferenceBench>();
  generation->models = {"characters"};
  generation->widths = {1, 16};
  generation->rivals = bench::generation_rivals();
  Command generate =
      add_command(command_group, "generate", "Generation by small language models: speed, threads, parts",
                  bench::generation_models(), {"texts", "texts/s", bench::measure_generation}, generation);
  generate.add_option("--texts", generation->widths, "written at once")
      .delimiter(',')
      .check(in_range(1, 1 << 16));
  generate.add_option("--prompt", generation->prompt, "tokens that a text begins with")
      .check(in_range(1, 1 << 20));
  generate.add_option("--tokens", generation->tokens, "tokens that are written").check(in_range(1, 1 << 20));
  add_rivals(generate, generation->rivals, "transformers or CTranslate2");
}

}  // namespace fovea::cli

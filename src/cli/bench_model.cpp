// `fovea bench model`: a folder of weights at work, beside the limits of the machine.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/model.h"
#include "cli/bench.h"

namespace fovea::cli {
namespace {

double share(double work, double rate, double seconds) {
  return rate > 0.0 && seconds > 0.0 ? work / rate / seconds : 0.0;
}

std::string text_of(const bench::ModelRow::Parts& parts) {
  std::string text;
  for (const auto& [name, part] : parts) {
    if (part >= 0.005) text += fmt::format("{}{} {:.0f}", text.empty() ? "" : ", ", name, 100.0 * part);
  }
  return text;
}

void print_row(const bench::ModelRow& row, double ids) {
  fmt::print("{:<7} {:>7} {:>10.2f} {:>10.0f} {:>7.1f}% {:>10.3f} {:>10.1f} {:>7.1f}%  {}; {}\n",
             autograd::to_string(row.weights), row.threads, 1e3 * row.reading, ids / row.reading,
             100.0 * share(row.reading_least, 1.0, row.reading), 1e3 * row.writing,
             row.writing > 0.0 ? 1.0 / row.writing : 0.0,
             100.0 * share(row.writing_bytes, row.read_rate, row.writing), text_of(row.reading_parts),
             text_of(row.writing_parts));
  std::fflush(stdout);
}

nlohmann::ordered_json json_of(const bench::ModelRow& row) {
  return {{"weights", autograd::to_string(row.weights)},
          {"threads", row.threads},
          {"reading_seconds", row.reading},
          {"reading_share", share(row.reading_least, 1.0, row.reading)},
          {"writing_seconds", row.writing},
          {"writing_bytes", row.writing_bytes},
          {"writing_share", share(row.writing_bytes, row.read_rate, row.writing)},
          {"peak_flops", 2.0 * row.peak},
          {"read_rate", row.read_rate},
          {"ids", row.ids}};
}

}  // namespace

void register_bench_model(Command command_group) {
  auto o = std::make_shared<bench::ModelBench>();
  auto weights = std::make_shared<std::vector<std::string>>(1, "f32");
  auto json = std::make_shared<bool>(false);
  Command command = command_group.add_subcommand(
      "model", "A folder of weights: reading a batch, writing at batch 1, shares of the limits");
  command.add_option("--model", o->folder, "folder of a model of any kind").required();
  command.add_option("--threads", o->threads, "numbers of threads").delimiter(',').check(in_range(1, 1024));
  command.add_option("--weights", *weights, "types of the weights: f32, bf16, int8")
      .delimiter(',')
      .check(one_of({"f32", "bf16", "int8"}));
  command.add_option("--batch", o->batch, "sequences that are read together").check(in_range(1, 1 << 16));
  command.add_option("--length", o->length, "ids of each").check(in_range(1, 1 << 20));
  command
      .add_option("--shortest", o->shortest,
                  "ids of the shortest of them, with the others between; padding is not counted")
      .check(in_range(1, 1 << 20));
  command.add_option("--prompt", o->prompt, "ids before the text that is written")
      .check(in_range(1, 1 << 20));
  command.add_option("--tokens", o->tokens, "written behind the first one").check(in_range(1, 1 << 20));
  command.add_option("--rounds", o->rounds, "turns").check(in_range(1, 1000));
  command.add_flag("--json", *json, "an object a line");
  command.callback([o, weights, json] {
    o->weights.clear();
    for (const std::string& type : *weights) o->weights.push_back(autograd::parse_weight_type(type));
    if (!*json)
      fmt::print(
          "Reading: the time of all multiply-adds at the measured peak of these threads and of their types, "
          "as a share of its time. Writing: the share of the rate of reading 512 MiB. Parts are shares of "
          "the time of all threads.\n"
          "{:<7} {:>7} {:>10} {:>10} {:>8} {:>10} {:>10} {:>8}  parts of reading; of writing, %\n",
          "weights", "threads", "read, ms", "ids/s", "of peak", "token, ms", "tokens/s", "of rate");
    const std::vector<std::int64_t> lengths = bench::lengths_of(*o);
    const double ids = std::accumulate(lengths.begin(), lengths.end(), 0.0);
    bench::measure_model(*o, [&](const bench::ModelRow& row) {
      if (*json)
        fmt::print("{}\n", json_of(row).dump());
      else
        print_row(row, ids);
    });
  });
}

}  // namespace fovea::cli

// Choosing a cheaper attention: what each way to mix the rows of a sequence saves, and what it loses. Two
// tasks are learned by models that differ in their mixer alone: facts are found among readings, and text is
// continued. Then time and memory are measured at lengths up to 65,536.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "contenders.h"
#include "facts.h"
#include "fovea/pictures/chart.h"
#include "fovea/text/generated.h"
#include "gallery.h"
#include "memory.h"
#include "network.h"

namespace {

using namespace fovea;
using namespace choose;
using gallery::Run;
using gallery::Unit;

constexpr std::uint64_t kHeldOut = std::uint64_t{1} << 30;

std::string tokens_name(std::int64_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}k tokens", tokens / 1024) : fmt::format("{} tokens", tokens);
}

void figure(Run& run, const std::string& what, const std::string& of, double value, Unit unit) {
  run.figure({.what = what, .of = of, .value = value, .unit = unit});
}

// Trains by a loss over `tokens` tokens in all, and gives the tokens a second.
double train_network(Run& run, const std::string& name, nn::ParameterSet& parameters, std::int64_t updates,
                     double tokens, const std::function<nn::Var(nn::Context&, std::int64_t)>& loss) {
  const gallery::ProcessorStopwatch watch;
  train::fit(parameters,
             {.updates = updates,
              .schedule = nn::WarmupCosine{.peak = 3e-3, .warmup = updates / 10},
              .seed = run.seed()},
             loss, run.progress(name));
  return tokens / watch.seconds();
}

// -- facts among readings

// As many tokens for every contender, in batches of short records. What belongs to positions reads one
// record an update, of every length in turn.
void train_on_facts(Run& run, const Contender& contender, Network& network,
                    const std::vector<std::int64_t>& lengths) {
  const bool every = contender.learns == Contender::Learns::from_every_length;
  const std::int64_t length = run.scaled(256, 64), batch = every ? 1 : run.scaled(8, 2),
                     total = run.scaled(1000 * 8 * 256, 3 * 2 * 64);
  std::int64_t updates = total / (batch * length), read = total;
  const auto length_at = [&](std::int64_t update) {
    return every ? lengths[static_cast<std::size_t>(update) % lengths.size()] : length;
  };
  if (every) {
    updates = read = 0;
    while (read < total) read += length_at(updates++);
  }
  const double speed =
      train_network(run, contender.name + ", facts", network.parameters(), updates, static_cast<double>(read),
                    [&](nn::Context& context, std::int64_t update) {
                      std::vector<Record> records;
                      for (std::int64_t n = 0; n < batch; ++n)
                        records.push_back(draw(run.seed(), static_cast<std::uint64_t>(update * batch + n),
                                               length_at(update)));
                      return network.loss(context, records);
                    });
  figure(run, "training on facts", contender.name, speed, Unit::per_second);
}

// Returns the seconds of a sequence.
double ask(Run& run, const Contender& contender, const Network& network, std::int64_t length) {
  const std::int64_t count = std::clamp<std::int64_t>(run.scaled(65536, 64) / length, 1, 16);
  std::int64_t right = 0, most = 0;
  double seconds = std::numeric_limits<double>::infinity();
  // A thread keeps a workspace for its next call. One of its own begins without, so that all are counted.
  std::thread([&] {
    for (std::int64_t n = 0; n < count; ++n) {
      const Record record = draw(run.seed(), kHeldOut + static_cast<std::uint64_t>(length + n), length);
      const std::int64_t before = bytes_held();
      forget_peak();
      const gallery::ProcessorStopwatch watch;
      const std::vector<std::int32_t> answers = network.answers(record);
      seconds = std::min(seconds, watch.seconds());
      if (n == 0) most = peak_bytes() - before;
      for (std::size_t i = 0; i < answers.size(); ++i) right += answers[i] == record.answers[i] ? 1 : 0;
    }
  }).join();
  gallery::Figure found{.what = fmt::format("facts found, {}", tokens_name(length)),
                        .of = contender.name,
                        .value = static_cast<double>(right) / static_cast<double>(count * kFacts)};
  if (contender.name == "full attention" && length <= 4096) found.at_least = 0.9;
  run.figure(found);
  figure(run, fmt::format("reading, {}", tokens_name(length)), contender.name, seconds, Unit::seconds);
  figure(run, fmt::format("held, {}", tokens_name(length)), contender.name, static_cast<double>(most),
         Unit::bytes);
  return seconds;
}

// Returns the time of a token by the number of tokens, of each contender.
inspect::LineChart find_facts(Run& run) {
  inspect::LineChart chart{.title = "Time to read a sequence, for each of its tokens",
                           .x_label = "tokens",
                           .y_label = "microseconds a token",
                           .x_scale = inspect::Scale::log2,
                           .y_scale = inspect::Scale::log10};
  std::vector<std::int64_t> lengths{4096, 8192, 16384, kLongest};
  if (run.quick()) lengths = {128, 256};
  for (const Contender& contender : readers()) {
    Network network(run.seed(), contender, kParts, kValues);
    nn::start_keys_as_queries(network.parameters());
    figure(run, "parameters, facts", contender.name, static_cast<double>(network.parameters().count()),
           Unit::count);
    train_on_facts(run, contender, network, lengths);
    ask(run, contender, network, run.scaled(1024, 64));
    inspect::Curve curve{contender.name, {}};
    for (const std::int64_t length : lengths) {
      const double seconds = ask(run, contender, network, length);
      curve.points.push_back({static_cast<double>(length), 1e6 * seconds / static_cast<double>(length)});
    }
    // It takes the time of the means, and would hide them.
    if (contender.name != "every 4th row") chart.curves.push_back(curve);
  }
  return chart;
}

// -- text, by characters

struct Text {
  std::vector<std::int32_t> characters;
  std::int64_t kinds = 0;
};

// English sentences of the built-in corpus, one behind the other.
Text english(std::uint64_t seed, std::int64_t sentences, text::Split split) {
  Text text{.characters = {}, .kinds = 128};
  for (const auto& pair : text::generate_corpus({.seed = seed, .count = sentences, .split = split}).pairs) {
    for (const char c : text::detokenize(pair.source) + "\n")
      text.characters.push_back(static_cast<unsigned char>(c) % 128);
  }
  return text;
}

// Bytes that are kept behind some numbers of characters, and the time of the next one.
void cost_of_writing(Run& run, const Contender& contender, const Network& network, const Text& text) {
  constexpr std::int64_t piece = 256, alone = 32;
  const std::span<const std::int32_t> characters(text.characters);
  nn::StackCache cache = network.start();
  for (const std::int64_t mark : {run.scaled(1024, 256), run.scaled(8192, 512), run.scaled(65536, 768)}) {
    while (cache.length() < mark) {
      const auto from = static_cast<std::size_t>(cache.length() % (std::ssize(characters) - piece));
      network.read(characters.subspan(from, piece), cache);
    }
    figure(run, fmt::format("kept of {}", tokens_name(mark)), contender.name,
           static_cast<double>(cache.bytes()), Unit::bytes);
    nn::StackCache fork = cache.fork();
    network.read(characters.first(1), fork);  // its plans
    const gallery::ProcessorStopwatch watch;
    for (std::int64_t i = 0; i < alone; ++i)
      network.read(characters.subspan(static_cast<std::size_t>(i), 1), fork);
    figure(run, fmt::format("a token behind {}", tokens_name(mark)), contender.name,
           watch.seconds() / static_cast<double>(alone), Unit::seconds);
  }
}

void write_text(Run& run, const Contender& contender, const Text& learned, const Text& held_out) {
  const std::int64_t length = run.scaled(256, 64), batch = run.scaled(8, 2);
  Network network(run.seed(), contender, learned.kinds, learned.kinds);
  const auto lines = [&](const Text& text, std::int64_t first, std::int64_t count) {
    const std::int64_t all = std::ssize(text.characters) / length;
    std::vector<std::int32_t> result;
    for (std::int64_t n = 0; n < count; ++n) {
      const auto from = text.characters.begin() + (first + n) % all * length;
      result.insert(result.end(), from, from + length);
    }
    return result;
  };
  const std::int64_t updates = run.scaled(500, 3);
  figure(run, "parameters, text", contender.name, static_cast<double>(network.parameters().count()),
         Unit::count);
  const double speed = train_network(
      run, contender.name + ", text", network.parameters(), updates,
      static_cast<double>(updates * batch * length), [&](nn::Context& context, std::int64_t update) {
        return network.text_loss(context, lines(learned, update * batch, batch), batch);
      });
  figure(run, "training on text", contender.name, speed, Unit::per_second);
  autograd::CrossEntropyStats stats;
  const std::int64_t tested =
      std::min<std::int64_t>(run.scaled(64, 1), std::ssize(held_out.characters) / length);
  nn::Context inference;
  network.text_loss(inference, lines(held_out, 0, tested), tested, &stats);
  figure(run, "bits a character", contender.name,
         -stats.log_likelihood / static_cast<double>(stats.tokens) / std::log(2.0), Unit::bits);
  cost_of_writing(run, contender, network, learned);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2.0;
}

// Times differ with the other work of the machine, so each point is the median of the seeds.
inspect::LineChart median_of(const std::vector<inspect::LineChart>& seeds) {
  inspect::LineChart chart = seeds.front();
  for (std::size_t c = 0; c < chart.curves.size(); ++c) {
    for (std::size_t i = 0; i < chart.curves[c].points.size(); ++i) {
      std::vector<double> times;
      for (const inspect::LineChart& seed : seeds) times.push_back(seed.curves[c].points[i].y);
      chart.curves[c].points[i].y = median(times);
    }
  }
  return chart;
}

// `charts` are those of the seeds before.
void example(Run& run, std::vector<inspect::LineChart>& charts) {
  run.report().notes = {
      "Two layers of width 64, whose mixers differ. Facts: sixteen facts among readings, and sixteen "
      "questions "
      "behind them; what sees both sides reads them so. Text: characters of generated English, from left to "
      "right. Models learned from 256 tokens, Linformer from 4,096 to 32,768, because its matrices belong to "
      "positions."};
  const inspect::LineChart chart = find_facts(run);
  charts.push_back(chart);
  run.picture_of_all(pictures::draw_chart(median_of(charts)));
  run.report().charts.push_back(chart);
  const Text learned = english(run.seed(), run.scaled(20000, 100), text::Split::train),
             held_out = english(run.seed(), run.scaled(2000, 20), text::Split::test);
  for (const Contender& contender : writers()) write_text(run, contender, learned, held_out);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<inspect::LineChart> charts;
  return gallery::run(argc, argv, {.name = "choose", .title = "Choosing a cheaper attention"},
                      [&](Run& run) { example(run, charts); });
}

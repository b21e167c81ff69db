// Writing text: a Transformer that sees only what stands before learns to foretell the next sub-word of the licences
// and manuals that a Debian system has installed, and then writes on from a prompt. It is held against n-grams,
// which know only a few characters (or sub-words) before the next one; and its speed with a cache of keys and values
// against its speed without.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "evaluate.h"
#include "fovea/core/philox.h"
#include "gallery.h"
#include "heads.h"
#include "ngram.h"
#include "texts.h"
#include "tokens.h"

namespace {

using namespace generate;
using namespace fovea;

double env(const char* n, double d) {
  const char* v = std::getenv(n);
  return v ? std::atof(v) : d;
}

// -- data

struct Data {
  Texts texts;
  std::unique_ptr<text::SentencePieceTokenizer> tokenizer;
  Ids train, valid, test;
};

Data make_data(gallery::Run& run) {
  Data data{.texts = read_texts(run.data())};
  Texts& texts = data.texts;
  if (run.quick()) {
    for (std::string* part : {&texts.train, &texts.valid, &texts.test})
      part->resize(part->rfind('\n', part == &texts.train ? 40'000 : 4'000) + 1);
  }
  data.tokenizer = train_tokenizer(texts.train, run.scaled(env("V", 2048), 256));
  data.train = encode(*data.tokenizer, texts.train);
  data.valid = encode(*data.tokenizer, texts.valid);
  data.test = encode(*data.tokenizer, texts.test);
  run.say(fmt::format("{} files; {} characters to learn as {} sub-words, {} held out", texts.sources.size(),
                      texts.train.size(), data.train.size(), texts.test.size()));
  return data;
}

void describe_data(gallery::Run& run, const Data& data) {
  std::map<std::string, std::pair<std::int64_t, std::size_t>> folders;
  std::ofstream list(run.folder() + "/sources.txt");
  for (const Source& source : data.texts.sources) {
    list << source.bytes << ' ' << source.path << '\n';
    auto& [files, bytes] = folders[std::filesystem::path(source.path).parent_path().string()];
    ++files;
    bytes += source.bytes;
  }
  inspect::Table table{.caption = "What was read", .header = {"folder", "files", "bytes"}, .rows = {}};
  for (const auto& [folder, sum] : folders)
    table.rows.push_back({folder, std::to_string(sum.first), std::to_string(sum.second)});
  run.report().tables.push_back(table);
  run.figure({.what = "characters to learn from", .of = "the text", .value = double(data.texts.train.size()),
              .unit = gallery::Unit::number});
}

// -- model and training

constexpr std::int64_t batch_size = 16;
std::int64_t window_of(const gallery::Run& run) {
  return run.scaled(env("T", 128), 32);
}

models::LanguageModel train_model(gallery::Run& run, const Data& data) {
  models::LanguageModel model({.vocabulary = data.tokenizer->size(),
                               .dim = run.scaled(env("D", 96), 16),
                               .feed_forward = run.scaled(env("F", 256), 16),
                               .heads = (int)env("H", 4),
                               .layers = run.scaled(env("L", 3), 1),
                               .dropout = (float)env("DR", 0)},
                              run.seed());
  const std::int64_t window = window_of(run);
  const auto last = static_cast<std::uint32_t>(static_cast<std::int64_t>(data.train.size()) - window);
  train::fit(
      model.parameters(),
      {.updates = run.scaled((int)env("U", 1700), 4),
       .schedule = nn::WarmupCosine{.peak = env("LR", 8e-3), .warmup = (int)env("W", 100)},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        PhiloxStream random(run.seed(), static_cast<std::uint64_t>(update) << 20);
        std::vector<Ids> windows;
        for (std::int64_t i = 0; i < (int)env("B", 16); ++i) {
          const auto from = data.train.begin() + random.next_below(last);
          windows.emplace_back(from, from + window + 1);
        }
        const auto foretold = static_cast<float>(windows.size() * window);
        return model.loss(context, models::pad(windows), {.scale = 1.0f / foretold});
      },
      run.progress("Transformer"));
  return model;
}

// -- evaluation

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Bits a character of the test text.
void compare(gallery::Run& run, const Data& data, models::LanguageModel& model) {
  const std::int64_t window = window_of(run);
  const std::string& part = env("VALID", 0) ? data.texts.valid : data.texts.test;
  const Ids& ids = env("VALID", 0) ? data.valid : data.test;
  const auto count = static_cast<double>(part.size() - 1);  // the first is given
  const auto figure = [&](const std::string& of, double value) {
    run.figure({.what = "bits a character, held out", .of = of, .value = value, .unit = gallery::Unit::bits});
    return value;
  };
  const double transformer = figure("Transformer", sum(bits(model, ids, window, window / 4)) / count);
  const Ids letters = characters(data.texts.train), held_out = characters(part);
  double baseline = 0.0;
  for (const int context : {5, 8}) {
    const NGram ngram(letters, 128, context);
    const double value =
        figure(fmt::format("n-gram, {} characters before (baseline)", context), sum(ngram.bits(held_out)) / count);
    if (context == 5) baseline = value;
  }
  for (const int context : {1, 2, 3, 4}) {
    const NGram ngram(data.train, data.tokenizer->size(), context);
    figure(fmt::format("n-gram, {} sub-words before (baseline)", context), sum(ngram.bits(ids)) / count);
  }
  run.figure({.what = "bits a character saved",
              .of = "Transformer over 5 characters",
              .value = baseline - transformer,
              .unit = gallery::Unit::bits,
              .at_least = 0.05});
}

void measure_speed(gallery::Run& run, models::LanguageModel& model) {
  for (const std::int64_t length : {64, 256, 1024, 2048}) {
    const std::int64_t n = run.scaled(length, length / 32);
    for (const auto reuse : {models::Reuse::on, models::Reuse::off}) {
      const double speed = tokens_per_second(model, n, reuse);
      run.figure({.what = fmt::format("tokens a second, writing {}", length),
                  .of = reuse == models::Reuse::on ? "with cache" : "without cache",
                  .value = speed,
                  .unit = gallery::Unit::per_second});
    }
  }
}

void write_samples(gallery::Run& run, const Data& data, models::LanguageModel& model) {
  const Ids prompt = encode(*data.tokenizer, "\nYou may");
  const models::SampleOptions ways[] = {{.temperature = 0.0}, {.temperature = 0.5}, {.temperature = 0.8}, {.temperature = 1.0}, {.temperature = 1.0, .top_k = 10}, {.temperature = 1.0, .top_p = 0.9}, {.temperature = 1.3}};
  inspect::Table table{.caption = "Written after \"You may\"", .header = {"temperature", "top-k", "top-p", "text"}, .rows = {}};
  for (models::SampleOptions way : ways) {
    way.seed = run.seed();
    way.length = run.scaled(100, 10);
    const auto written = models::generate(model, std::span(prompt).first(prompt.size() - 1), way);
    table.rows.push_back({fmt::format("{}", way.temperature), fmt::format("{}", way.top_k), fmt::format("{}", way.top_p), decode(*data.tokenizer, written.ids, " / ")});
    if (env("SHOW", 0)) run.say(fmt::format("{} {} {}: {}", way.temperature, way.top_k, way.top_p, table.rows.back().back()));
  }
  run.report().tables.push_back(table);
}

// -- picture

void draw(gallery::Run& run, const Data& data, models::LanguageModel& model) {
  const auto heads = measure_heads(model, std::span(data.valid).first(std::min<std::size_t>(data.valid.size(), 128 * 60)), window_of(run));
  if (env("SHOW", 0)) for (auto& h : heads) run.say(fmt::format("layer {} head {}: {:.3f} (uniform {:.3f})", h.layer, h.head, h.weight, h.uniform));
}

void example(gallery::Run& run) {
  const Data data = make_data(run);
  describe_data(run, data);
  models::LanguageModel model = train_model(run, data);
  compare(run, data, model);
  if (!env("FAST", 0)) measure_speed(run, model);
  write_samples(run, data, model);
  draw(run, data, model);
  models::save_model(run.folder() + "/model", model);
  data.tokenizer->save(run.folder() + "/model");
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(
      argc, argv, {.name = "generate", .title = "Writing text", .data = "a text file to learn from"}, example);
}

// Writing text: a causal Transformer learns to predict the next sub-word of the licences and manuals that
// are installed with a Debian system, and then continues a prompt. The baselines are n-grams, which know
// only the few symbols before the next one. The speed with a cache of keys and values is compared with the
// speed without.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "evaluate.h"
#include "fovea/core/philox.h"
#include "fovea/text/manuals.h"
#include "gallery.h"
#include "heads.h"
#include "ngram.h"
#include "tokens.h"

namespace {

using namespace fovea;
using namespace generate;

// -- data

struct Data {
  text::ManualTexts texts;
  std::unique_ptr<text::SentencePieceTokenizer> tokenizer;
  Ids train, valid, test;
};

Data make_data(gallery::Run& run) {
  Data data;
  text::ManualTexts& texts = data.texts = text::read_manuals(run.data());
  if (run.quick()) {
    for (std::string* part : {&texts.train, &texts.valid, &texts.test})
      part->resize(part->rfind('\n', part == &texts.train ? 40'000 : 2'000) + 1);
  }
  data.tokenizer = train_tokenizer(texts.train, run.scaled(2048, 256));
  data.train = encode(*data.tokenizer, texts.train);
  data.valid = encode(*data.tokenizer, texts.valid);
  data.test = encode(*data.tokenizer, texts.test);
  run.say(fmt::format("{} files; {} characters to learn as {} sub-words, {} held out", texts.sources.size(),
                      texts.train.size(), data.train.size(), texts.test.size()));
  return data;
}

void describe(gallery::Run& run, const Data& data) {
  std::map<std::string, std::pair<std::int64_t, std::size_t>> folders;
  std::ofstream list(run.folder() + "/sources.txt");
  std::size_t bytes = 0;
  for (const text::ManualSource& source : data.texts.sources) {
    list << source.bytes << ' ' << source.path << '\n';
    auto& folder = folders[std::filesystem::path(source.path).parent_path().string()];
    ++folder.first;
    folder.second += source.bytes;
    bytes += source.bytes;
  }
  inspect::Table table{.caption = "What was read", .header = {"folder", "files", "bytes"}, .rows = {}};
  for (const auto& [folder, sum] : folders)
    table.rows.push_back({folder, std::to_string(sum.first), std::to_string(sum.second)});
  run.report().tables.push_back(table);
  run.report().notes.push_back(
      fmt::format("{} files of {} bytes (each is named in sources.txt); {} characters of paragraphs "
                  "that an earlier document has were left out, {} are for training, {} for "
                  "validation, {} held out. Another system has other files, and other figures.",
                  data.texts.sources.size(), bytes, data.texts.left_out, data.texts.train.size(),
                  data.texts.valid.size(), data.texts.test.size()));
}

// -- model and training

std::int64_t window_of(const gallery::Run& run) {
  return run.scaled(128, 32);
}

models::LanguageModel train_model(gallery::Run& run, const Data& data) {
  models::LanguageModel model({.vocabulary = data.tokenizer->size(),
                               .dim = run.scaled(96, 16),
                               .feed_forward = run.scaled(256, 16),
                               .heads = 4,
                               .layers = run.scaled(3, 1),
                               .dropout = 0.1f},
                              run.seed());
  const auto window = static_cast<std::uint32_t>(window_of(run));
  const auto batch = static_cast<std::size_t>(run.scaled(8, 2));
  const auto places = static_cast<std::uint32_t>(data.train.size()) - window;
  train::fit(
      model.parameters(),
      {.updates = run.scaled(3200, 4),
       .schedule = nn::WarmupCosine{.peak = 8e-3, .warmup = 100},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        PhiloxStream random(run.seed(), static_cast<std::uint64_t>(update) << 20);
        std::vector<Ids> windows(batch);
        for (Ids& ids : windows) {
          const auto from = data.train.begin() + random.next_below(places);
          ids.assign(from, from + window + 1);
        }
        return model.loss(context, models::pad(windows),
                          {.reduction = {.scale = 1.0f / static_cast<float>(batch * window)}});
      },
      run.progress("Transformer"));
  return model;
}

// -- evaluation

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// States bits a character of the held-out text. Returns those of the n-gram of characters, one number for
// each character.
std::vector<double> compare(gallery::Run& run, const Data& data, models::LanguageModel& model) {
  const auto count = static_cast<double>(data.texts.test.size() - 1);  // the first is given
  const auto figure = [&](const std::string& of, const std::vector<double>& bits) {
    const double value = sum(bits) / count;
    run.figure({.what = "bits a character, held out", .of = of, .value = value, .unit = gallery::Unit::bits});
    return value;
  };
  const std::int64_t window = window_of(run);
  const double transformer = figure("Transformer", bits(model, data.test, window, window / 4));
  const Ids letters = characters(data.texts.train), held_out = characters(data.texts.test);
  const auto of_letters = NGram(letters, 128, 5).bits(held_out);
  const double baseline = figure("n-gram, 5 characters before (baseline)", of_letters);
  figure("n-gram, 8 characters before (baseline)", NGram(letters, 128, 8).bits(held_out));
  for (const int before : {1, 2, 4}) {
    figure(fmt::format("n-gram, {} sub-word{} before (baseline)", before, before == 1 ? "" : "s"),
           NGram(data.train, data.tokenizer->size(), before).bits(data.test));
  }
  run.figure({.what = "bits a character fewer",
              .of = "Transformer than 5 characters before",
              .value = baseline - transformer,
              .unit = gallery::Unit::bits,
              .at_least = 0.02});
  return of_letters;
}

// The same bits by the number of sub-words that the Transformer has read: its lead over five characters
// should grow with it.
void compare_by_context(gallery::Run& run, const Data& data, models::LanguageModel& model,
                        const std::vector<double>& of_letters) {
  const std::int64_t window = window_of(run);
  const std::vector<double> of_pieces = bits(model, data.test, window, window);
  const std::vector<std::int64_t> sizes = lengths(*data.tokenizer, data.test);
  // Each bucket ends at twice the number of sub-words of the bucket before.
  std::vector<std::int64_t> ends = {window};
  while (ends.front() > 4) ends.insert(ends.begin(), ends.front() / 2);
  std::vector<double> model_bits(ends.size()), letter_bits(ends.size()), read(ends.size());
  std::size_t letter = 0;
  for (std::size_t i = 0; i < of_pieces.size(); ++i) {
    const std::int64_t before = static_cast<std::int64_t>(i) % window + 1;
    const auto bucket =
        static_cast<std::size_t>(std::lower_bound(ends.begin(), ends.end(), before) - ends.begin());
    model_bits[bucket] += of_pieces[i];
    read[bucket] += static_cast<double>(sizes[i + 1]);
    for (std::int64_t j = 0; j < sizes[i + 1]; ++j) letter_bits[bucket] += of_letters[letter++];
  }
  inspect::BarChart chart{.title = "Bits a character by how much has been read",
                          .x_label = "sub-words read before",
                          .y_label = "bits a character",
                          .buckets = {},
                          .series = {{"Transformer", {}}, {"n-gram, 5 characters before", {}}}};
  for (std::size_t bucket = 0; bucket < ends.size(); ++bucket) {
    chart.buckets.push_back(fmt::format("{}-{}", bucket > 0 ? ends[bucket - 1] + 1 : 1, ends[bucket]));
    chart.series[0].values.push_back(model_bits[bucket] / read[bucket]);
    chart.series[1].values.push_back(letter_bits[bucket] / read[bucket]);
  }
  run.report().bars.push_back(chart);
}

void measure_speed(gallery::Run& run, models::LanguageModel& model) {
  inspect::LineChart chart{
      .title = "Speed of writing", .x_label = "tokens written", .y_label = "tokens a second", .curves = {}};
  tokens_per_second(model, 16, models::Reuse::on);  // the first call of a kernel also prepares it
  for (const auto reuse : {models::Reuse::on, models::Reuse::off}) {
    const std::string of = reuse == models::Reuse::on ? "with cache" : "without cache";
    inspect::Curve& curve = chart.curves.emplace_back(inspect::Curve{of, {}});
    for (const std::int64_t length : {64, 256, 1024, 2048}) {
      const double speed = tokens_per_second(model, run.scaled(length, length / 32), reuse);
      curve.points.push_back({static_cast<double>(length), speed});
      run.figure({.what = fmt::format("tokens a second, {} tokens", length),
                  .of = of,
                  .value = speed,
                  .unit = gallery::Unit::per_second});
    }
  }
  run.figure({.what = "times as fast, 2048 tokens",
              .of = "with cache over without",
              .value = chart.curves[0].points.back().y / chart.curves[1].points.back().y,
              .unit = gallery::Unit::ratio,
              .at_least = 5.0});
  run.report().charts.push_back(chart);
}

// Texts written after `prompt`, with several ways of sampling.
void write_samples(gallery::Run& run, const Data& data, models::LanguageModel& model,
                   const std::string& prompt) {
  const Ids ids = encode(*data.tokenizer, "\n" + prompt);  // begins a line, and continues it
  const std::vector<models::SampleOptions> ways = {{.temperature = 0.0},
                                                   {.temperature = 0.5},
                                                   {.temperature = 0.8},
                                                   {.temperature = 1.0},
                                                   {.temperature = 1.0, .top_k = 10},
                                                   {.temperature = 1.0, .top_p = 0.8},
                                                   {.temperature = 1.3}};
  inspect::Table table{.caption = "Written after \"" + prompt + "\" (/ ends a paragraph)",
                       .header = {"temperature", "top-k", "top-p", "text"},
                       .rows = {}};
  for (models::SampleOptions way : ways) {
    way.seed = run.seed();
    way.length = run.scaled(80, 8);
    const models::Generated written = models::generate(model, ids, way);
    table.rows.push_back({fmt::format("{:g}", way.temperature), way.top_k ? std::to_string(way.top_k) : "all",
                          fmt::format("{:g}", way.top_p),
                          text::decode_lines(*data.tokenizer, written.ids, " / ")});
  }
  run.report().tables.push_back(table);
}

// -- picture

// One head over one stretch of text. The head is the one that looks most at the sub-word before, chosen on
// the validation text. The stretch is the most repetitive one of the held-out text.
void draw(gallery::Run& run, const Data& data, models::LanguageModel& model) {
  const std::int64_t window = window_of(run);
  const Heads measured = measure_heads(model, data.valid, window);
  inspect::Table table{.caption = "Mean weight of each head on", .header = {"layer", "head"}, .rows = {}};
  table.header.insert(table.header.end(), place_names.begin(), place_names.end());
  const auto row = [&](const std::string& layer, const std::string& head,
                       const std::array<double, 3>& weight) {
    table.rows.push_back({layer, head});
    for (const double w : weight) table.rows.back().push_back(fmt::format("{:.3f}", w));
  };
  for (const HeadWeights& head : measured.heads)
    row(std::to_string(head.layer), std::to_string(head.head), head.weight);
  row("all alike", "", measured.uniform);
  run.report().tables.push_back(table);

  const auto looks_most_at = [&](std::size_t place) -> const HeadWeights& {
    return *std::max_element(
        measured.heads.begin(), measured.heads.end(),
        [&](const HeadWeights& a, const HeadWeights& b) { return a.weight[place] < b.weight[place]; });
  };
  for (const Place place : {Place::before, Place::continued}) {
    const auto at = static_cast<std::size_t>(place);
    const std::string what = std::string("weight on ") + place_names[at];
    run.figure({.what = what, .of = "the head that looks there most", .value = looks_most_at(at).weight[at]});
    run.figure(
        {.what = what, .of = "a head that looks at all alike (baseline)", .value = measured.uniform[at]});
  }
  const HeadWeights& chosen = looks_most_at(static_cast<std::size_t>(Place::before));
  const auto size = std::min<std::size_t>(40, static_cast<std::size_t>(window));
  const auto stretch = std::span(data.test).subspan(most_repetitive(data.test, size), size);
  const Tensor weights = weights_of(model, stretch)[static_cast<std::size_t>(chosen.layer)];
  const float* first = weights.data<float>() + chosen.head * static_cast<std::int64_t>(size * size);
  const std::vector<std::string> labels = data.tokenizer->pieces(stretch);
  const inspect::AlignmentMatrix matrix{labels, labels, {first, first + size * size}};
  const inspect::InspectPage page{
      .title = "What each sub-word attends to",
      .source = text::decode_lines(*data.tokenizer, stretch, " / "),
      .output = {},
      .facts = {},
      .maps = {inspect::as_map(matrix, fmt::format("layer {}, head {}", chosen.layer, chosen.head))}};
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
}

void example(gallery::Run& run) {
  const Data data = make_data(run);
  describe(run, data);
  models::LanguageModel model = train_model(run, data);
  const std::vector<double> of_letters = compare(run, data, model);
  compare_by_context(run, data, model, of_letters);
  measure_speed(run, model);
  write_samples(run, data, model, "You may");
  draw(run, data, model);
  models::save_model(run.folder() + "/model", model);
  data.tokenizer->save(run.folder() + "/model");
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv,
                      {.name = "generate", .title = "Writing text", .data = "a text file to learn from"},
                      example);
}

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "cli/commands.h"
#include "cli/drawing.h"
#include "cli/progress.h"
#include "cli/views.h"
#include "fovea/inspect/report.h"
#include "fovea/inspect/terminal.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/text/generated.h"
#include "fovea/train/dataset.h"
#include "fovea/train/fit.h"

namespace fovea::cli {
namespace {

struct DemoCommand {
  std::string output = "demo";
  double minutes = 1.0;  // of each model
  std::int64_t pairs = 30000;
  int threads = 0;
  std::uint64_t seed = 1;
};

struct Contender {
  std::string name, folder;
  models::RnnAttention attention = models::RnnAttention::none;
  bool transformer = false;
};

const std::vector<Contender> contenders{
    {"RNN without attention", "rnn-none", models::RnnAttention::none},
    {"RNN with attention", "rnn-additive", models::RnnAttention::additive},
    {"Transformer", "transformer", models::RnnAttention::none, true}};

struct Bucket {
  const char* name;
  int least, most;
};
constexpr Bucket buckets[] = {{"up to 15", 3, 15}, {"16-25", 16, 25}, {"26-39", 26, 39}, {"40-60", 40, 60}};

// Mostly short sentences, so that less than a minute is enough to learn the words. One pair in seven is long:
// without these, positions beyond 40 would occur in only 3 % of the pairs, and a Transformer cannot translate
// positions that it has not seen.
text::ParallelCorpus mixed(const DemoCommand& o, std::int64_t count, text::Split split) {
  const std::int64_t long_count = count / 7;
  text::ParallelCorpus corpus =
      text::generate_corpus({.seed = o.seed, .count = count - long_count, .split = split});
  const text::ParallelCorpus longer = text::generate_corpus({.seed = o.seed + 7,
                                                             .count = long_count,
                                                             .min_words = 30,
                                                             .lengths = text::LengthShape::uniform,
                                                             .split = split});
  corpus.pairs.insert(corpus.pairs.end(), longer.pairs.begin(), longer.pairs.end());
  corpus.alignments.clear();
  return corpus;
}

std::unique_ptr<models::SequenceToSequence> build(const Contender& c, std::int64_t vocabulary,
                                                  std::uint64_t seed) {
  if (c.transformer) {
    return models::make_transformer({.vocabulary = vocabulary,
                                     .dim = 96,
                                     .feed_forward = 216,
                                     .heads = 4,
                                     .encoder_layers = 2,
                                     .decoder_layers = 2,
                                     .norm = models::NormPlace::pre,
                                     .dropout = 0.0f},
                                    seed);
  }
  // Without attention the state alone remembers the sentence, so it is larger. 256 would learn as much in
  // each update, but a minute has 30 % fewer of those.
  const bool attends = c.attention != models::RnnAttention::none;
  return models::make_rnn(
      {.vocabulary = vocabulary, .embedding = 96, .hidden = attends ? 128 : 192, .attention = c.attention},
      seed);
}

constexpr std::int64_t batch_words = 800;

// How many updates fit into a model's minutes, from the time of a few. The schedule needs the number to reach
// a rate of 0 at the last update.
//
// Several stretches are timed, and the second fastest counts: other work of the machine slows some of them.
// With the mean of a single stretch, a model once had 951 updates for its minute, which took 35 s.
std::int64_t updates_in_time(const DemoCommand& o, models::SequenceToSequence& model,
                             const train::Data& data) {
  constexpr std::int64_t skipped = 5, stretch = 10, stretches = 6;  // the first updates also allocate
  const auto batches = train::make_batches(data.train, batch_words, o.seed, 0);
  const std::int64_t updates = std::min<std::int64_t>(skipped + stretch * stretches, std::ssize(batches));
  double began = 0.0;
  std::vector<double> seconds;  // of an update
  train::fit(
      model.parameters(), {.updates = updates},
      [&](nn::Context& context, std::int64_t update) {
        const models::Batch batch =
            train::gather_batch(data.train, batches[static_cast<std::size_t>(update - 1)]);
        return model.loss(context, batch, {.reduction = {.scale = 1e-3f}}, nullptr);
      },
      [&](const train::FitStep& step) {
        const std::int64_t timed = step.update - skipped;
        if (timed >= 0 && timed % stretch == 0) {
          if (timed > 0) seconds.push_back((step.seconds - began) / static_cast<double>(stretch));
          began = step.seconds;
        }
        if (seconds.empty() && step.update == updates)  // fewer updates than a stretch
          seconds.push_back(step.seconds / static_cast<double>(updates));
      });
  std::ranges::sort(seconds);
  return std::max<std::int64_t>(
      10, static_cast<std::int64_t>(o.minutes * 60 / seconds[seconds.size() > 1 ? 1 : 0]));
}

train::TrainOptions options_of(const DemoCommand& o, const Contender& c, std::int64_t updates) {
  train::TrainOptions t;
  t.batch_words = batch_words;
  // Rejected: a rate that falls with the square root of the updates, and for the Transformer a peak of 0.002.
  // With either it had a lower BLEU on long sentences: docs/results.md.
  t.schedule = nn::WarmupCosine{.peak = 0.004,
                                .warmup = std::min<std::int64_t>(c.transformer ? 200 : 150, updates / 4 + 1),
                                .updates = updates};
  t.adam = {.beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-8, .clip_norm = 1.0};
  t.smoothing = 0.0f;
  t.max_updates = updates;
  // Six at most, the last one at the end. More would take as long as the training.
  t.validate_every = std::max<std::int64_t>(200, (updates + 5) / 6);
  t.save_every = 0;
  t.seed = o.seed;
  t.folder = o.output + "/" + c.folder;
  return t;
}

struct Trained {
  train::Result result;
  train::Translator translator;
  std::vector<double> bleu;          // of each bucket
  std::optional<double> error_rate;  // of a model with attention
};

std::vector<double> bleu_by_length(train::Translator& translator, const DemoCommand& o) {
  std::vector<double> scores;
  for (const Bucket& bucket : buckets) {
    const text::ParallelCorpus test = text::generate_corpus({.seed = o.seed + 3,
                                                             .count = 100,
                                                             .min_words = bucket.least,
                                                             .max_words = bucket.most,
                                                             .lengths = text::LengthShape::uniform,
                                                             .split = text::Split::test});
    std::vector<std::string> hypotheses;
    for (const auto& translations : translator.translate(text::lines_of(test, text::Side::source),
                                                         {.beam_size = 1, .alignments = false}, 50)) {
      hypotheses.push_back(translations[0].text);
    }
    scores.push_back(text::bleu(hypotheses, text::lines_of(test, text::Side::target),
                                {.tokenizer = text::BleuTokenizer::none})
                         .score);
  }
  return scores;
}

// The reference is given to the model, so that every model is judged on the same words.
double alignment_error_rate(train::Translator& translator, const DemoCommand& o) {
  const text::ParallelCorpus test = text::generate_corpus({.seed = o.seed + 4,
                                                           .count = 200,
                                                           .lengths = text::LengthShape::mostly_short,
                                                           .split = text::Split::test});
  std::vector<text::Alignment> proposed;
  for (const text::SentencePair& pair : test.pairs) {
    proposed.push_back(train::hard_alignment(translator.align(pair.source, pair.target)));
  }
  return text::score_alignments(proposed, text::as_gold(test.alignments)).error_rate();
}

std::string error_rate_text(const Trained& trained, const char* none) {
  return trained.error_rate ? fmt::format("{:.3f}", *trained.error_rate) : none;
}

void print_table(const std::vector<Trained>& trained) {
  fmt::print("\nBLEU on held-out sentences, by length of the source (words)\n{:<24}", "");
  for (const Bucket& bucket : buckets) fmt::print("{:>10}", bucket.name);
  fmt::print("{:>18}\n", "alignment errors");
  for (std::size_t i = 0; i < trained.size(); ++i) {
    fmt::print("{:<24}", contenders[i].name);
    for (const double score : trained[i].bleu) fmt::print("{:>10.1f}", score);
    fmt::print("{:>18}\n", error_rate_text(trained[i], "-"));
  }
}

// NAME-light.svg and NAME-dark.svg: a page shows the one that its reader's theme asks for.
void write_in_both_themes(const DemoCommand& o, const std::string& name, const inspect::Drawing& picture) {
  for (const auto& [theme, suffix] :
       {std::pair(inspect::Theme::light, "light"), std::pair(inspect::Theme::dark, "dark")})
    (void)drawing().write(fmt::format("{}/{}-{}.svg", o.output, name, suffix), picture, {.theme = theme});
}

void show_sentences(std::vector<Trained>& trained, inspect::ReportData& report, const DemoCommand& o) {
  int count = 0;
  for (const text::SentencePair& pair : text::held_out_sentences().pairs) {
    fmt::print("\n{}\n", text::detokenize(pair.source));
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const train::Translation t = trained[i].translator.translate({pair.source}, {.beam_size = 5})[0][0];
      fmt::print("  {:<22} {}\n", contenders[i].name, text::detokenize(t.text));
      if (!trained[i].translator.model().attends()) continue;
      if (!contenders[i].transformer)
        fmt::print("\n{}\n", inspect::draw_terminal({t.target_words, t.source_words, t.weights.weights}));
      report.pages.push_back(page_of(trained[i].translator,
                                     contenders[i].name + ": " + text::detokenize(pair.source), pair.source,
                                     t.text));
      if (contenders[i].transformer) continue;
      const std::string name = fmt::format("alignment-{}", ++count);
      (void)drawing().write(fmt::format("{}/{}.png", o.output, name),
                            drawing().draw_page(report.pages.back()), {});
      write_in_both_themes(o, name,
                           drawing().draw_alignment({t.target_words, t.source_words, t.weights.weights}));
    }
  }
}

void fill_report(const std::vector<Trained>& trained, inspect::ReportData& report) {
  report.title = "Fovea: three models learn to translate";
  report.notes = {
      "An RNN without attention, an RNN with additive attention and a Transformer, each trained for the same "
      "time on the built-in English-French corpus. Without attention the decoder has one fixed vector for "
      "the whole sentence: it "
      "breaks on long ones."};
  inspect::BarChart bars{"BLEU by sentence length", "words of the source", "BLEU", {}, {}};
  inspect::LineChart bleu{"Validation BLEU", "seconds of training", "BLEU", {}},
      loss{"Validation cross-entropy", "seconds of training", "nats a word", {}};
  inspect::Table table{"Held-out sentences", {"model"}, {}};
  for (const Bucket& bucket : buckets) {
    bars.buckets.push_back(bucket.name);
    table.header.push_back(std::string("BLEU ") + bucket.name);
  }
  table.header.push_back("alignment error rate");
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const std::string& name = contenders[i].name;
    bars.series.push_back({name, trained[i].bleu});
    inspect::Curve scores{name, {}}, losses{name, {}};
    for (const train::Validation& v : trained[i].result.curve) {
      scores.points.push_back({v.seconds, v.bleu});
      losses.points.push_back({v.seconds, v.cross_entropy});
    }
    bleu.curves.push_back(scores);
    loss.curves.push_back(losses);
    std::vector<std::string> row{name};
    for (const double score : trained[i].bleu) row.push_back(fmt::format("{:.1f}", score));
    row.push_back(error_rate_text(trained[i], ""));
    table.rows.push_back(row);
  }
  report.bars = {bars};
  report.charts = {bleu, loss};
  report.tables = {table};
}

// The demo replaces what is in its folder: only an empty one, or one that an earlier demo wrote.
void claim_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path marker = fs::path(folder) / ".fovea-demo";
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder)) && !fs::exists(marker)) {
    throw InvalidArgument("fovea demo", "--output", "no folder yet, an empty one, or that of an earlier demo",
                          folder);
  }
  fs::create_directories(folder);
  if (!(std::ofstream(marker) << "fovea demo replaces what is here\n"))
    throw FileError(marker.string(), -1, "cannot be written");
}

void run(const DemoCommand& o) {
  catch_signals();
  nn::use_threads(o.threads);
  claim_folder(o.output);
  (void)drawing();  // throws now, not after the training, if its library is missing
  const auto begin = std::chrono::steady_clock::now();
  const text::ParallelCorpus corpus = mixed(o, o.pairs, text::Split::train),
                             valid = mixed(o, 150, text::Split::valid);
  std::vector<Trained> trained;
  for (const Contender& contender : contenders) {
    auto tokenizer = train::build_tokenizer(corpus, {train::TokenizerKind::whitespace, 0});
    const train::Data data = train::make_data(corpus, valid, *tokenizer, 100, nullptr);
    const std::int64_t updates = updates_in_time(o, *build(contender, tokenizer->size(), o.seed), data);
    const train::TrainOptions training = options_of(o, contender, updates);
    std::filesystem::remove_all(training.folder);
    std::filesystem::create_directories(training.folder);
    tokenizer->save(training.folder);
    auto model = build(contender, tokenizer->size(), o.seed);
    fmt::print(stderr, "{}: {:.2f} M parameters, {} updates (about {:.0f} s) on {} pairs\n", contender.name,
               static_cast<double>(model->parameters().count()) / 1e6, updates, o.minutes * 60,
               data.train.size());
    TerminalProgress progress(contender.name);
    train::Result result =
        train::train(*model, data, training, train::Start::fresh, progress, stop_requested);
    if (result.ended == train::Ended::stopped) throw Stopped{"stopped"};
    Trained one{std::move(result), train::Translator(std::move(model), std::move(tokenizer)), {}, {}};
    one.bleu = bleu_by_length(one.translator, o);
    if (stop_requested()) throw Stopped{"stopped"};
    if (one.translator.model().attends()) one.error_rate = alignment_error_rate(one.translator, o);
    trained.push_back(std::move(one));
  }
  print_table(trained);
  inspect::ReportData report;
  show_sentences(trained, report, o);
  fill_report(trained, report);
  inspect::write_report(o.output + "/report.html", report);
  write_in_both_themes(o, "bleu", drawing().draw_bars(report.bars.front()));
  fmt::print(
      "\n{0:.0f} s in all. Learning curves, BLEU by length and every matrix: {1}/report.html; pictures: "
      "{1}/*.svg\n",
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), o.output);
}

}  // namespace

void register_demo(Command app) {
  auto o = std::make_shared<DemoCommand>();
  Command command = app.add_subcommand("demo", "Train three models and show what attention cures");
  command.add_option("--output", o->output, "folder for models and report").check(file_name());
  command.add_option("--minutes", o->minutes, "of training a model").check(positive());
  command.add_option("--pairs", o->pairs, "of the generated corpus").check(in_range(100, 1000000));
  command.add_option("--seed", o->seed);
  add_threads_option(command, o->threads);
  command.callback([o] { run(*o); });
}

}  // namespace fovea::cli

// From one vector to a Transformer, a rung at a time: the same small translation task, learned by an RNN
// without attention, with attention, with attention to its own earlier states as well, by one layer of
// attention without any recurrence, and by a Transformer; at equal parameters and equal time.
#include <fmt/format.h>

#include "fovea/core/philox.h"
#include "fovea/pictures/chart.h"
#include "fovea/text/alignment.h"
#include "fovea/text/bleu.h"
#include "fovea/text/generated.h"
#include "fovea/train/dataset.h"
#include "gallery.h"
#include "rungs.h"

namespace {

using namespace fovea;
using namespace ladder;

struct Contender {
  std::string name;
  Options options;    // whose sizes give nearly equal parameters
  double rate;        // the largest while training
  double time = 1.0;  // as a share of a rung's
  enum class Falls { to_zero, with_the_square_root } falls = Falls::to_zero;  // the rate, after its largest
  // Of BLEU on the longest sentences. The changed Transformers promise nothing.
  std::optional<double> at_least = {}, at_most = {};
};

Options of(Kind kind, std::int64_t vocabulary, std::int64_t dim, std::int64_t feed_forward = 0) {
  return {.kind = kind, .vocabulary = vocabulary, .dim = dim, .feed_forward = feed_forward};
}

std::vector<Contender> rungs(std::int64_t vocabulary) {
  constexpr double promise = 90.0;
  std::vector<Contender> all{{"RNN without attention (baseline)", of(Kind::rnn, vocabulary, 112), 4e-3},
                             {"RNN with attention", of(Kind::rnn_attention, vocabulary, 118), 4e-3},
                             {"RNN with self-attention", of(Kind::rnn_self_attention, vocabulary, 104), 4e-3},
                             {"one attention layer", of(Kind::one_layer, vocabulary, 168), 2e-3},
                             {"Transformer", of(Kind::transformer, vocabulary, 96, 216), 2e-3}};
  for (Contender& contender : all) {
    if (contender.options.kind == Kind::rnn)
      contender.at_most = 40.0;
    else
      contender.at_least = promise;
  }
  return all;
}

// The last rung with one thing changed: what decides on long sentences.
std::vector<Contender> changes(std::int64_t vocabulary) {
  const Options transformer = rungs(vocabulary).back().options;
  Contender turned{"Transformer, rotary positions", transformer, 2e-3};
  turned.options.positions = Positions::turned;
  return {turned,
          {"Transformer, half the time", transformer, 2e-3, 0.5},
          {"Transformer, rate by the square root", transformer, 3e-3, 1.0,
           Contender::Falls::with_the_square_root}};
}

// -- data

struct Bucket {
  const char* name;
  int least, most;
};
constexpr Bucket buckets[] = {{"up to 15", 3, 15}, {"16-25", 16, 25}, {"26-39", 26, 39}, {"40-60", 40, 60}};

// As for `fovea demo`: mostly short, and one pair in seven long.
text::ParallelCorpus mixed(std::uint64_t seed, std::int64_t count) {
  const std::int64_t longer = count / 7;
  text::ParallelCorpus corpus = text::generate_corpus({.seed = seed, .count = count - longer});
  const text::ParallelCorpus more = text::generate_corpus(
      {.seed = seed + 7, .count = longer, .min_words = 30, .lengths = text::LengthShape::uniform});
  corpus.pairs.insert(corpus.pairs.end(), more.pairs.begin(), more.pairs.end());
  corpus.alignments.clear();
  return corpus;
}

text::ParallelCorpus test_corpus(gallery::Run& run, const Bucket& bucket) {
  return text::generate_corpus({.seed = run.seed() + 3,
                                .count = run.scaled(100, 4),
                                .min_words = bucket.least,
                                .max_words = bucket.most,
                                .lengths = text::LengthShape::uniform,
                                .split = text::Split::test});
}

struct Data {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::vector<train::Example> examples;
};

Data make_data(gallery::Run& run) {
  const text::ParallelCorpus corpus = mixed(run.seed(), run.scaled(30000, 300));
  Data data{.tokenizer = train::build_tokenizer(corpus, {train::TokenizerKind::whitespace, 0}),
            .examples = {}};
  data.examples = train::encode(corpus, *data.tokenizer, 100, nullptr);
  return data;
}

// -- training, for an equal time

constexpr std::int64_t batch_words = 800;

void fit(gallery::Run& run, Rung& rung, const Contender& contender, const Data& data, std::int64_t updates,
         const std::function<void(const train::FitStep&)>& progress) {
  std::vector<std::vector<std::size_t>> batches;
  std::int64_t epoch = -1, begun = 0;
  const auto loss = [&](nn::Context& context, std::int64_t update) {
    while (epoch < 0 || update > begun + std::ssize(batches)) {
      begun += std::ssize(batches);
      batches = train::make_batches(data.examples, batch_words, run.seed(), ++epoch);
    }
    const models::Batch batch =
        train::gather_batch(data.examples, batches[static_cast<std::size_t>(update - begun - 1)]);
    std::int64_t words = 0;
    for (const std::int64_t length : batch.target_lengths) words += length;
    return rung.loss(context, batch, 1.0f / static_cast<float>(words));
  };
  nn::Schedule schedule =
      nn::WarmupCosine{.peak = contender.rate, .warmup = std::min<std::int64_t>(200, updates / 4 + 1)};
  if (contender.falls == Contender::Falls::with_the_square_root)
    schedule = nn::InverseSquareRoot{.peak = contender.rate, .warmup = 300};
  train::fit(rung.parameters(), {.updates = updates, .schedule = schedule, .seed = run.seed()}, loss,
             progress);
}

// By the time that a few take.
double seconds_of_an_update(gallery::Run& run, const Contender& contender, const Data& data) {
  constexpr std::int64_t tried = 30;
  Rung rung(contender.options, run.seed());
  const gallery::ProcessorStopwatch watch;
  fit(run, rung, contender, data, tried, {});
  return watch.seconds() / tried;
}

// The time that every contender gets. A number of seconds would buy a slower machine fewer updates, with
// which every rung learns less; this is as long as the RNN with attention takes to learn the task.
double seconds_of_a_rung(gallery::Run& run, const Contender& rnn_with_attention, const Data& data) {
  constexpr double updates = 3500.0;
  return updates * seconds_of_an_update(run, rnn_with_attention, data);
}

std::int64_t updates_in(gallery::Run& run, const Contender& contender, const Data& data, double seconds) {
  return run.quick() ? 3 : static_cast<std::int64_t>(seconds / seconds_of_an_update(run, contender, data));
}

// -- evaluation

models::Batch batch_of(const std::vector<train::Example>& examples, std::size_t begin, std::size_t end) {
  std::vector<std::size_t> indices;
  for (std::size_t i = begin; i < end; ++i) indices.push_back(i);
  return train::gather_batch(examples, indices);
}

double bleu_of(gallery::Run& run, const Rung& rung, const text::ParallelCorpus& test, const Data& data) {
  const std::vector<train::Example> examples = train::encode(test, *data.tokenizer, 100, nullptr);
  std::vector<std::string> hypotheses;
  for (std::size_t begin = 0; begin < examples.size(); begin += 25) {
    const models::Batch batch = batch_of(examples, begin, std::min(begin + 25, examples.size()));
    const std::int64_t longest = run.scaled(3 * batch.source_len / 2 + 10, 3);
    for (const auto& words : rung.translate(batch, longest))
      hypotheses.push_back(data.tokenizer->decode(words));
  }
  return text::bleu(hypotheses, text::lines_of(test, text::Side::target),
                    {.tokenizer = text::BleuTokenizer::none})
      .score;
}

// The reference is given to the model, so that every one is judged on the same words.
double alignment_errors(const Rung& rung, const text::ParallelCorpus& test, const Data& data) {
  const std::vector<train::Example> examples = train::encode(test, *data.tokenizer, 100, nullptr);
  std::vector<text::Alignment> proposed;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const models::Batch batch = batch_of(examples, i, i + 1);
    const Tensor weights = rung.align(batch);
    const auto targets = static_cast<std::size_t>(batch.target_len),
               sources = static_cast<std::size_t>(batch.source_len);
    proposed.push_back(text::hard_alignment(
        {targets, sources, {weights.data<float>(), weights.data<float>() + weights.count()}},
        {.num_targets = targets - 1, .num_sources = sources - 1}));
  }
  return text::score_alignments(proposed, text::as_gold(test.alignments)).error_rate();
}

// -- what a length costs

// Updates on sentences of n words, 4,096 of them or one sentence: words of both sides a second, in the
// fastest of three.
double words_per_second(const Contender& contender, std::int64_t n, std::uint64_t seed, bool quick) {
  const std::int64_t size = quick ? 1 : std::max<std::int64_t>(1, 4096 / n);
  PhiloxStream random(seed);
  models::Batch batch;
  batch.size = size;
  batch.source_len = batch.target_len = n;
  for (std::int64_t i = 0; i < size * n; ++i) {
    for (auto* ids : {&batch.source, &batch.target_input, &batch.target_output}) {
      constexpr std::int32_t special = 4;
      const auto words = static_cast<std::uint32_t>(contender.options.vocabulary - special);
      ids->push_back(special + static_cast<std::int32_t>(random.next_below(words)));
    }
  }
  batch.source_lengths.assign(static_cast<std::size_t>(size), n);
  batch.target_lengths = batch.source_lengths;
  Rung rung(contender.options, seed);
  double best = 0.0;
  for (int round = 0; round < 3; ++round) {
    const gallery::Stopwatch watch;
    train::fit(rung.parameters(), {.updates = 1, .schedule = nn::Constant{.rate = 1e-4}},
               [&](nn::Context& context, std::int64_t) { return rung.loss(context, batch, 1e-3f); });
    best = std::max(best, static_cast<double>(2 * size * n) / watch.seconds());
  }
  return best;
}

// Figures that are reported after the ladder's own, though they are measured before it.
std::vector<gallery::Figure> costs_of_lengths(const gallery::Run& run, const std::vector<Contender>& all) {
  const std::vector<std::int64_t> lengths =
      run.quick() ? std::vector<std::int64_t>{16} : std::vector<std::int64_t>{16, 64, 256, 1024, 4096};
  std::vector<gallery::Figure> figures;
  for (const std::int64_t n : lengths) {
    for (const Contender& contender : all)
      figures.push_back({.what = fmt::format("steps that wait for each other, {} words", n),
                         .of = contender.name,
                         .value = static_cast<double>(Rung::critical_path(contender.options, n)),
                         .unit = gallery::Unit::number});
  }
  for (int threads = 1; threads <= run.threads(); ++threads) {
    nn::use_threads(threads);
    for (const std::int64_t n : lengths) {
      for (const Contender& contender : all) {
        figures.push_back(
            {.what = fmt::format("words learned from a second, {} words a sentence, {} thread{}", n, threads,
                                 threads == 1 ? "" : "s"),
             .of = contender.name,
             .value = words_per_second(contender, n, run.seed(), run.quick()),
             .unit = gallery::Unit::per_second});
      }
    }
  }
  nn::use_threads(1);
  return figures;
}

// -- the ladder

inspect::BarChart climb(gallery::Run& run, const Data& data, const std::vector<Contender>& all,
                        double seconds) {
  text::ParallelCorpus aligned = text::generate_corpus(
      {.seed = run.seed() + 4, .count = run.scaled(200, 4), .split = text::Split::test});
  inspect::BarChart bars{"BLEU by sentence length", "words of the source", "BLEU", {}, {}};
  for (const Bucket& bucket : buckets) bars.buckets.push_back(bucket.name);
  for (const Contender& contender : all) {
    Rung rung(contender.options, run.seed());
    const std::int64_t updates = updates_in(run, contender, data, seconds * contender.time);
    fit(run, rung, contender, data, updates, run.progress(contender.name));
    const auto figure = [&](const std::string& what, double value, gallery::Unit unit) {
      run.figure({.what = what, .of = contender.name, .value = value, .unit = unit});
    };
    figure("parameters", static_cast<double>(rung.parameters().count()), gallery::Unit::number);
    figure("updates", static_cast<double>(updates), gallery::Unit::number);
    bars.series.push_back({contender.name, {}});
    for (const Bucket& bucket : buckets) {
      const double bleu = bleu_of(run, rung, test_corpus(run, bucket), data);
      bars.series.back().values.push_back(bleu);
      const bool longest = &bucket == std::end(buckets) - 1;
      run.figure({.what = fmt::format("BLEU, {} words", bucket.name),
                  .of = contender.name,
                  .value = bleu,
                  .unit = gallery::Unit::number,
                  .at_least = longest ? contender.at_least : std::nullopt,
                  .at_most = longest ? contender.at_most : std::nullopt});
      run.say(fmt::format("{}: BLEU {:.1f} for {} words", contender.name, bleu, bucket.name));
    }
    if (contender.options.kind != Kind::rnn)
      figure("alignment errors", alignment_errors(rung, aligned, data), gallery::Unit::percent);
  }
  return bars;
}

void example(gallery::Run& run) {
  nn::use_threads(
      1);  // with more, recurrent steps would mostly wait, and time would not be that of a processor
  const Data data = make_data(run);
  const std::vector<Contender> all = rungs(data.tokenizer->size());
  // Once: what a length costs does not depend on the seed.
  const std::vector<gallery::Figure> costs =
      run.is_first_seed() ? costs_of_lengths(run, all) : std::vector<gallery::Figure>{};
  const double seconds = seconds_of_a_rung(run, all[1], data);
  const inspect::BarChart bars = climb(run, data, all, seconds);
  run.report().bars.push_back(bars);
  run.picture(pictures::draw_chart(bars));
  if (run.is_first_seed()) climb(run, data, changes(data.tokenizer->size()), seconds);
  for (const gallery::Figure& figure : costs) run.figure(figure);
  run.report().notes.push_back(
      "Five translators with the same parameters, trained for the same time, that differ in how a word "
      "learns of "
      "the other words.");
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "ladder", .title = "From one vector to a Transformer"}, example);
}

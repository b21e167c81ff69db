// forget: a story begins with facts of who lives where, and asks for them up to a thousand words later.
// Full attention sees the beginning and keeps every word. A window is cheap and has forgotten the
// beginning. A window with a few global words (Beltagy et al. 2020, "Longformer", arXiv 2004.05150) is
// cheap too and remembers it. The same small Transformer is trained three times with different masks;
// nothing else differs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>

#include "cost.h"
#include "gallery.h"
#include "reader.h"

namespace {

using namespace fovea;
using forget::Question;
using forget::Reader;
using forget::Story;
using gallery::Run;
using gallery::Unit;

constexpr std::int64_t kLookback = 63;  // with the word itself, 64
// Each layer passes on what the layer below it saw. Words farther away than this cannot reach an answer.
constexpr std::int64_t kReach = forget::kNear + forget::kLayers * kLookback;
constexpr std::int64_t kLongest = 1024;

// -- the three masks

struct Contender {
  std::string name;
  Mask mask;
};

std::vector<Contender> contenders() {
  std::vector<std::int64_t> beginning(forget::kBeginning);
  std::iota(beginning.begin(), beginning.end(), 0);
  const SlidingWindow window{.lookback = kLookback};
  return {{"full attention", Causal{}},
          {"window (baseline)", window & Causal{}},
          {"window + global tokens", (window | GlobalTokens(beginning)) & Causal{}}};
}

// -- training

// The model first has to learn whose home a question asks for. It does so in short stories of two facts,
// with few other words. Then there are eight facts, and the stories are long.
struct Stage {
  double until = 1.0;                                          ///< share of the training
  std::int64_t least = forget::kFacts, most = forget::kFacts;  ///< facts
  std::int64_t length = kLongest, batch = 2;
};
constexpr Stage stages[] = {{.until = 0.30, .least = 2, .most = 2, .length = 24, .batch = 80},
                            {.until = 0.55, .least = 2, .most = 4, .length = 40, .batch = 48},
                            {.until = 0.70, .least = 2, .length = 64, .batch = 32},
                            {.until = 0.80, .length = 128, .batch = 16},
                            {.until = 0.88, .length = 256, .batch = 8},
                            {.until = 0.94, .length = 512, .batch = 4},
                            {.until = 1.00}};

std::vector<Story> batch_of(std::uint64_t seed, std::int64_t update, double done) {
  const Stage& stage =
      *std::find_if(std::begin(stages), std::end(stages), [&](const Stage& s) { return done <= s.until; });
  const std::int64_t facts = stage.least + update % (stage.most - stage.least + 1);
  std::vector<Story> stories;
  for (std::int64_t i = 0; i < stage.batch; ++i) {
    stories.push_back(forget::tell(text::Split::train, seed, static_cast<std::uint64_t>(update * 128 + i),
                                   {.length = stage.length, .facts = facts}));
  }
  return stories;
}

void train_reader(Run& run, const std::string& name, Reader& reader) {
  const std::int64_t updates = run.scaled(1000, 14);
  train::fit(
      reader.parameters(),
      {.updates = updates, .schedule = nn::WarmupCosine{.peak = 1.5e-3, .warmup = updates / 20}},
      [&](nn::Context& context, std::int64_t update) {
        const double done = static_cast<double>(update) / static_cast<double>(updates);
        return reader.loss(context, batch_of(run.seed(), update, done));
      },
      run.progress(name));
}

// -- evaluation

// Figures of the same name, one a contender.
void compare(Run& run, const std::vector<Contender>& all, const std::string& what,
             const std::vector<double>& values, Unit unit) {
  for (std::size_t i = 0; i < all.size(); ++i)
    run.figure({.what = what, .of = all[i].name, .value = values[i], .unit = unit});
}

// Right answers by how far back the fact was told.
struct Accuracy {
  static constexpr std::int64_t kBucket = 64;
  std::vector<double> right = std::vector<double>(kLongest / kBucket);
  std::vector<double> asked = std::vector<double>(kLongest / kBucket);
  struct Share {
    double right = 0, asked = 0;
    double value() const { return right / asked; }
  };
  Share inside, reached, beyond;  // in the window; beyond it, within reach of two layers; farther

  void add(const Question& question, std::int32_t answer) {
    const std::int64_t distance = question.position - question.told;
    const double hit = answer == question.answer ? 1.0 : 0.0;
    right[static_cast<std::size_t>(distance / kBucket)] += hit;
    asked[static_cast<std::size_t>(distance / kBucket)] += 1.0;
    Share& share = distance <= kLookback ? inside : distance <= kReach ? reached : beyond;
    share.right += hit;
    share.asked += 1.0;
  }
  inspect::Curve curve(const std::string& name) const {
    inspect::Curve curve{name, {}};
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const double distance = (static_cast<double>(i) + 0.5) * kBucket;
      if (asked[i] > 0) curve.points.push_back({distance, 100.0 * right[i] / asked[i]});
    }
    return curve;
  }
};

Accuracy evaluate(const Reader& reader, const std::vector<Story>& stories) {
  Accuracy accuracy;
  for (const Story& story : stories) {
    const std::vector<std::int32_t> answers = reader.answers(story);
    for (std::size_t i = 0; i < answers.size(); ++i) accuracy.add(story.questions[i], answers[i]);
  }
  return accuracy;
}

void report_accuracy(Run& run, const std::vector<Contender>& all, const std::vector<Accuracy>& accuracies,
                     std::size_t stories) {
  const double chance = 1.0 / forget::kCities;
  // A model that cannot see the beginning guesses. Guesses for the same fact may be equal, so only facts
  // count as independent draws. The margin is four standard deviations of their share, which chance exceeds
  // once in 30,000 times.
  const double draws = static_cast<double>(stories * forget::kFacts);
  const double margin = 4.0 * std::sqrt(chance * (1.0 - chance) / draws);
  inspect::LineChart chart{"Right answers by distance", "words between fact and question", "right, %", {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Accuracy& of = accuracies[i];
    gallery::Figure beyond{.what = fmt::format("right, told more than {} words before", kReach),
                           .of = all[i].name,
                           .value = of.beyond.value()};
    if (i == 1)
      beyond.at_most = chance + margin;
    else
      beyond.at_least = 0.95;
    run.figure(beyond);
    chart.curves.push_back(of.curve(all[i].name));
  }
  std::vector<double> reached, inside;
  for (const Accuracy& of : accuracies) {
    reached.push_back(of.reached.value());
    inside.push_back(of.inside.value());
  }
  compare(run, all, fmt::format("right, told {} to {} words before", kLookback + 1, kReach), reached,
          Unit::percent);
  compare(run, all, fmt::format("right, told at most {} words before", kLookback), inside, Unit::percent);
  run.figure({.what = "chance", .of = "16 cities", .value = chance});
  run.report().charts.push_back(chart);
}

// -- how small the weight on the right fact becomes

// By the number of words read: the more words, the more keys share the weight of full attention.
void report_dilution(Run& run, const std::vector<Contender>& all, const std::deque<Reader>& readers,
                     const std::vector<Story>& stories) {
  constexpr std::int64_t least = 64;
  inspect::LineChart chart{"Weight on the fact that is asked for", "words read", "weight", {}};
  std::vector<std::vector<double>> means;  // [contender][bucket]: 64 to 127 words, 128 to 255, ...
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<double> sums, counts;
    for (const Story& story : stories) {
      const std::vector<float> masses = readers[i].on_facts(story);
      for (std::size_t q = 0; q < masses.size(); ++q) {
        std::size_t bucket = 0;
        if (story.questions[q].position < least) continue;
        for (std::int64_t from = 2 * least; from <= story.questions[q].position; from *= 2) ++bucket;
        sums.resize(std::max(sums.size(), bucket + 1));
        counts.resize(sums.size());
        sums[bucket] += static_cast<double>(masses[q]);
        ++counts[bucket];
      }
    }
    chart.curves.push_back({all[i].name, {}});
    for (std::size_t b = 0; b < sums.size(); ++b) {
      sums[b] /= std::max(1.0, counts[b]);
      chart.curves.back().points.push_back({1.5 * static_cast<double>(least << b), sums[b]});
    }
    means.push_back(sums);
  }
  for (std::size_t b = 0; b < means.front().size(); ++b) {
    std::vector<double> of_bucket;
    for (const std::vector<double>& of : means) of_bucket.push_back(of[b]);
    compare(run, all,
            fmt::format("weight on the fact that is asked for, after {} to {} words", least << b,
                        (least << (b + 1)) - 1),
            of_bucket, Unit::percent);
  }
  run.report().charts.push_back(chart);
}

// -- what it costs

// Reads word by word, like a decoder: the memory that it holds, and whether its answers are the same.
void report_memory(Run& run, const std::vector<Contender>& all, const std::deque<Reader>& readers) {
  const std::int64_t longest = run.scaled(16384, 512);
  const Story story = forget::tell(text::Split::test, run.seed(), 0, {.length = run.scaled(kLongest, 160)});
  const Story endless = forget::tell(text::Split::test, run.seed(), 0, {.length = longest});
  std::vector<double> same, bytes;
  for (const Reader& reader : readers) {
    const std::vector<std::int32_t> whole = reader.answers(story), decoded = reader.decode(story).answers;
    const auto equal = std::inner_product(whole.begin(), whole.end(), decoded.begin(), std::size_t{0},
                                          std::plus<>(), std::equal_to<>());
    same.push_back(static_cast<double>(equal) / static_cast<double>(whole.size()));
    bytes.push_back(static_cast<double>(reader.decode(endless).peak_bytes));
  }
  compare(run, all, "answers word by word that are those of the story at once", same, Unit::percent);
  compare(run, all, fmt::format("keys and values held at most, {} words", longest), bytes, Unit::bytes);
  run.figure({.what = "keys and values held, as a share of full attention's",
              .of = all.back().name,
              .value = bytes.back() / bytes.front(),
              .at_most = run.quick() ? 1.0 : 0.02});
}

void report_costs(Run& run, const std::vector<Contender>& all) {
  inspect::LineChart pairs{"Pairs of query and key", "words", "millions a head", {}};
  inspect::LineChart times{"One call of attention", "words", "ms", {}};
  inspect::Table table{.caption = "What a call of the engine costs",
                       .header = {"mask", "words", "pairs a head", "ms", "workspace, KiB"},
                       .rows = {}};
  const std::int64_t longest = run.scaled(16384, 2048);
  std::vector<double> last_pairs, last_seconds, last_workspace;
  for (const Contender& contender : all) {
    pairs.curves.push_back({contender.name, {}});
    times.curves.push_back({contender.name, {}});
    forget::Cost cost;
    for (std::int64_t length = 1024; length <= longest; length *= 2) {
      cost = forget::cost_of(contender.mask, length, {forget::kHeads, forget::kDim / forget::kHeads}, 3);
      const double words = static_cast<double>(length), workspace = static_cast<double>(cost.workspace);
      pairs.curves.back().points.push_back({words, cost.pairs / 1e6});
      times.curves.back().points.push_back({words, cost.seconds * 1e3});
      table.rows.push_back({contender.name, fmt::format("{}", length), fmt::format("{:.0f}", cost.pairs),
                            fmt::format("{:.2f}", cost.seconds * 1e3),
                            fmt::format("{:.0f}", workspace / 1024)});
    }
    last_pairs.push_back(cost.pairs);
    last_seconds.push_back(cost.seconds);
    last_workspace.push_back(static_cast<double>(cost.workspace));
    run.report().notes.push_back(contender.name + ": " + cost.explanation);
  }
  compare(run, all, fmt::format("pairs a head in a call, {} words", longest), last_pairs, Unit::number);
  compare(run, all, fmt::format("workspace of a call, {} words", longest), last_workspace, Unit::bytes);
  compare(run, all, fmt::format("time of a call, {} words", longest), last_seconds, Unit::seconds);
  run.report().charts.push_back(pairs);
  run.report().charts.push_back(times);
  run.report().tables.push_back(table);
}

// -- picture: the words that the last question attends to

// A column of the picture: the words [begin, end) together.
struct Column {
  std::int64_t begin = 0, end = 0;
  std::string label;
};

// City and name of every fact, the words between facts and question in equal parts, and the words of the
// question.
std::vector<Column> columns_of(const Story& story, std::int64_t position) {
  constexpr std::int64_t kParts = 5, kAsked = 3, kToName = 3;
  const auto word_at = [&](std::int64_t i) { return forget::word(story.words[static_cast<std::size_t>(i)]); };
  std::vector<Column> columns;
  for (std::int64_t fact = 0; fact < forget::kBeginning; fact += forget::kWordsOfFact) {
    const std::int64_t name = fact + kToName;
    columns.push_back({fact, name, "in " + word_at(fact + 1)});
    columns.push_back({name, fact + forget::kWordsOfFact, "lives " + word_at(name)});
  }
  const std::int64_t from = forget::kBeginning, to = position + 1 - kAsked;
  for (std::int64_t i = 0; i < kParts; ++i) {
    const std::int64_t begin = from + (to - from) * i / kParts, end = from + (to - from) * (i + 1) / kParts;
    columns.push_back({begin, end, fmt::format("words {} to {}", begin + 1, end)});
  }
  for (std::int64_t i = to; i <= position; ++i) columns.push_back({i, i + 1, word_at(i)});
  return columns;
}

void draw(Run& run, const std::vector<Contender>& all, const std::deque<Reader>& readers) {
  const Story story = forget::tell(text::Split::test, run.seed(), 1, {.length = run.scaled(kLongest, 160)});
  const Question& question = story.questions.back();
  inspect::AttentionMap map;
  map.name = "Last layer, mean of its heads: what the question looks at";
  const std::vector<Column> columns = columns_of(story, question.position);
  for (const Column& column : columns) map.key_tokens.push_back(column.label);
  for (std::size_t i = 0; i < all.size(); ++i) {
    map.query_tokens.push_back(all[i].name);
    const std::vector<float> weights = readers[i].attention(story, question.position);
    for (const Column& column : columns)
      map.weights.push_back(
          std::accumulate(weights.begin() + column.begin, weights.begin() + column.end, 0.0f));
  }
  inspect::InspectPage page;
  page.title = fmt::format("Where is {}? Told {} words before: {}.",
                           forget::word(story.words[static_cast<std::size_t>(question.position)]),
                           question.position - question.told, forget::word(question.answer));
  page.maps = {map};
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
}

void example(Run& run) {
  const std::vector<Contender> all = contenders();
  const auto held_out = static_cast<std::size_t>(run.scaled(250, 3));
  std::vector<Story> stories;
  for (std::size_t i = 0; i < held_out; ++i)
    stories.push_back(forget::tell(text::Split::test, run.seed(), i, {.length = run.scaled(kLongest, 256)}));
  std::deque<Reader> readers;  // a reader must not move: its layers point to its parameters
  std::vector<Accuracy> accuracies;
  for (const Contender& contender : all) {
    Reader& reader = readers.emplace_back(run.seed(), contender.mask);
    train_reader(run, contender.name, reader);
    accuracies.push_back(evaluate(reader, stories));
  }
  run.report().notes.push_back(fmt::format(
      "Three Transformers of width {} and {} parameters, which differ in their masks alone: {} layers "
      "above one of the {} words before. Windows of {} words reach {} words back through all of them.",
      forget::kDim, readers[0].parameters().count(), forget::kLayers, forget::kNear, kLookback + 1, kReach));
  report_accuracy(run, all, accuracies, held_out);
  stories.resize(static_cast<std::size_t>(run.scaled(40, 3)));
  report_dilution(run, all, readers, stories);
  report_memory(run, all, readers);
  report_costs(run, all);
  draw(run, all, readers);
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "forget", .title = "Remembering the beginning of a long story"},
                      example);
}

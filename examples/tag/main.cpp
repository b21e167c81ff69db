// Names in a text. An encoder gives every word a vector that depends on the other words, and a linear layer
// gives it a tag. Whether "Washington" is a person, a place or an organisation follows only from the words
// around it. The baselines lack these: the same network in which a word sees only itself, and a list of the
// words' most frequent tags.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "fovea/models/word_encoder.h"
#include "fovea/pictures/marked_text.h"
#include "fovea/text/word_features.h"
#include "fovea/train/batching.h"
#include "gallery.h"
#include "sentences.h"

namespace {

using namespace fovea;
using sentences::Hard;
using sentences::Sentence;

constexpr std::int32_t kBuckets = 1 << 14;
constexpr std::size_t kBatch = 32, kLayers = 2;

// -- data: sentences, and the same as ids

struct Data {
  std::vector<Sentence> sentences;
  std::vector<models::FeatureSentence> words;
  std::vector<std::vector<std::int32_t>> tags;  // -1: a tag that training does not have
};

Data encode(std::vector<Sentence> sentences, const std::vector<std::string>& tags) {
  Data data{.sentences = std::move(sentences), .words = {}, .tags = {}};
  for (const Sentence& sentence : data.sentences) {
    auto& words = data.words.emplace_back();
    auto& ids = data.tags.emplace_back();
    for (const std::string& word : sentence.words)
      words.push_back(text::word_features(word, {.buckets = kBuckets}));
    for (const std::string& tag : sentence.tags) {
      const auto at = std::find(tags.begin(), tags.end(), tag);
      ids.push_back(at == tags.end() ? -1 : static_cast<std::int32_t>(at - tags.begin()));
    }
  }
  return data;
}

struct Task {
  std::vector<std::string> tags;
  Data train, test;
};

Task load(const gallery::Run& run) {
  const bool files = !run.data().empty();
  const std::uint64_t seed = run.seed();
  auto train = files ? sentences::read(run.data() + "/train.txt")
                     : sentences::generate(seed, run.scaled(8000, 200), text::Split::train);
  auto test = files ? sentences::read(run.data() + "/test.txt")
                    : sentences::generate(seed, run.scaled(1500, 60), text::Split::test);
  Task task;
  for (const Sentence& sentence : train) {
    for (const std::string& tag : sentence.tags) {
      if (std::find(task.tags.begin(), task.tags.end(), tag) == task.tags.end()) task.tags.push_back(tag);
    }
  }
  std::sort(task.tags.begin(), task.tags.end());
  task.train = encode(std::move(train), task.tags);
  task.test = encode(std::move(test), task.tags);
  return task;
}

// -- model

class Tagger {
 public:
  Tagger(std::uint64_t seed, std::size_t tags, Mask sees)
      : parameters(seed),
        sees_(std::move(sees)),
        encoder_(parameters, "encoder",
                 {.features = kBuckets,
                  .dim = 64,
                  .feed_forward = 128,
                  .heads = 4,
                  .layers = kLayers,
                  .dropout = 0.1f,
                  .word_dropout = 0.3f}),
        classes_(parameters, "classes", 64, static_cast<std::int64_t>(tags)) {}

  /// The scores of the tags, [words.size * words.length, tags].
  nn::Var operator()(nn::Context& context, const models::PaddedWords& words,
                     const std::function<Tensor*(std::string_view, std::size_t)>& weights = {}) const {
    const nn::Var read = encoder_(context, words, KeyLengths{} & sees_, weights);
    return classes_(context, reshape(read, {words.size * words.length, read.size(2)}));
  }

  nn::ParameterSet parameters;

 private:
  Mask sees_;
  models::WordEncoder encoder_;
  nn::Linear classes_;
};

// -- training

std::vector<std::int32_t> padded_tags(const Data& data, std::span<const std::size_t> index,
                                      std::int64_t length) {
  std::vector<std::int32_t> tags;
  for (const std::size_t i : index) {
    tags.insert(tags.end(), data.tags[i].begin(), data.tags[i].end());
    tags.resize(tags.size() + static_cast<std::size_t>(length) - data.tags[i].size(), -1);
  }
  return tags;
}

void train(gallery::Run& run, const std::string& what, Tagger& tagger, const Data& data) {
  train::ShuffledBatches batches(data.words.size(), kBatch, run.seed());
  const auto epochs_of_files = static_cast<std::int64_t>(8 * data.words.size() / kBatch);
  const std::int64_t updates = run.scaled(run.data().empty() ? 1300 : epochs_of_files, 10);
  train::fit(
      tagger.parameters, {.updates = updates, .schedule = nn::WarmupCosine{.peak = 3e-3}, .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        const auto index = batches(update);
        const models::PaddedWords words = models::pad(data.words, index);
        const nn::Var logits = tagger(context, words);
        const auto count = static_cast<float>(std::count_if(
            words.counts.begin(), words.counts.end(), [](std::int64_t features) { return features > 0; }));
        return autograd::cross_entropy(logits, padded_tags(data, index, words.length),
                                       {.scale = 1.0f / count});
      },
      run.progress(what));
}

// -- evaluation

using Tags = std::vector<std::string>;

std::vector<Tags> predict(const Tagger& tagger, const Data& data, const std::vector<std::string>& tags) {
  std::vector<Tags> predicted;
  for (const auto& index : train::batches_in_order(data.words.size(), kBatch)) {
    nn::Context context;
    const models::PaddedWords words = models::pad(data.words, index);
    const std::vector<std::int32_t> best = autograd::argmax_rows(tagger(context, words).value());
    for (std::size_t b = 0; b < index.size(); ++b) {
      Tags& of = predicted.emplace_back();
      for (std::size_t t = 0; t < data.words[index[b]].size(); ++t)
        of.push_back(tags[static_cast<std::size_t>(best[b * static_cast<std::size_t>(words.length) + t])]);
    }
  }
  return predicted;
}

// The tag that training has most often for each word. A word that is not in training gets the most frequent
// tag of all training words with a capital, or of those without, like itself.
std::vector<Tags> lexicon(const Data& train, const Data& test) {
  using Counts = std::map<std::string, int>;
  std::map<std::string, Counts> counts;
  for (const Sentence& sentence : train.sentences) {
    for (std::size_t i = 0; i < sentence.words.size(); ++i) ++counts[sentence.words[i]][sentence.tags[i]];
  }
  const auto best = [](const Counts& of) {
    return std::max_element(of.begin(), of.end(), [](auto& a, auto& b) { return a.second < b.second; })
        ->first;
  };
  const auto capital = [](const std::string& word) { return word[0] >= 'A' && word[0] <= 'Z'; };
  Counts kinds[2] = {{{"O", 0}}, {{"O", 0}}};
  for (const auto& [word, of] : counts) ++kinds[capital(word)][best(of)];
  std::vector<Tags> predicted;
  for (const Sentence& sentence : test.sentences) {
    Tags& of = predicted.emplace_back();
    for (const std::string& word : sentence.words) {
      const auto found = counts.find(word);
      of.push_back(best(found != counts.end() ? found->second : kinds[capital(word)]));
    }
  }
  return predicted;
}

void score(gallery::Run& run, const std::string& of, const std::vector<Sentence>& gold,
           const std::vector<Tags>& predicted, std::optional<double> promise = {}) {
  text::SpanScore all;
  std::map<Hard, text::SpanScore> hard;
  for (std::size_t i = 0; i < gold.size(); ++i) {
    const std::vector<text::Span> spans = text::spans_of(predicted[i]);
    all.add(spans, gold[i].names);
    for (std::size_t n = 0; n < gold[i].hard.size(); ++n)
      hard[gold[i].hard[n]].add(spans, std::span(gold[i].names).subspan(n, 1));
  }
  run.figure({.what = "F1 of names", .of = of, .value = all.f1(), .at_least = promise});
  const std::map<Hard, std::string> names{{Hard::ambiguous, "found, of ambiguous names"},
                                          {Hard::new_role, "found, of names in a new role"},
                                          {Hard::unseen, "found, of names never seen"}};
  for (const auto& [kind, what] : names) {
    if (hard.contains(kind)) run.figure({.what = what, .of = of, .value = hard[kind].recall()});
  }
}

// -- picture

// Held-out sentences that begin with the same name, each time as another kind, and that are tagged
// correctly. Files may have no such sentences; then there is no picture.
std::vector<std::size_t> sentences_to_show(const Data& test, const std::vector<Tags>& predicted) {
  std::map<std::string, std::map<std::string, std::size_t>> found;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < test.sentences.size() && shown.size() < 3; ++i) {
    const Sentence& sentence = test.sentences[i];
    const std::size_t words = sentence.words.size();
    const bool begins = !sentence.names.empty() && sentence.names[0].begin == 0 && sentence.names[0].end == 1;
    if (!begins || words < 10 || words > 17 || predicted[i] != sentence.tags) continue;
    if (!sentence.hard.empty() && sentence.hard[0] != Hard::ambiguous) continue;
    auto& of_name = found[sentence.words[0]];
    if (of_name.size() == 3 || !of_name.emplace(sentence.names[0].type, i).second || of_name.size() < 3)
      continue;
    for (const auto& [type, at] : of_name) shown.push_back(at);
  }
  return shown;
}

// The picture shows the first layer, where a name attends to the deciding words; the report has every head
// of both layers.
void draw(gallery::Run& run, const Tagger& tagger, const Data& test, const std::vector<std::size_t>& shown) {
  std::vector<pictures::MarkedText> texts;
  for (const std::size_t i : shown) {
    const std::vector<std::string>& words = test.sentences[i].words;
    const std::size_t index[] = {i};
    std::vector<Tensor> weights(kLayers);
    nn::Context context;
    tagger(context, models::pad(test.words, index),
           [&](std::string_view, std::size_t layer) { return &weights[layer]; });
    texts.push_back({.caption = words[0] + " is tagged " + test.sentences[i].names[0].type,
                     .words = words,
                     .weights = inspect::attended_by(weights[0], 0, 0, std::ssize(words)),
                     .who = 0});
    inspect::InspectPage page{.title = texts.back().caption};
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const float* from = weights[layer].data<float>();
      page.maps.push_back({.name = fmt::format("layer {}", layer + 1),
                           .layer = static_cast<int>(layer),
                           .query_tokens = words,
                           .key_tokens = words,
                           .heads = static_cast<int>(weights[layer].size(1)),
                           .weights = {from, from + weights[layer].count()}});
    }
    run.report().pages.push_back(page);
  }
  run.picture(pictures::draw_marked_texts(texts, {.title = "What the framed name attends to"}));
}

void example(gallery::Run& run) {
  const Task task = load(run);
  run.report().notes = {
      "Names in held-out sentences. An ambiguous name is a person, a place or an organisation by its "
      "sentence alone; a name in a new role is one that training never has as what it is here."};

  const Mask itself = SlidingWindow{.lookback = 0, .lookahead = 0},
             near = SlidingWindow{.lookback = 2, .lookahead = 2};
  const std::vector<std::tuple<std::string, Mask, std::optional<double>>> models{
      {"encoder", Everything{}, run.data().empty() ? std::optional(0.95) : std::nullopt},
      {"the same, a word sees two on each side (baseline)", near, {}},
      {"the same, a word sees itself alone (baseline)", itself, {}}};
  for (const auto& [name, sees, promise] : models) {
    Tagger tagger(run.seed(), task.tags.size(), sees);
    train(run, name, tagger, task.train);
    const std::vector<Tags> predicted = predict(tagger, task.test, task.tags);
    score(run, name, task.test.sentences, predicted, promise);
    if (name == "encoder") draw(run, tagger, task.test, sentences_to_show(task.test, predicted));
  }
  score(run, "most frequent tag of each word (baseline)", task.test.sentences,
        lexicon(task.train, task.test));
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(
      argc, argv,
      {.name = "tag",
       .title = "Names in a text",
       .data = "a folder with train.txt and test.txt in CoNLL's columns: a word and, last, its tag"},
      example);
}

// The type of a question: does it ask for a reason, a person, a place, a number? An encoder reads the
// words. Then the rows are pooled into one vector, and a linear layer computes the type. A learned query
// attends to the few important words among many others. Three baselines pool without it: by gates, by
// the largest value and by the mean of all rows. Two more queries give most words a weight of exactly 0.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "fovea/models/word_encoder.h"
#include "fovea/pictures/marked_text.h"
#include "fovea/text/word_features.h"
#include "fovea/train/batching.h"
#include "gallery.h"
#include "questions.h"

namespace {

using namespace fovea;
using questions::Question;

constexpr std::size_t kTypes = questions::kTypes.size();

// -- data: questions, and the same as ids

struct Data {
  std::vector<Question> questions;
  std::vector<models::FeatureSentence> words;
};

Data encode(std::vector<Question> questions, const text::WordFeatureOptions& features) {
  Data data{.questions = std::move(questions), .words = {}};
  for (const Question& question : data.questions) {
    auto& words = data.words.emplace_back();
    for (const std::string& word : question.words) words.push_back(text::word_features(word, features));
  }
  return data;
}

/// Settings. Generated questions have a small vocabulary, and there are many of them. Real questions have a
/// large vocabulary and are few, so that the parts of a word have to say more. Both settings were chosen on
/// parts of the training questions.
struct Settings {
  text::WordFeatureOptions features{.buckets = 1 << 14};
  std::int64_t dim = 64, layers = 2;
  std::int64_t window = 2;  ///< words that a word sees to either side, in a layer
  std::int64_t heads = 1;   ///< of the pooling
  float dropout = 0.1f, word_dropout = 0.0f;
  float smoothing = 0.0f;  ///< of the types
  double peak = 2e-3;      ///< learning rate
  std::int64_t updates = 500;
};
constexpr std::size_t kBatch = 32;

struct Task {
  Settings settings;
  Data train, test;
  Data longer = {};  ///< generated ones with more around them than training has; of files: none
};

Task generated_task(const gallery::Run& run) {
  const Settings settings{.updates = run.scaled(500, 10)};
  const auto generated = [&](std::int64_t count, const questions::Options& options) {
    return encode(questions::generate(run.seed(), count, options), settings.features);
  };
  return {.settings = settings,
          .train = generated(run.scaled(6000, 200), {}),
          .test = generated(run.scaled(1500, 60), {.split = text::Split::test}),
          .longer = generated(run.scaled(500, 20), {.split = text::Split::test, .least = 12, .most = 12})};
}

Task task_of_files(const gallery::Run& run) {
  Settings settings{.features = {.buckets = 1 << 14, .shortest = 2, .longest = 6},
                    .dim = 128,
                    .window = 1,
                    .heads = 4,
                    .dropout = 0.2f,
                    .word_dropout = 0.05f,
                    .smoothing = 0.1f,
                    .peak = 1e-3};
  constexpr std::size_t kEpochs = 6;
  std::vector<Question> train = questions::read(run.data() + "/train.txt");
  settings.updates = run.scaled(static_cast<std::int64_t>(kEpochs * train.size() / kBatch), 10);
  return {.settings = settings,
          .train = encode(std::move(train), settings.features),
          .test = encode(questions::read(run.data() + "/test.txt"), settings.features)};
}

// -- model

enum class Pooling { attention, gates, max, mean };

/// One of the models that are compared.
struct Contender {
  std::string name;
  Pooling pooling;
  std::int64_t layers;
  Normalizer normalizer = Softmax{};  ///< of attention
};

class Classifier {
 public:
  Classifier(std::uint64_t seed, const Contender& contender, const Settings& settings)
      : parameters(seed),
        dim_(settings.dim),
        dropout_(settings.dropout),
        smoothing_(settings.smoothing),
        near_(SlidingWindow{.lookback = settings.window, .lookahead = settings.window}),
        encoder_(parameters, "encoder",
                 {.features = settings.features.buckets,
                  .dim = dim_,
                  .feed_forward = 2 * dim_,
                  .heads = 4,
                  .layers = contender.layers,
                  .dropout = settings.dropout,
                  .word_dropout = settings.word_dropout}),
        types_(parameters, "types", dim_, std::int64_t{kTypes}) {
    if (contender.pooling == Pooling::attention) {
      query_.emplace();
      query_->query = &parameters.normal("pooling.query", {1, dim_}, 1.0f);
      query_->attention = nn::MultiHeadAttention(
          parameters, "pooling", dim_,
          {.num_query_heads = settings.heads, .spec = {.normalizer = contender.normalizer}});
    }
    if (contender.pooling == Pooling::gates) gate_ = &parameters.normal("gate", {1, dim_}, 0.0f);
    if (contender.pooling == Pooling::max) pool_ = autograd::Pool::max;
  }

  /// The scores of the types, [words.size, types]. `weights`, if given, receives the pooling's.
  nn::Var operator()(nn::Context& context, const models::PaddedWords& words,
                     Tensor* weights = nullptr) const {
    return types_(context, pooled(context, words, weights));
  }
  /// The mean over the questions.
  nn::Var loss(nn::Context& context, const models::PaddedWords& words,
               std::span<const std::int32_t> types) const {
    return linear_cross_entropy(pooled(context, words, nullptr), context.use(*types_.weight),
                                context.use(*types_.bias), types, smoothing_,
                                {.scale = 1.0f / static_cast<float>(types.size())});
  }

  nn::ParameterSet parameters;

 private:
  nn::Var pooled(nn::Context& context, const models::PaddedWords& words, Tensor* weights) const {
    const nn::Var read = encoder_(context, words, KeyLengths{} & near_);
    const nn::Var pooled = query_  ? (*query_)(context, read, words.lengths, weights)
                           : gate_ ? gated(context, read, words.lengths)
                                   : autograd::pool(pool_, read, words.lengths);
    return context.dropout(reshape(pooled, {words.size, dim_}), dropout_);
  }
  // Σ_i σ(g·x_i) x_i over the rows of each entry, [B, 1, dim]: attention whose normaliser is a sigmoid, so
  // that no row's weight depends on another row.
  nn::Var gated(nn::Context& context, const nn::Var& rows, std::span<const std::int64_t> lengths) const {
    const std::vector<std::int32_t> first(lengths.size(), 0);
    const nn::Var gate = reshape(autograd::embedding(context.use(*gate_), first), {rows.size(0), 1, dim_});
    return autograd::attention(
        {.spec = {.score = Dot{}, .mask = KeyLengths{}, .normalizer = Sigmoid{.bias = -3.0}},
         .key_lengths = lengths},
        gate, rows, rows);
  }

  std::int64_t dim_ = 0;
  float dropout_ = 0.0f, smoothing_ = 0.0f;
  Mask near_;
  models::WordEncoder encoder_;
  std::optional<nn::AttentionPooling> query_;
  nn::Parameter* gate_ = nullptr;  // g of `gated`
  autograd::Pool pool_ = autograd::Pool::mean;
  nn::Linear types_;
};

// -- training

void train(gallery::Run& run, const std::string& what, Classifier& model, const Task& task) {
  train::ShuffledBatches batches(task.train.words.size(), kBatch, run.seed());
  train::fit(
      model.parameters,
      {.updates = task.settings.updates,
       .schedule = nn::WarmupCosine{.peak = task.settings.peak},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        const auto index = batches(update);
        std::vector<std::int32_t> types;
        for (const std::size_t i : index) types.push_back(task.train.questions[i].type);
        return model.loss(context, models::pad(task.train.words, index), types);
      },
      run.progress(what));
}

// -- evaluation

std::vector<std::int32_t> predict(const Classifier& model, const Data& data) {
  std::vector<std::int32_t> types;
  for (const auto& index : train::batches_in_order(data.words.size(), kBatch)) {
    nn::Context context;
    const auto best = autograd::argmax_rows(model(context, models::pad(data.words, index)).value());
    types.insert(types.end(), best.begin(), best.end());
  }
  return types;
}

// The most frequent type among training questions with the same first question word.
std::vector<std::int32_t> by_question_word(const Data& train, const Data& test) {
  static const std::vector<std::string> asking{"what",  "which", "who", "whom", "whose",
                                               "where", "when",  "why", "how",  "name"};
  const auto word_of = [](const Question& question) {
    for (std::string word : question.words) {
      word[0] = static_cast<char>(std::tolower(word[0]));
      if (std::find(asking.begin(), asking.end(), word) != asking.end()) return word;
    }
    return std::string();
  };
  std::map<std::string, std::array<int, questions::kTypes.size()>> counts;
  for (const Question& question : train.questions) ++counts[word_of(question)][question.type];
  std::vector<std::int32_t> types;
  for (const Question& question : test.questions) {
    const auto& of = counts[word_of(question)];
    types.push_back(static_cast<std::int32_t>(std::max_element(of.begin(), of.end()) - of.begin()));
  }
  return types;
}

double share_right(const Data& data, const std::vector<std::int32_t>& types) {
  double right = 0.0;
  for (std::size_t i = 0; i < types.size(); ++i) right += types[i] == data.questions[i].type;
  return right / static_cast<double>(types.size());
}

/// `types_of(data)`: the types that a model gives to the questions.
template <class Types>
void score(gallery::Run& run, const std::string& of, const Task& task, Types&& types_of,
           std::optional<double> promise = {}) {
  run.figure({.what = "right types",
              .of = of,
              .value = share_right(task.test, types_of(task.test)),
              .at_least = promise});
  if (!task.longer.words.empty()) {
    run.figure({.what = "right types, among 12 sentences",
                .of = of,
                .value = share_right(task.longer, types_of(task.longer))});
  }
}

// The share of words to which the pooling gives a weight.
double share_weighed(const Classifier& model, const Data& data) {
  double weighed = 0, words = 0;
  for (const auto& index : train::batches_in_order(data.words.size(), kBatch)) {
    nn::Context context;
    Tensor weights;  // [B, heads, 1, L], 0 behind the end of a sentence
    model(context, models::pad(data.words, index), &weights);
    const float* first = weights.data<float>();
    weighed += static_cast<double>(
        std::count_if(first, first + weights.count(), [](float weight) { return weight > 0; }));
    for (const std::size_t i : index)
      words += static_cast<double>(data.words[i].size()) * static_cast<double>(weights.size(1));
  }
  return weighed / words;
}

// How often each held-out type was taken for each other type.
inspect::Table confusions(const Data& test, const std::vector<std::int32_t>& given) {
  inspect::Table table{.caption = "Held-out questions by their type (rows) and the type given",
                       .header = {"type"},
                       .rows = {}};
  std::array<std::array<int, kTypes>, kTypes> counts{};
  for (std::size_t i = 0; i < given.size(); ++i)
    ++counts[static_cast<std::size_t>(test.questions[i].type)][static_cast<std::size_t>(given[i])];
  for (std::size_t type = 0; type < kTypes; ++type) {
    table.header.emplace_back(questions::kTypes[type]);
    table.rows.push_back({questions::kTypes[type]});
    for (const int count : counts[type]) table.rows.back().push_back(std::to_string(count));
  }
  return table;
}

// -- picture

// For each type the first held-out question with that number of words whose type is found. Most of TREC's
// questions have ten words or fewer.
std::vector<std::size_t> questions_to_show(const gallery::Run& run, const Data& test,
                                           const std::vector<std::int32_t>& given) {
  const std::size_t least = run.data().empty() ? 28 : 11, most = least + 8;
  std::vector<std::size_t> shown;
  for (std::int32_t type = 0; type < static_cast<std::int32_t>(kTypes); ++type) {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const Question& question = test.questions[i];
      const bool fits = question.words.size() >= least && question.words.size() <= most;
      if (question.type != type || given[i] != type || !fits) continue;
      shown.push_back(i);
      break;
    }
  }
  return shown;
}

// The weights of the pooling's query over the words.
inspect::Drawing draw(const Classifier& model, const Data& test, const std::vector<std::size_t>& shown) {
  std::vector<pictures::MarkedText> texts;
  for (const std::size_t i : shown) {
    const Question& question = test.questions[i];
    const std::size_t index[] = {i};
    nn::Context context;
    Tensor weights;
    model(context, models::pad(test.words, index), &weights);
    texts.push_back({.caption = questions::kTypes[static_cast<std::size_t>(question.type)],
                     .words = question.words,
                     .weights = inspect::attended_by(weights, 0, 0, std::ssize(question.words))});
  }
  return pictures::draw_marked_texts(texts, {.title = "What the query of the pooling attends to"});
}

void example(gallery::Run& run) {
  run.report().notes = {
      "The type of held-out questions, by one encoder whose rows are pooled in four ways. Generated "
      "questions stand among sentences that do not matter; 12 of them are three times what training "
      "has at most."};
  const bool files = !run.data().empty();
  const Task task = files ? task_of_files(run) : generated_task(run);
  // TREC's own files are known by their sizes; other files promise nothing.
  const bool trec = files && task.train.words.size() == 5452 && task.test.words.size() == 500;
  const std::optional<double> promise = trec    ? std::optional(0.88)
                                        : files ? std::nullopt
                                                : std::optional(0.95);
  const std::int64_t layers = task.settings.layers;
  std::vector<Contender> contenders{{"attention pooling", Pooling::attention, layers},
                                    {"gates (baseline)", Pooling::gates, layers},
                                    {"max-pooling (baseline)", Pooling::max, layers},
                                    {"mean-pooling (baseline)", Pooling::mean, layers},
                                    {"attention pooling, no encoder (baseline)", Pooling::attention, 0}};
  if (!files) {
    contenders.push_back({"attention pooling, entmax 1.5", Pooling::attention, layers, Entmax{1.5}});
    contenders.push_back({"attention pooling, sparsemax", Pooling::attention, layers, Sparsemax{}});
  }
  for (const Contender& contender : contenders) {
    Classifier model(run.seed(), contender, task.settings);
    train(run, contender.name, model, task);
    const bool attends = contender.pooling == Pooling::attention && contender.layers > 0;
    score(
        run, contender.name, task, [&](const Data& data) { return predict(model, data); },
        attends ? promise : std::nullopt);
    if (attends && !files) {
      run.figure({.what = "words with a weight, among 12 sentences",
                  .of = contender.name,
                  .value = share_weighed(model, task.longer)});
    }
    if (&contender != &contenders.front()) continue;
    const std::vector<std::int32_t> given = predict(model, task.test);
    run.report().tables.push_back(confusions(task.test, given));
    run.picture(draw(model, task.test, questions_to_show(run, task.test, given)));
  }
  score(run, "most frequent type of the first question word (baseline)", task,
        [&](const Data& data) { return by_question_word(task.train, data); });
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(
      argc, argv,
      {.name = "classify",
       .title = "The type of a question",
       .data = "a folder with train.txt and test.txt: a type from 0 to 5 and the question, a line each"},
      example);
}

// retrieve: two ways to find the passage that answers a question. A bi-encoder makes one vector of each
// passage beforehand and is fast. A cross-encoder reads question and passage together, where each word of one
// attends to each word of the other. It is exact but slow. So the first finds 32 candidates among two
// thousand, and the second puts them in order. The passages are hard to tell apart by one vector each:
// seven of eight have the same words as the right one and another meaning.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "bm25.h"
#include "encoders.h"
#include "gallery.h"

namespace {

using namespace fovea;
using gallery::Run;
using gallery::Unit;
using retrieve::Family;
using retrieve::Ids;

constexpr std::size_t kCandidates = 32;

// -- data

std::vector<Family> families_of(retrieve::World world, std::uint64_t seed, std::uint64_t first,
                                std::size_t count, const retrieve::FamilyShape& shape = {}) {
  std::vector<Family> families;
  for (std::size_t i = 0; i < count; ++i)
    families.push_back(retrieve::draw_family(world, seed, first + i, shape));
  return families;
}

// The passages of all held-out families in one list, and the places of the answers in it.
struct Collection {
  std::vector<Ids> passages, questions;
  std::vector<std::size_t> answers;
  explicit Collection(const std::vector<Family>& families) {
    for (const Family& family : families) {
      questions.push_back(family.question);
      answers.push_back(passages.size() + family.answer);
      passages.insert(passages.end(), family.passages.begin(), family.passages.end());
    }
  }
};

// -- training

// The data of one update.
struct Lesson {
  std::size_t families = 64;
  retrieve::FamilyShape shape = {};
};

struct Training {
  std::int64_t updates = 0;
  double peak = 0.0;  ///< learning rate
  bool identity_values = false;
  std::function<Lesson(double done, std::int64_t update)> lesson;
};

// Learns to tell a question's passage from the passages of other families.
Training bi_training(const Run& run) {
  return {.updates = run.scaled(1200, 5),
          .peak = 3e-3,
          .identity_values = true,
          .lesson = [](double, std::int64_t) { return Lesson{}; }};
}

// The passages have one line at first and up to kFacts lines later. With a probability of 40 % the changed
// part of a wrong passage becomes a random word (FamilyShape::replaced), because such passages are easier.
Training cross_training(const Run& run) {
  const auto lesson = [](double done, std::int64_t update) {
    const std::int64_t most = done < 0.15 ? 1 : done < 0.4 ? 2 : done < 0.6 ? 3 : retrieve::kFacts;
    const std::int64_t lines = 1 + update % most;
    return Lesson{.families = static_cast<std::size_t>(40 / (1 + lines)),
                  .shape = {.lines = lines, .replaced = 0.4f}};
  };
  return {.updates = run.scaled(1500, 10), .peak = 1.5e-3, .lesson = lesson};
}

template <class Encoder>
void teach(Run& run, const std::string& name, Encoder& encoder, const Training& training) {
  nn::start_keys_as_queries(encoder.parameters());
  if (training.identity_values) nn::start_values_as_identity(encoder.parameters());
  constexpr std::int64_t kMost = 64;  // families of an update
  train::fit(
      encoder.parameters(),
      {.updates = training.updates,
       .schedule = nn::WarmupCosine{.peak = training.peak, .warmup = training.updates / 20}},
      [&](nn::Context& context, std::int64_t update) {
        const double done = static_cast<double>(update) / static_cast<double>(training.updates);
        const Lesson lesson = training.lesson(done, update);
        return encoder.loss(
            context, families_of(retrieve::World::train, run.seed(),
                                 static_cast<std::uint64_t>(update * kMost), lesson.families, lesson.shape));
      },
      run.progress(name));
}

// -- evaluation

// Indices of the `count` best scores, best first; of equal scores the first comes first.
std::vector<std::size_t> best_of(std::span<const float> scores, std::size_t count) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  count = std::min(count, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](std::size_t a, std::size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  order.resize(count);
  return order;
}

// Candidates of every question, best first.
using Rankings = std::vector<std::vector<std::size_t>>;

// The share of questions whose answer is among the first `k`.
double recall(const Rankings& rankings, const Collection& collection, std::size_t k) {
  double found = 0.0;
  for (std::size_t i = 0; i < rankings.size(); ++i) {
    const auto end = rankings[i].begin() + static_cast<std::ptrdiff_t>(std::min(k, rankings[i].size()));
    found += std::find(rankings[i].begin(), end, collection.answers[i]) != end ? 1.0 : 0.0;
  }
  return found / static_cast<double>(rankings.size());
}

Rankings search_words(const Collection& collection) {
  const retrieve::Bm25 words(collection.passages, retrieve::vocabulary_size());
  Rankings rankings;
  for (const Ids& question : collection.questions)
    rankings.push_back(best_of(words.scores(question), kCandidates));
  return rankings;
}

struct Timed {
  Rankings rankings;
  double once = 0.0, a_question = 0.0;  ///< seconds for encoding all passages, and for each question
};

Timed search_vectors(const retrieve::BiEncoder& bi, const Collection& collection) {
  constexpr std::size_t kBlock = 64;
  nn::Context context;
  const gallery::Stopwatch encoding;
  std::vector<nn::Var> blocks;
  for (std::size_t i = 0; i < collection.passages.size(); i += kBlock) {
    const std::size_t count = std::min(kBlock, collection.passages.size() - i);
    blocks.push_back(bi.passages(context, std::span(collection.passages).subspan(i, count)));
  }
  const auto size = static_cast<std::int64_t>(collection.passages.size());
  const nn::Var index = reshape(autograd::concat(blocks, 0), {1, size, retrieve::kVector});
  Timed timed;
  timed.once = encoding.seconds();
  const gallery::Stopwatch asking;
  for (const Ids& question : collection.questions) {
    const nn::Var vector = reshape(bi.questions(context, {&question, 1}), {1, 1, retrieve::kVector});
    const Tensor scores = inner_products(vector, index).value();
    timed.rankings.push_back(
        best_of({scores.data<float>(), static_cast<std::size_t>(scores.count())}, kCandidates));
  }
  timed.a_question = asking.seconds() / static_cast<double>(collection.questions.size());
  return timed;
}

Timed rerank(const retrieve::CrossEncoder& cross, const Collection& collection, const Rankings& found) {
  nn::Context context;
  Timed timed;
  const gallery::Stopwatch asking;
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::vector<Ids> candidates;
    for (const std::size_t place : found[i]) candidates.push_back(collection.passages[place]);
    const Tensor scores = cross.scores(context, collection.questions[i], candidates).value();
    std::vector<std::size_t>& ranking = timed.rankings.emplace_back();
    for (const std::size_t place : best_of({scores.data<float>(), candidates.size()}, candidates.size()))
      ranking.push_back(found[i][place]);
  }
  timed.a_question = asking.seconds() / static_cast<double>(found.size());
  return timed;
}

void report(Run& run, const Collection& collection, const Rankings& words, const Timed& searched,
            const Timed& reranked) {
  const std::string bm25 = "BM25, shared words (baseline)", bi = "bi-encoder (baseline)",
                    both = "bi-encoder, then cross-encoder";
  const double first = recall(searched.rankings, collection, 1),
               again = recall(reranked.rankings, collection, 1);
  const std::string at_k = fmt::format("recall@{}", kCandidates);
  run.figure({.what = "recall@1", .of = bm25, .value = recall(words, collection, 1)});
  run.figure({.what = "recall@1", .of = bi, .value = first});
  run.figure({.what = "recall@1", .of = both, .value = again});
  run.figure({.what = "recall@1 gained by re-ranking",
              .of = both,
              .value = again - first,
              .unit = Unit::points,
              .at_least = 0.20});
  run.figure({.what = at_k, .of = bm25, .value = recall(words, collection, kCandidates)});
  run.figure({.what = at_k, .of = bi, .value = recall(searched.rankings, collection, kCandidates)});
  run.figure({.what = fmt::format("time to encode {} passages, once", collection.passages.size()),
              .of = bi,
              .value = searched.once,
              .unit = Unit::seconds});
  run.figure({.what = "time a question, finding candidates",
              .of = bi,
              .value = searched.a_question,
              .unit = Unit::seconds});
  run.figure({.what = fmt::format("time a question, re-ranking {}", kCandidates),
              .of = both,
              .value = reranked.a_question,
              .unit = Unit::seconds});
  inspect::LineChart chart{"Recall among the first k", "k", "%", {}};
  const std::pair<std::string, const Rankings*> all[] = {
      {bm25, &words}, {bi, &searched.rankings}, {both, &reranked.rankings}};
  for (const auto& [name, rankings] : all) {
    chart.curves.push_back({name, {}});
    for (std::size_t k = 1; k <= kCandidates; ++k)
      chart.curves.back().points.push_back(
          {static_cast<double>(k), 100.0 * recall(*rankings, collection, k)});
  }
  run.report().charts.push_back(chart);
}

// -- picture

std::vector<std::string> words_of(std::span<const std::int32_t> ids) {
  std::vector<std::string> words;
  for (const std::int32_t id : ids) words.push_back(retrieve::word(id));
  return words;
}

// The weights of the question's words on the passage that answers it: every head in the report, their mean
// as the picture.
void draw(Run& run, const retrieve::CrossEncoder& cross, const Family& family) {
  nn::Context context;
  Tensor weights;
  const Ids& passage = family.passages[family.answer];
  cross.scores(context, family.question, {&passage, 1}, &weights);
  const auto asked = static_cast<std::int64_t>(family.question.size());
  inspect::AttentionMap map{.name = "question (down) and passage (across)",
                            .query_tokens = words_of(family.question),
                            .key_tokens = words_of(passage),
                            .heads = static_cast<int>(weights.size(1)),
                            .weights = {}};
  std::vector<float> mean(map.rows() * map.columns());
  for (std::int64_t head = 0; head < weights.size(1); ++head) {
    std::size_t cell = 0;
    for (std::int64_t q = 0; q < asked; ++q) {
      for (std::int64_t k = asked; k < weights.size(3); ++k) {
        map.weights.push_back(weights.view().at<float>({0, head, q, k}));
        mean[cell++] += map.weights.back() / static_cast<float>(weights.size(1));
      }
    }
  }
  inspect::InspectPage page{.title = "What a question attends to in its passage",
                            .source = {},
                            .output = {},
                            .facts = {},
                            .maps = {map}};
  run.report().pages.push_back(page);
  page.maps[0].heads = 1;
  page.maps[0].weights = mean;
  run.picture(pictures::draw_picture(page));
}

void example(Run& run) {
  retrieve::BiEncoder bi(run.seed());
  teach(run, "bi-encoder", bi, bi_training(run));
  retrieve::CrossEncoder cross(run.seed());
  teach(run, "cross-encoder", cross, cross_training(run));

  const std::vector<Family> held_out =
      families_of(retrieve::World::held_out, run.seed(), 0, static_cast<std::size_t>(run.scaled(250, 10)));
  const Collection collection(held_out);
  const Timed searched = search_vectors(bi, collection);
  const Timed reranked = rerank(cross, collection, searched.rankings);
  run.report().notes.push_back(
      fmt::format("{} questions, {} passages, of which {} share their words. The bi-encoder has {} "
                  "parameters, the cross-encoder {}.",
                  collection.questions.size(), collection.passages.size(), retrieve::kFamilySize,
                  bi.parameters().count(), cross.parameters().count()));
  report(run, collection, search_words(collection), searched, reranked);
  draw(run, cross, held_out.front());
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(
      argc, argv, {.name = "retrieve", .title = "Retrieve with vectors, re-rank with attention"}, example);
}

// Beams that are drawn: frequencies against the exact distribution, by an enumeration of all orders of
// drawing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fovea/core/error.h"
#include "fovea/models/language_model.h"
#include "models/beams.h"
#include "models/sampling.h"

namespace fovea::models {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Calls `use` with each order in which `count` of the weights may be drawn, and its probability: each one in
// proportion to its share of those that are left.
void all_orders(const std::vector<double>& weights, std::size_t count, std::vector<std::size_t>& order,
                double probability, const std::function<void(const std::vector<std::size_t>&, double)>& use) {
  double left = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (std::ranges::find(order, i) == order.end()) left += weights[i];
  }
  if (order.size() == count || left == 0.0) return use(order, probability);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0.0 || std::ranges::find(order, i) != order.end()) continue;
    order.push_back(i);
    all_orders(weights, count, order, probability * weights[i] / left, use);
    order.pop_back();
  }
}

// Each count of `trials` is binomial: five standard deviations are missed by one of two million right counts.
// The 1 is for probabilities near 0.
template <class Key>
void expect_frequencies(const std::map<Key, int>& counts, const std::map<Key, double>& exact, int trials) {
  double sum = 0.0;
  for (const auto& [key, probability] : exact) {
    sum += probability;
    const double expected = trials * probability,
                 deviation = std::sqrt(trials * probability * (1.0 - probability));
    const auto found = counts.find(key);
    EXPECT_NEAR(found == counts.end() ? 0 : found->second, expected, 5.0 * deviation + 1.0);
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
  for (const auto& [key, count] : counts) EXPECT_TRUE(exact.contains(key));
}

TEST(DrawWithoutReplacement, HasTheProbabilitiesOfAllOrders) {
  const std::vector<double> weights{0.4, 0.0, 1.1, 0.05, 2.0, 0.7};
  std::vector<double> logs;
  for (const double weight : weights) logs.push_back(std::log(weight) - 40.0);  // the sum does not matter
  constexpr int trials = 40'000;
  std::map<std::vector<std::size_t>, double> exact;
  std::vector<std::size_t> order;
  all_orders(weights, 3, order, 1.0,
             [&](const auto& drawn, double probability) { exact[drawn] += probability; });
  std::map<std::vector<std::size_t>, int> counts;
  for (int trial = 0; trial < trials; ++trial)
    ++counts[draw_without_replacement(
        logs, 3, [&](std::size_t draw) { return uniform_of(9, trial, static_cast<std::uint32_t>(draw)); })];
  EXPECT_EQ(exact.size(), 60u);  // of five entries
  expect_frequencies(counts, exact, trials);
}

TEST(DrawWithoutReplacement, WeightsMayDifferByAnyFactor) {
  const std::vector<double> logs{-5000.0, 0.0, -kInfinity, -2000.0, -900.0};
  for (const double uniform : {0.0, 0.5, 1.0 - 0x1p-53}) {
    const auto drawn = draw_without_replacement(logs, 9, [=](std::size_t) { return uniform; });
    EXPECT_EQ(drawn, (std::vector<std::size_t>{1, 4, 3, 0}));
  }
  EXPECT_TRUE(
      draw_without_replacement(std::vector<double>{-kInfinity}, 2, [](std::size_t) { return 0.5; }).empty());
  EXPECT_TRUE(draw_without_replacement({}, 2, [](std::size_t) { return 0.5; }).empty());
  // Each of many entries is drawn once.
  const std::vector<double> many(997, -3.0);
  const auto all = draw_without_replacement(
      many, 2000, [](std::size_t draw) { return uniform_of(4, 0, static_cast<std::uint32_t>(draw)); });
  EXPECT_EQ(all.size(), many.size());
  EXPECT_EQ(std::set<std::size_t>(all.begin(), all.end()).size(), many.size());
}

TEST(DrawnBeams, CutsKeepEnoughToGoOn) {
  const std::vector<float> row{-3.0f, -0.5f, -1.5f, -9.0f, -2.0f};
  const auto kept = [&](const SampleOptions& options, std::size_t least) {
    Ids ids = kept_ids(row, options, least);
    std::ranges::sort(ids);
    return ids;
  };
  EXPECT_EQ(kept({.top_k = 1}, 1), (Ids{1}));
  EXPECT_EQ(kept({.top_k = 1}, 2), (Ids{1, 2}));
  EXPECT_EQ(kept({.top_p = 1e-3}, 3), (Ids{1, 2, 4}));
  EXPECT_EQ(kept({.min_p = 1.0}, 2), (Ids{1, 2}));
  EXPECT_EQ(kept({.top_k = 3, .top_p = 1e-3}, 2), (Ids{1, 2}));
  EXPECT_EQ(kept({}, 2).size(), row.size());
  EXPECT_EQ(kept({.top_k = 9}, 2).size(), row.size());
}

// -- a search over four ids, of which 3 ends a text

constexpr std::int64_t kVocabulary = 4, kLength = 3;
constexpr std::int32_t kStop = 3;

std::vector<float> logits_behind(const Ids& ids) {
  double sum = 0.7;
  for (std::size_t i = 0; i < ids.size(); ++i) sum += 3.0 * (ids[i] + 1.0) * (static_cast<double>(i) + 1.0);
  std::vector<float> logits;
  for (int id = 0; id < kVocabulary; ++id)
    logits.push_back(static_cast<float>(1.2 * std::sin(7.0 * id + sum)));
  return logits;
}

// The texts of a search, best first.
std::vector<BeamText> searched(const BeamOptions& options) {
  const Ids prompt{0};
  Beams beams(prompt, options);
  std::vector<Ids> open{{}};
  while (beams.open() > 0) {
    std::vector<float> logits;
    for (const Ids& ids : open) {
      const std::vector<float> row = logits_behind(ids);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    std::vector<Ids> next;
    for (const BeamStep& step : beams.take(logits.data(), kVocabulary, 0)) {
      next.push_back(open[step.parent]);
      next.back().push_back(step.id);
    }
    open = std::move(next);
  }
  std::vector<BeamText> texts;
  for (const EndedBeam& ended : beams.ended()) texts.push_back(ended.text);
  return texts;
}

// Both beams as the definition has them: texts with their scores, those that ended with their scores by
// length.
struct State {
  std::vector<std::pair<double, Ids>> open, ended;  // best first
  auto operator<=>(const State&) const = default;
};

State after(const State& state, const std::vector<std::pair<double, Ids>>& drawn, std::int64_t length) {
  State next{{}, state.ended};
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const auto& [score, ids] = drawn[i];
    if (length < kLength && ids.back() != kStop)
      next.open.emplace_back(score, ids);
    else if (i < 2)  // the first two that were drawn may end
      next.ended.emplace_back(score / static_cast<double>(length), ids);
  }
  std::ranges::sort(next.open, std::greater());
  std::ranges::sort(next.ended, std::greater());
  if (next.open.size() > 2) next.open.resize(2);
  if (next.ended.size() > 2) next.ended.resize(2);
  if (next.ended.size() == 2) next.open.clear();  // EarlyStopping::on
  return next;
}

// The probability of each pair of texts at the end.
std::map<std::vector<Ids>, double> exact_texts(double temperature) {
  std::map<State, double> states{{State{{{0.0, {}}}, {}}, 1.0}};
  for (std::int64_t length = 1; length <= kLength; ++length) {
    std::map<State, double> next;
    for (const auto& [state, probability] : states) {
      if (state.open.empty()) {
        next[state] += probability;
        continue;
      }
      std::vector<std::pair<double, Ids>> pairs;
      std::vector<double> weights;
      for (const auto& [score, ids] : state.open) {
        const std::vector<float> logits = logits_behind(ids);
        double sum = 0.0;
        for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
        for (std::int32_t id = 0; id < kVocabulary; ++id) {
          Ids longer = ids;
          longer.push_back(id);
          const double log_probability = logits[static_cast<std::size_t>(id)] - std::log(sum);
          pairs.emplace_back(score + log_probability / temperature, longer);
          weights.push_back(std::exp(pairs.back().first));
        }
      }
      std::vector<std::size_t> order;
      all_orders(weights, 4, order, probability, [&](const auto& drawn, double of_order) {
        std::vector<std::pair<double, Ids>> in_order;
        for (const std::size_t i : drawn) in_order.push_back(pairs[i]);
        next[after(state, in_order, length)] += of_order;
      });
    }
    states = std::move(next);
  }
  std::map<std::vector<Ids>, double> texts;
  for (const auto& [state, probability] : states) {
    std::vector<Ids> both;
    for (const auto& [score, ids] : state.ended) both.push_back(ids);
    texts[both] += probability;
  }
  return texts;
}

TEST(DrawnBeams, TextsHaveTheirExactProbabilities) {
  for (const double temperature : {1.0, 0.6}) {
    const auto exact = exact_texts(temperature);
    ASSERT_GT(exact.size(), 30u);
    constexpr int trials = 20'000;
    std::map<std::vector<Ids>, int> counts;
    for (int seed = 1; seed <= trials; ++seed) {
      std::vector<Ids> both;
      for (const BeamText& text :
           searched({.beams = 2,
           .length = kLength,
           .early_stopping = EarlyStopping::on,
           .draws = DrawOptions{.temperature = temperature, .seed = static_cast<std::uint64_t>(seed)},
           .stop = {kStop}}))
        both.push_back(text.ids);
      ++counts[both];
    }
    expect_frequencies(counts, exact, trials);
  }
}

// A text keeps the model's own log-probabilities; its score has the temperature.
TEST(DrawnBeams, ScoresHaveTheTemperature) {
  for (const BeamText& text : searched({.beams = 2, .length = 3, .draws = DrawOptions{.temperature = 0.5}})) {
    double sum = 0.0;
    for (const double one : text.log_probabilities) sum += one;
    EXPECT_NEAR(text.log_probability, sum / 0.5, 1e-5);
    EXPECT_NEAR(text.score, text.log_probability / 3.0, 1e-9);
  }
}

TEST(DrawnBeams, AColdDrawIsTheSearch) {
  for (const EarlyStopping early : {EarlyStopping::off, EarlyStopping::on, EarlyStopping::never}) {
    BeamOptions options{.beams = 3, .length = 6, .early_stopping = early, .stop = {kStop}};
    const std::vector<BeamText> plain = searched(options);
    for (const double temperature : {1e-4, 0.0}) {
      options.draws = {.temperature = temperature};
      const std::vector<BeamText> cold = searched(options);
      ASSERT_EQ(cold.size(), plain.size());
      for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(cold[i].ids, plain[i].ids);
    }
  }
}

TEST(DrawnBeams, OneBeamDrawsAsGenerateDoes) {
  LanguageModel model({.vocabulary = 7, .dim = 8, .feed_forward = 12, .heads = 2, .layers = 2}, 5);
  const Ids prompt{1, 4, 2};
  std::set<Ids> texts;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SampleOptions sample{
        .temperature = 0.8, .top_k = 5, .top_p = 0.9, .min_p = 0.01, .seed = seed, .length = 9};
    sample.repetition_penalty = 1.2;
    sample.rules.no_repeat_ngram = 3;
    const Generated written = generate(model, prompt, sample);
    KvCache cache({.layers = model.cache_layers()});
    const std::vector<BeamText> drawn = beam_search(
        model, cache, prompt,
        {.beams = 1,
         .length = 9,
         .repetition_penalty = 1.2,
         .rules = sample.rules,
         .draws = DrawOptions{.temperature = 0.8, .top_k = 5, .top_p = 0.9, .min_p = 0.01, .seed = seed}});
    ASSERT_EQ(drawn.size(), 1u);
    EXPECT_EQ(drawn[0].ids, written.ids);
    ASSERT_EQ(drawn[0].log_probabilities.size(), written.log_probabilities.size());
    for (std::size_t i = 0; i < written.ids.size(); ++i)
      EXPECT_NEAR(drawn[0].log_probabilities[i], written.log_probabilities[i], 1e-5);
    texts.insert(written.ids);
  }
  EXPECT_GT(texts.size(), 3u);
}

TEST(DrawnBeams, BadOptionsAreRefused) {
  EXPECT_THROW(searched({.beams = 2, .draws = DrawOptions{.temperature = -1.0}}), InvalidArgument);
  EXPECT_THROW(searched({.beams = 2, .draws = DrawOptions{.temperature = NAN}}), InvalidArgument);
  EXPECT_THROW(searched({.beams = 2, .draws = DrawOptions{.top_p = 0.0}}), InvalidArgument);
  EXPECT_THROW(searched({.beams = 2, .draws = DrawOptions{.top_k = -1}}), InvalidArgument);
  EXPECT_THROW(searched({.beams = 2, .draws = DrawOptions{.min_p = 2.0}}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::models

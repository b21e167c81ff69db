// Beams of a language model, against the definition: all texts, by a search through every one of them.
#include "fovea/models/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fovea/core/error.h"

namespace fovea::models {
namespace {

using Ids = std::vector<std::int32_t>;

LanguageModel tiny() {
  LanguageModel model({.vocabulary = 7, .dim = 8, .feed_forward = 12, .heads = 2, .layers = 2}, 5);
  // Sharper than a fresh model, so that no two texts are as probable.
  for (const nn::Parameter& parameter : model.parameters().all()) {
    float* x = const_cast<float*>(parameter.value.data<float>());
    std::transform(x, x + parameter.value.count(), x, [](float value) { return 2.0f * value; });
  }
  return model;
}

std::vector<BeamText> search(LanguageModel& model, const Ids& prompt, const BeamOptions& options) {
  KvCache cache({.layers = model.cache_layers()});
  return beam_search(model, cache, prompt, options);
}

// Every text of `length` ids, or that `stop` ends before.
void all_texts(LanguageModel& model, const Ids& prompt, Ids& ids, std::int64_t length, std::int32_t stop,
               std::vector<BeamText>& texts) {
  if (std::ssize(ids) == length || (!ids.empty() && ids.back() == stop)) {
    Ids all = prompt;
    all.insert(all.end(), ids.begin(), ids.end());
    const std::vector<double> of_ids = token_log_probabilities(model, all);
    double sum = 0.0;
    for (std::size_t i = prompt.size() - 1; i < of_ids.size(); ++i) sum += of_ids[i];
    texts.push_back({ids, {of_ids.end() - std::ssize(ids), of_ids.end()}, sum, sum});
    return;
  }
  for (std::int32_t id = 0; id < model.config().vocabulary; ++id) {
    ids.push_back(id);
    all_texts(model, prompt, ids, length, stop, texts);
    ids.pop_back();
  }
}

TEST(BeamSearch, FindsTheBestOfAllTextsIfItKeepsEnough) {
  LanguageModel model = tiny();
  const Ids prompt{1, 4, 2};
  for (const double penalty : {0.0, 1.0, -0.5}) {
    std::vector<BeamText> all;
    Ids ids;
    all_texts(model, prompt, ids, 3, 3, all);
    for (BeamText& text : all)
      text.score = text.log_probability / std::pow(static_cast<double>(text.ids.size()), penalty);
    std::ranges::stable_sort(all, [](const BeamText& a, const BeamText& b) { return a.score > b.score; });
    const std::vector<BeamText> found = search(model, prompt,
                                               {.beams = 49,
                                                .length = 3,
                                                .length_penalty = penalty,
                                                .early_stopping = EarlyStopping::never,
                                                .stop = {3}});
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().ids, all.front().ids);
    EXPECT_NEAR(found.front().log_probability, all.front().log_probability, 1e-5);
    EXPECT_TRUE(std::ranges::is_sorted(
        found, [](const BeamText& a, const BeamText& b) { return a.score > b.score; }));
  }
}

TEST(BeamSearch, OneBeamIsGreedy) {
  LanguageModel model = tiny();
  const Ids prompt{1, 4, 2};
  const Generated greedy = generate(model, prompt, {.temperature = 0.0, .length = 12});
  const std::vector<BeamText> found = search(model, prompt, {.beams = 1, .length = 12});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ids, greedy.ids);
  double sum = 0.0;
  for (const double one : greedy.log_probabilities) sum += one;
  EXPECT_NEAR(found[0].log_probability, sum, 1e-5);
}

TEST(BeamSearch, EndsWhereItIsTold) {
  LanguageModel model = tiny();
  const Ids prompt{1, 4, 2};
  BeamOptions options{.beams = 3, .length = 20};
  options.ends = [](std::span<const std::int32_t> ids) { return ids.size() == 4; };
  for (const BeamText& text : search(model, prompt, options)) EXPECT_EQ(text.ids.size(), 4u);
  int steps = 0;
  options.ends = {};
  options.cancelled = [&] { return ++steps > 2; };
  EXPECT_TRUE(search(model, prompt, options).empty());
  EXPECT_THROW(search(model, prompt, {.beams = 0}), InvalidArgument);
  EXPECT_THROW(search(model, prompt, {.beams = 2, .length_penalty = NAN}), InvalidArgument);
  EXPECT_THROW(search(model, {}, {.beams = 2}), InvalidArgument);
  EXPECT_THROW(search(model, {7}, {.beams = 2}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::models

// Beams of a language model, against the definition: all texts, by a search through every one of them.
#include "fovea/models/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "fovea/core/error.h"
#include "fovea/models/transformer.h"

namespace fovea::models {
namespace {

using Ids = std::vector<std::int32_t>;

LanguageModel sharp() {
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
  LanguageModel model = sharp();
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
  LanguageModel model = sharp();
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
  LanguageModel model = sharp();
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

// Many texts side by side, of which the last starts when others have ended, have the bits of one alone.
TEST(BeamSearch, ManyAreAsEachAlone) {
  LanguageModel model = sharp();
  std::vector<BeamRequest> requests;
  for (std::int32_t i = 0; i < 5; ++i) {
    BeamRequest& request = requests.emplace_back();
    for (std::int32_t k = 0; k < 1 + 40 * i; ++k) request.prompt.push_back((3 * k + i) % 7);
    request.options = {.beams = 1 + i, .length = 12 - 2 * i, .stop = {3}};
    request.options.rules.no_repeat_ngram = i % 2 == 0 ? 0 : 2 + i;
  }
  KvCache cache({.layers = model.cache_layers()});
  std::vector<std::vector<BeamText>> found(requests.size());
  std::vector<int> calls(requests.size());
  beam_search(model, cache, requests,
              [&](std::size_t number, std::vector<BeamText> texts, const std::exception_ptr& error) {
                EXPECT_FALSE(error);
                found[number] = std::move(texts);
                ++calls[number];
              },
              {.rows = 6});
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(calls[i], 1);
    const std::vector<BeamText> alone = search(model, requests[i].prompt, requests[i].options);
    ASSERT_EQ(found[i].size(), alone.size());
    for (std::size_t n = 0; n < alone.size(); ++n) {
      EXPECT_EQ(found[i][n].ids, alone[n].ids);
      EXPECT_EQ(found[i][n].log_probability, alone[n].log_probability);
    }
  }
}

// What one request asks for leaves no id; the others go on.
TEST(BeamSearch, OneThatFailsLeavesTheOthers) {
  LanguageModel model = sharp();
  std::vector<BeamRequest> requests(3, {{1, 2}, {.beams = 2, .length = 4}});
  requests[1].options.rules.suppress = {0, 1, 2, 3, 4, 5, 6};
  KvCache cache({.layers = model.cache_layers()});
  std::vector<int> texts(3), errors(3);
  beam_search(model, cache, requests,
              [&](std::size_t number, const std::vector<BeamText>& found, const std::exception_ptr& error) {
                texts[number] += static_cast<int>(found.size());
                errors[number] += error ? 1 : 0;
              });
  EXPECT_EQ(texts, (std::vector<int>{2, 0, 2}));
  EXPECT_EQ(errors, (std::vector<int>{0, 1, 0}));
  EXPECT_THROW(search(model, {1, 2}, requests[1].options), InvalidArgument);
  EXPECT_THROW(search(model, {1, 2}, {.length = 0}), InvalidArgument);
  EXPECT_THROW(search(model, {1, 2}, {.repetition_penalty = 0.0}), InvalidArgument);
}

TEST(BeamSearch, FollowsRules) {
  LanguageModel model = sharp();
  const Ids prompt{1, 4, 2};
  BeamOptions options{.beams = 3, .length = 9, .stop = {3}};
  options.rules = {.no_repeat_ngram = 1, .ends = {3}, .forced_eos = {3}, .suppress = {5}};
  // One id of seven is suppressed, three stand in the prompt, and no other may stand twice.
  for (const BeamText& text : search(model, prompt, options)) {
    Ids sorted = text.ids;
    std::ranges::sort(sorted);
    EXPECT_TRUE(std::ranges::adjacent_find(sorted) == sorted.end());
    for (const std::int32_t id : text.ids) EXPECT_TRUE(id == 0 || id == 3 || id == 6) << id;
  }
  options.rules = {.suppress = {0, 1, 2, 3, 4, 5, 6}};
  EXPECT_THROW(search(model, prompt, options), InvalidArgument);
}

// Every text of a translator, scored by its own forward.
void all_translations(SequenceToSequence& model, const Ids& source, Ids& ids, std::int64_t length,
                      std::vector<BeamText>& texts) {
  if (std::ssize(ids) == length || (!ids.empty() && ids.back() == 3)) {
    Batch batch = make_batch({source}, {ids}, 2, 3, SourceEnd::as_given);
    nn::Context context;
    const Tensor next = model.log_probabilities(model.hidden(context, batch, nullptr, nullptr));
    double sum = 0.0;
    for (std::size_t i = 0; i < ids.size(); ++i)
      sum += next.data<float>()[static_cast<std::int64_t>(i) * next.size(1) + ids[i]];
    texts.push_back({.ids = ids, .log_probability = sum, .score = sum / static_cast<double>(ids.size())});
    return;
  }
  for (std::int32_t id = 0; id < model.vocabulary(); ++id) {
    ids.push_back(id);
    all_translations(model, source, ids, length, texts);
    ids.pop_back();
  }
}

std::unique_ptr<SequenceToSequence> tiny_translator() {
  auto model = make_transformer(
      {.vocabulary = 6, .dim = 8, .feed_forward = 12, .heads = 2, .encoder_layers = 1, .decoder_layers = 2},
      7);
  for (const nn::Parameter& parameter : model->parameters().all()) {
    float* x = const_cast<float*>(parameter.value.data<float>());
    std::transform(x, x + parameter.value.count(), x, [](float value) { return 2.0f * value; });
  }
  return model;
}

// Sources with options of their own, of which one has no id left at its fourth step. The others are as alone.
TEST(BeamSearch, ASourceThatFailsLeavesTheOthers) {
  const auto model = tiny_translator();
  std::vector<BeamRequest> requests{{{4, 5, 1, 3}, {.beams = 2, .length = 7}},
                                    {{5, 3}, {.beams = 3, .length = 5}},
                                    {{1, 1, 4, 4, 5, 3}, {.beams = 1, .length = 9, .stop = {3}}}};
  requests[1].options.rules = {.no_repeat_ngram = 1, .suppress = {1, 4}};
  std::vector<int> calls(3), errors(3);
  std::vector<std::vector<BeamText>> found(3);
  beam_search(*model, requests, {.id = 2},
              [&](std::size_t number, std::vector<BeamText> texts, const std::exception_ptr& error) {
                ++calls[number];
                errors[number] += error ? 1 : 0;
                found[number] = std::move(texts);
              });
  EXPECT_EQ(calls, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(errors, (std::vector<int>{0, 1, 0}));
  EXPECT_TRUE(found[1].empty());
  for (const std::size_t i : {0, 2}) {
    std::vector<BeamText> alone;
    beam_search(*model, std::span(&requests[i], 1), {.id = 2},
                [&](std::size_t, std::vector<BeamText> texts, const std::exception_ptr&) {
                  alone = std::move(texts);
                });
    ASSERT_EQ(found[i].size(), alone.size());
    for (std::size_t n = 0; n < alone.size(); ++n) {
      EXPECT_EQ(found[i][n].ids, alone[n].ids);
      EXPECT_NEAR(found[i][n].log_probability, alone[n].log_probability, 1e-4);
      EXPECT_EQ(found[i][n].alignment.size(), alone[n].ids.size());
      EXPECT_EQ(found[i][n].alignment[0].size(), requests[i].prompt.size());
    }
  }
  // With one result for all, the failure is thrown.
  const TranslatorBeams options{.search = requests[1].options, .start = 2};
  EXPECT_THROW(beam_search(*model, {{4, 3}, {5, 3}}, options), InvalidArgument);
}

TEST(BeamSearch, FindsTheBestTranslationInABatch) {
  const auto model = tiny_translator();
  const std::vector<Ids> sources{{4, 5, 1, 3}, {5, 3}, {1, 1, 4, 4, 5, 3}};
  TranslatorBeams options{
      .search = {.beams = 36, .length = 3, .early_stopping = EarlyStopping::never, .stop = {3}}, .start = 2};
  const auto found = beam_search(*model, sources, options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    std::vector<BeamText> all;
    Ids ids;
    all_translations(*model, sources[i], ids, 3, all);
    const auto best = std::ranges::max_element(all, {}, &BeamText::score);
    ASSERT_FALSE(found[i].empty());
    EXPECT_EQ(found[i][0].ids, best->ids);
    EXPECT_NEAR(found[i][0].score, best->score, 1e-5);
    ASSERT_EQ(found[i][0].alignment.size(), found[i][0].ids.size());
    for (const std::vector<float>& row : found[i][0].alignment) {
      ASSERT_EQ(row.size(), sources[i].size());
      double sum = 0.0;
      for (const float weight : row) sum += weight;
      EXPECT_NEAR(sum, 1.0, 1e-5);
    }
  }
  options.alignments = false;
  const auto without = beam_search(*model, sources, options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(without[i][0].ids, found[i][0].ids);
    EXPECT_TRUE(without[i][0].alignment.empty());
  }
  EXPECT_THROW(beam_search(*model, {{}}, options), InvalidArgument);
  options.start = 6;
  EXPECT_THROW(beam_search(*model, sources, options), InvalidArgument);
}

}  // namespace
}  // namespace fovea::models

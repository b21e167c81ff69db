// Rules of ids: each forbids what it says, and nothing else.
#include "fovea/models/token_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fovea::models {
namespace {

using Ids = std::vector<std::int32_t>;

// The ids that stay possible behind a text, of a vocabulary of 8. All have the score 1 before.
Ids allowed(const TokenRules& rules, const Ids& prompt, const Ids& written, std::int64_t length = 100) {
  std::vector<float> scores(8, 1.0f);
  apply(rules, {prompt, written, length}, scores);
  Ids ids;
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (!std::isinf(scores[id])) ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

const Ids kAll{0, 1, 2, 3, 4, 5, 6, 7};

TEST(TokenRules, WithoutRulesAllIsAllowed) {
  EXPECT_TRUE(TokenRules{}.empty());
  EXPECT_EQ(allowed({.ends = {3}}, {1}, {2, 2}), kAll);
}

TEST(TokenRules, NoNgramStandsTwice) {
  EXPECT_EQ(allowed({.no_repeat_ngram = 2}, {1, 4}, {1}), (Ids{0, 1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(allowed({.no_repeat_ngram = 3}, {1, 4, 2}, {1, 4}), (Ids{0, 1, 3, 4, 5, 6, 7}));
  EXPECT_EQ(allowed({.no_repeat_ngram = 3}, {1, 4, 2}, {2, 4}), kAll);
  EXPECT_EQ(allowed({.no_repeat_ngram = 1}, {1, 4}, {6}), (Ids{0, 2, 3, 5, 7}));
  EXPECT_EQ(allowed({.no_repeat_ngram = 4}, {1}, {1}), kAll);
}

TEST(TokenRules, ATextDoesNotEndTooSoon) {
  const TokenRules total{.min_length = 4, .ends = {3, 5}}, own{.min_new = 2, .ends = {3}};
  EXPECT_EQ(allowed(total, {1, 1}, {1}), (Ids{0, 1, 2, 4, 6, 7}));
  EXPECT_EQ(allowed(total, {1, 1}, {1, 1}), kAll);
  EXPECT_EQ(allowed(own, {1, 1, 1}, {1}), (Ids{0, 1, 2, 4, 5, 6, 7}));
  EXPECT_EQ(allowed(own, {1, 1, 1}, {1, 1}), kAll);
}

TEST(TokenRules, ForcedIdsStandAtTheEnds) {
  const TokenRules rules{.forced_bos = 2, .forced_eos = {3, 9}};
  EXPECT_EQ(allowed(rules, {0}, {}, 5), (Ids{2}));
  EXPECT_EQ(allowed(rules, {0}, {2}, 5), kAll);
  EXPECT_EQ(allowed(rules, {0}, {2, 1, 1, 1}, 5), (Ids{3}));
  std::vector<float> scores(4, -7.0f);
  const Ids prompt{0};
  apply(rules, {prompt, {}, 5}, scores);
  EXPECT_EQ(scores[2], 0.0f);
}

TEST(TokenRules, SuppressedIdsAndWordsAreNotWritten) {
  EXPECT_EQ(allowed({.suppress = {1, 99, -1}}, {0}, {4}), (Ids{0, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(allowed({.begin_suppress = {1}}, {0, 0}, {}), (Ids{0, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(allowed({.begin_suppress = {1}}, {0, 0}, {4}), kAll);
  EXPECT_EQ(allowed({.forced_bos = 2, .begin_suppress = {1}}, {0}, {2}), (Ids{0, 2, 3, 4, 5, 6, 7}));
  const TokenRules words{.ends = {3}, .bad_words = {{6}, {3}, {4, 5}, {0, 4, 7}}};
  EXPECT_EQ(allowed(words, {0}, {4}), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(allowed(words, {1}, {4}), (Ids{0, 1, 2, 3, 4, 7}));
  EXPECT_EQ(allowed(words, {}, {}), (Ids{0, 1, 2, 3, 4, 5, 7}));
}

TEST(TokenRules, TheRuleThatLeavesNoIdIsNamed) {
  const auto named = [](const TokenRules& rules, const Ids& prompt, const Ids& written) {
    return rule_without_choice(rules, {prompt, written, 4}, std::vector<float>(2, -1.0f));
  };
  EXPECT_EQ(named({}, {0}, {}), "");
  EXPECT_EQ(named({.suppress = {0}}, {0}, {}), "");
  EXPECT_EQ(named({.suppress = {0, 1}}, {0}, {}), "suppress_tokens");
  EXPECT_EQ(named({.suppress = {0}, .begin_suppress = {1}}, {0}, {}), "begin_suppress_tokens");
  EXPECT_EQ(named({.no_repeat_ngram = 1}, {0, 1}, {}), "no_repeat_ngram_size");
  EXPECT_EQ(named({.bad_words = {{0}, {1}}}, {0}, {}), "bad_words_ids");
  EXPECT_EQ(named({.min_length = 3, .ends = {0, 1}}, {0}, {}), "min_length");
  EXPECT_EQ(named({.min_new = 3, .ends = {0, 1}}, {0}, {}), "min_new_tokens");
  EXPECT_EQ(named({.forced_bos = 7}, {0}, {}), "forced_bos_token_id");
  EXPECT_EQ(named({.forced_eos = {7}}, {0}, {1, 1, 1}), "forced_eos_token_id");
  // A forced id comes back behind a rule that forbids all.
  EXPECT_EQ(named({.forced_eos = {1}, .bad_words = {{0}, {1}}}, {0}, {1, 1, 1}), "");
  const std::vector<float> none(2, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(rule_without_choice({.suppress = {0}}, {}, none), "");
}

}  // namespace
}  // namespace fovea::models

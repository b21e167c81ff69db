// Tokens drawn from a language model, against the definition; with a cache and without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "fovea/models/batcher.h"
#include "fovea/models/beam_search.h"
#include "fovea/models/language_model.h"

namespace fovea::models {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> values;
  for (const double p : probabilities) values.push_back(static_cast<float>(std::log(p)));
  return values;
}

std::vector<std::int32_t> ids_of(const std::vector<Choice>& kept) {
  std::vector<std::int32_t> ids;
  for (const Choice& choice : kept) ids.push_back(choice.id);
  return ids;
}

using Ids = std::vector<std::int32_t>;
// f32 logarithms of size 4 and less: relative errors of e^x are at most 4 · 2^-24, and sums have few terms.
constexpr double rounding = 1e-6;

TEST(Sampling, TemperatureRaisesProbabilitiesToItsInverse) {
  const std::vector<double> p{0.1, 0.4, 0.2, 0.05, 0.25};
  for (const double temperature : {0.25, 0.7, 1.0, 3.0}) {
    double sum = 0.0;
    for (const double x : p) sum += std::pow(x, 1.0 / temperature);
    const auto kept = choices(logs(p), {.temperature = temperature});
    EXPECT_EQ(ids_of(kept), (Ids{1, 4, 2, 0, 3}));
    for (const Choice& choice : kept) {
      const double expected = std::pow(p[static_cast<std::size_t>(choice.id)], 1.0 / temperature) / sum;
      EXPECT_NEAR(choice.probability, expected, 4.0 * rounding);  // an exponent four times as large
    }
  }
  EXPECT_EQ(ids_of(choices(logs(p), {.temperature = 0.0})), Ids{1});
  EXPECT_EQ(sample(logs(p), {.temperature = 0.0}, 0.999), 1);
  EXPECT_EQ(sample(logs(p), {.temperature = 1e-300}, 0.999), 1);
}

TEST(Sampling, TopKKeepsExactlyKTheSmallerIdAmongEquals) {
  const auto p = logs({0.1, 0.3, 0.1, 0.3, 0.1, 0.1});
  EXPECT_EQ(ids_of(choices(p, {.top_k = 1})), Ids{1});
  EXPECT_EQ(ids_of(choices(p, {.top_k = 3})), (Ids{1, 3, 0}));
  EXPECT_EQ(ids_of(choices(p, {.top_k = 5})), (Ids{1, 3, 0, 2, 4}));
  EXPECT_EQ(choices(p, {.top_k = 6}).size(), 6u);
  EXPECT_EQ(choices(p, {.top_k = 600}).size(), 6u);
  EXPECT_EQ(choices(p, {.top_k = 0}).size(), 6u);
  const auto kept = choices(p, {.top_k = 3});
  EXPECT_NEAR(kept[0].probability, 3.0 / 7.0, rounding);
  EXPECT_NEAR(kept[2].probability, 1.0 / 7.0, rounding);
  EXPECT_EQ(ids_of(choices(p, {.temperature = 0.0, .top_k = 4})), Ids{1});  // greedy: the smaller id
}

TEST(Sampling, TopPKeepsTheFewestThatSumToP) {
  // Sums 0.5, 0.75, 0.875, 1: powers of two, so that p may lie exactly on one.
  const std::vector<float> p{std::log(0.125f), std::log(0.5f), std::log(0.125f), std::log(0.25f)};
  EXPECT_EQ(ids_of(choices(p, {.top_p = 1e-12})), Ids{1});
  EXPECT_EQ(ids_of(choices(p, {.top_p = 0.49})), Ids{1});
  EXPECT_EQ(ids_of(choices(p, {.top_p = 0.51})), (Ids{1, 3}));
  EXPECT_EQ(ids_of(choices(p, {.top_p = 0.74})), (Ids{1, 3}));
  EXPECT_EQ(ids_of(choices(p, {.top_p = 0.76})), (Ids{1, 3, 0}));
  EXPECT_EQ(ids_of(choices(p, {.top_p = 0.88})), (Ids{1, 3, 0, 2}));
  EXPECT_EQ(choices(p, {.top_p = 1.0}).size(), 4u);
  EXPECT_NEAR(choices(p, {.top_p = 0.6})[1].probability, 1.0 / 3.0, rounding);
  // Equal probabilities, whose sums are exact: two of them are a half.
  const std::vector<float> equal(4, -1.0f);
  EXPECT_EQ(ids_of(choices(equal, {.top_p = 0.5})), (Ids{0, 1}));
  EXPECT_EQ(ids_of(choices(equal, {.top_p = 0.5000001})), (Ids{0, 1, 2}));
}

TEST(Sampling, RulesActInOrderTemperatureThenKThenP) {
  const auto p = logs({0.4, 0.3, 0.2, 0.1});
  // Of the three tokens that are left the shares are 4/9, 3/9, 2/9: p = 0.75 keeps two of three (7/9). Of
  // all four it would keep three.
  EXPECT_EQ(ids_of(choices(p, {.top_k = 3, .top_p = 0.75})), (Ids{0, 1}));
  EXPECT_EQ(ids_of(choices(p, {.top_p = 0.75})), (Ids{0, 1, 2}));
  // Squared and normalised, the shares are 16, 9, 4, 1 of 30. 25/30 is enough for 0.8; without squaring the
  // sum 0.7 is not.
  EXPECT_EQ(ids_of(choices(p, {.temperature = 0.5, .top_p = 0.8})), (Ids{0, 1}));
  EXPECT_EQ(ids_of(choices(p, {.top_p = 0.8})), (Ids{0, 1, 2}));
}

TEST(Sampling, TokensOfProbabilityZeroAreNeverChosen) {
  const std::vector<float> p{never, -1.0f, never, -2.0f};
  EXPECT_EQ(ids_of(choices(p, {.temperature = 50.0})), (Ids{1, 3}));
  for (const double u : {0.0, 0.3, 0.9999999999}) EXPECT_EQ(sample(p, {}, u) % 2, 1);
  EXPECT_EQ(sample(std::vector<float>{never, 0.0f, never}, {}, 0.5), 1);
  // A token whose share underflows is not drawn even if rounding makes the sum of the others slightly less
  // than 1.
  EXPECT_EQ(sample(std::vector<float>{0.0f, 0.0f, 0.0f, -1e6f}, {}, std::nextafter(1.0, 0.0)), 2);
}

// Pearson's chi-square of 200,000 draws. With these fixed seeds one result beyond the 99.9 % point of its
// degrees of freedom is a mistake: five such results by chance would have probability 10^-15.
TEST(Sampling, FrequenciesFollowTheDefinition) {
  const std::vector<double> p{0.02, 0.25, 0.08, 0.3, 0.15, 0.2};
  struct Case {
    SampleOptions options;
    std::vector<double> expected;  // worked out by hand from p, up to a factor
    double bound;                  // 99.9 % point of chi-square
  };
  const std::vector<Case> cases{
      {{}, p, 20.52},
      {{.temperature = 0.5}, {0.0004, 0.0625, 0.0064, 0.09, 0.0225, 0.04}, 20.52},
      {{.top_k = 3}, {0, 0.25, 0, 0.3, 0, 0.2}, 13.82},
      {{.top_p = 0.8}, {0, 0.25, 0, 0.3, 0.15, 0.2}, 16.27},
      {{.temperature = 0.5, .top_k = 4, .top_p = 0.8}, {0, 0.0625, 0, 0.09, 0, 0.04}, 13.82},
      {{.min_p = 0.4}, {0, 0.25, 0, 0.3, 0.15, 0.2}, 16.27},
      {{.temperature = 0.5, .top_k = 4, .min_p = 0.4}, {0, 0.0625, 0, 0.09, 0, 0.04}, 13.82}};
  for (std::size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(c);
    const int draws = 200'000;
    PhiloxStream random(77 + c);
    std::vector<double> seen(p.size(), 0.0);
    const auto log_p = logs(p);
    for (int i = 0; i < draws; ++i) {
      const double u = (random.next_u32() + 0.5) * 0x1p-32;
      seen[static_cast<std::size_t>(sample(log_p, cases[c].options, u))] += 1.0;
    }
    double sum = 0.0, chi_square = 0.0;
    for (const double x : cases[c].expected) sum += x;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double expected = draws * cases[c].expected[i] / sum;
      if (expected == 0.0) {
        EXPECT_EQ(seen[i], 0.0) << i;
      } else {
        chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
      }
    }
    EXPECT_LT(chi_square, cases[c].bound);
  }
}

// The penalty divides a logit above 0 and multiplies one below, once for an id that stands in the text twice.
// What is recorded is the model's own log-probability.
TEST(Sampling, IdsThatStandInTheTextAreLessProbable) {
  const auto chosen = [](const std::vector<float>& logits, const Ids& read, const Ids& before) {
    Generated written{.ids = before, .log_probabilities = std::vector<double>(before.size())};
    write_next(logits, read, {.temperature = 0.0, .repetition_penalty = 2.0}, written);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const std::int32_t id = written.ids.back();
    EXPECT_NEAR(written.log_probabilities.back(), logits[static_cast<std::size_t>(id)] - std::log(sum), 1e-6);
    return id;
  };
  EXPECT_EQ(chosen({2.0f, 1.5f, -9.0f}, {}, {}), 0);
  EXPECT_EQ(chosen({2.0f, 1.5f, -9.0f}, {0}, {}), 1);
  EXPECT_EQ(chosen({2.0f, 1.5f, -9.0f}, {}, {2, 0}), 1);
  EXPECT_EQ(chosen({2.0f, 0.6f, -9.0f}, {0, 0}, {0}), 0);
  EXPECT_EQ(chosen({-1.0f, -1.5f, -9.0f}, {0}, {}), 1);
}

TEST(Sampling, RefusesWrongArguments) {
  const auto p = logs({0.5, 0.5});
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinite = std::numeric_limits<double>::infinity();
  for (const SampleOptions& bad : {SampleOptions{.temperature = -0.1},
                                   {.temperature = nan},
                                   {.temperature = infinite},
                                   {.top_k = -1},
                                   {.top_p = 0.0},
                                   {.top_p = 1.1},
                                   {.top_p = nan},
                                   {.min_p = -0.1},
                                   {.min_p = 1.1},
                                   {.repetition_penalty = 0.0},
                                   {.repetition_penalty = nan}})
    EXPECT_THROW(choices(p, bad), InvalidArgument);
  EXPECT_THROW(choices({}, {}), InvalidArgument);
  EXPECT_THROW(choices(std::vector<float>{never, never}, {}), InvalidArgument);
  EXPECT_THROW(choices(std::vector<float>{0.0f, std::nanf("")}, {}), InvalidArgument);
  EXPECT_THROW(choices(std::vector<float>{0.0f, -never}, {}), InvalidArgument);
  EXPECT_THROW(choices(std::vector<float>{0.0f, std::nanf("")}, {.temperature = 0.0}), InvalidArgument);
  for (const double u : {-0.1, 1.0, nan}) EXPECT_THROW(sample(p, {}, u), InvalidArgument);
}

// 16 numbers are compared side by side, and the rest one by one.
TEST(Sampling, GreedyTakesTheFirstOfTheLargestWhereverItStands) {
  constexpr std::size_t count = 53;
  const SampleOptions greedy{.temperature = 0.0};
  for (std::size_t at = 0; at < count; ++at) {
    std::vector<float> numbers(count, -3.0f);
    numbers[at] = numbers[count - 1] = -1.0f;
    EXPECT_EQ(sample(numbers, greedy, 0.5), static_cast<std::int32_t>(at));
    for (const float bad : {std::nanf(""), -never}) {
      numbers[at] = bad;
      try {
        sample(numbers, greedy, 0.5);
        ADD_FAILURE() << bad << " at " << at;
      } catch (const InvalidArgument& error) {
        EXPECT_NE(std::string(error.what()).find(" at " + std::to_string(at)), std::string::npos);
      }
    }
  }
}

LanguageModel tiny() {
  return LanguageModel({.vocabulary = 13, .dim = 8, .feed_forward = 12, .heads = 2, .layers = 2}, 5);
}

TEST(Generate, WritesTheSameWithAndWithoutACache) {
  LanguageModel model = tiny();
  const Ids prompt{3, 1, 4};
  for (const SampleOptions& options :
       {SampleOptions{.temperature = 0.0, .length = 70},
        {.length = 70},
        {.temperature = 1.5, .top_k = 7, .top_p = 0.95, .seed = 9, .length = 70},
        {.temperature = 0.0, .repetition_penalty = 1.3, .length = 70}}) {
    SampleOptions again = options;
    again.reuse = Reuse::off;
    const Generated with = generate(model, prompt, options), without = generate(model, prompt, again);
    EXPECT_EQ(with.ids, without.ids);
    ASSERT_EQ(with.log_probabilities.size(), 70u);
    // The tolerance of rows read one by one against all rows at once: see language_model_test.cpp.
    for (std::size_t i = 0; i < 70; ++i)
      EXPECT_NEAR(with.log_probabilities[i], without.log_probabilities[i], 2e-5);
    EXPECT_EQ(with.cache_bytes, 2 * (3 + 70 - 1) * 2 * 8 * 4);
    EXPECT_EQ(without.cache_bytes, 0);
  }
}

TEST(Generate, FollowsFromTheSeedAndHasTheRequestedLength) {
  LanguageModel model = tiny();
  const Ids prompt{2};
  const auto text = [&](std::uint64_t seed, std::int64_t length) {
    return generate(model, prompt, {.seed = seed, .length = length}).ids;
  };
  const Ids first = text(1, 40);
  EXPECT_EQ(first.size(), 40u);
  EXPECT_EQ(text(1, 40), first);
  EXPECT_NE(text(2, 40), first);
  EXPECT_EQ(text(1, 15), Ids(first.begin(), first.begin() + 15));
  EXPECT_TRUE(text(1, 0).empty());
  // Each token's log-probability is the model's own, whatever the temperature.
  const Generated cold = generate(model, prompt, {.temperature = 0.3, .length = 5});
  Ids all = prompt;
  all.insert(all.end(), cold.ids.begin(), cold.ids.end());
  nn::Context context;
  const Tensor rows = model.log_probabilities(model.hidden(context, pad(std::vector<Ids>{all})));
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(cold.log_probabilities[i], rows.data<float>()[i * 13 + static_cast<std::size_t>(cold.ids[i])],
                2e-5);
}

TEST(Generate, RefusesWrongArguments) {
  LanguageModel model = tiny();
  EXPECT_THROW(generate(model, {}, {}), InvalidArgument);
  EXPECT_THROW(generate(model, Ids{13}, {}), InvalidArgument);
  EXPECT_THROW(generate(model, Ids{-1}, {}), InvalidArgument);
  EXPECT_THROW(generate(model, Ids{1}, {.length = -1}), InvalidArgument);
  for (const TokenRules& rules :
       {TokenRules{.no_repeat_ngram = -1}, TokenRules{.min_length = -1}, TokenRules{.min_new = -1},
        TokenRules{.forced_bos = 13}, TokenRules{.forced_bos = -1}, TokenRules{.forced_eos = {13, -1}}}) {
    EXPECT_THROW(generate(model, Ids{1}, {.rules = rules, .length = 1}), InvalidArgument);
    KvCache cache({.layers = model.cache_layers()});
    EXPECT_THROW(beam_search(model, cache, Ids{1}, {.rules = rules}), InvalidArgument);
  }
  EXPECT_NO_THROW(generate(model, Ids{1}, {.rules = {.forced_eos = {13, 2}}, .length = 1}));
  EXPECT_THROW(generate(model, Ids{1}, {.top_p = 2.0, .length = 0}), InvalidArgument);
}

// Each error names the function that was called, and its argument.
TEST(Generate, ErrorsNameTheCallersFunction) {
  LanguageModel model = tiny();
  KvCache cache({.layers = model.cache_layers()});
  Batcher batcher(model);
  const auto refused = [](const char* function, const char* argument, const auto& call) {
    try {
      call();
      ADD_FAILURE() << function << " accepted " << argument;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.function(), function);
      EXPECT_EQ(error.argument(), argument);
    }
  };
  const SampleOptions bad{.top_p = 2.0, .length = 1};
  refused("generate", "options.top_p", [&] { generate(model, Ids{1}, bad); });
  refused("generate", "prompt", [&] { generate(model, {}, {}); });
  refused("sample", "options.temperature",
          [&] { sample(std::vector<float>{0.0f}, {.temperature = -1.0}, 0.5); });
  refused("sample", "options.top_p", [&] { sample(std::vector<float>{0.0f}, {.top_p = -1.0}, 0.5); });
  refused("choices", "options.top_p", [&] { choices(std::vector<float>{0.0f}, bad); });
  refused("beam_search", "prompt", [&] { beam_search(model, cache, Ids{}, {.beams = 2}); });
  refused("beam_search", "options.draws.top_p",
          [&] { beam_search(model, cache, Ids{1}, {.beams = 2, .draws = DrawOptions{.top_p = 2.0}}); });
  refused("Batcher::submit", "request.sample.top_p", [&] { batcher.submit({.prompt = {1}, .sample = bad}); });
  refused("Batcher::submit", "request.prompt", [&] { batcher.submit({.sample = {.length = 1}}); });
}

}  // namespace
}  // namespace fovea::models

// Draws from more tokens than are ranked at once, against the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "fovea/models/language_model.h"

namespace fovea::models::many_tokens {
namespace {

constexpr float never = -std::numeric_limits<float>::infinity();
using Ids = std::vector<std::int32_t>;

Ids ids_of(const std::vector<Choice>& kept) {
  Ids ids;
  for (const Choice& choice : kept) ids.push_back(choice.id);
  return ids;
}

// The definition by a sort of everything, on more tokens than are sorted at once.
TEST(ManyTokens, AreInTheOrderOfASort) {
  constexpr std::int32_t count = 3000;
  for (const float steps : {50.0f, 5.0f}) {  // of a nat: 500 of them are 10 nats or 100
    PhiloxStream random(11);
    std::vector<float> p;
    for (std::int32_t i = 0; i < count; ++i)
      p.push_back(std::floor(random.next_uniform() * 500.0f) / steps);  // many equals
    Ids order;
    for (std::int32_t i = 0; i < count; ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
    for (const std::int64_t k : {0, 1, 63, 64, 65, 400, 2900}) {
      Ids expected = order;
      if (k > 0) expected.resize(static_cast<std::size_t>(k));
      const auto kept = choices(p, {.top_k = k});
      EXPECT_EQ(ids_of(kept), expected);
      double sum = 0.0;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        // A draw in the middle of a token's share is that token.
        const double middle = sum + 0.5 * kept[i].probability;
        if (i % 97 == 0 && kept[i].probability > 1e-9) EXPECT_EQ(sample(p, {.top_k = k}, middle), kept[i].id);
        sum += kept[i].probability;
      }
      EXPECT_NEAR(sum, 1.0, 1e-12);  // 3,000 terms, each rounded by 2^-53 of the sum
    }
    const auto nucleus = choices(p, {.top_p = 0.5});
    const auto all = choices(p, {});
    double sum = 0.0;
    for (std::size_t i = 0; i + 1 < nucleus.size(); ++i) sum += all[i].probability;
    EXPECT_LT(sum, 0.5);
    EXPECT_GE(sum + all[nucleus.size() - 1].probability, 0.5 - 1e-12);
  }
}

// Only tokens that a cut may leave are ranked, and pieces of the vocabulary are looked through by threads.
TEST(ManyTokens, CutsAreThoseOfTheDefinition) {
  constexpr std::size_t count = 70000;  // three pieces
  PhiloxStream random(13);
  for (const double spread : {0.0, 0.5, 3.0}) {
    std::vector<float> p;
    for (std::size_t i = 0; i < count; ++i)
      p.push_back(i % 50 == 7 ? never : static_cast<float>(spread * std::log(random.next_uniform() + 1e-3f)));
    Ids order;
    for (std::size_t i = 0; i < count; ++i) {
      if (p[i] != never) order.push_back(static_cast<std::int32_t>(i));
    }
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
    const double temperature = 1.5;
    const auto weight = [&](std::int32_t id) { return std::exp((p[id] - p[order.front()]) / temperature); };
    for (const SampleOptions& options : {SampleOptions{.top_p = 0.003},
                                         {.top_p = 0.3},
                                         {.top_p = 0.95},
                                         {.min_p = 0.9},
                                         {.min_p = 0.1},
                                         {.top_k = 700, .top_p = 0.4},
                                         {.top_k = 5000, .min_p = 0.5},
                                         {.top_p = 0.5, .min_p = 0.7}}) {
      SampleOptions hot = options;
      hot.temperature = temperature;
      Ids left = order;
      if (hot.top_k > 0) left.resize(static_cast<std::size_t>(hot.top_k));
      if (hot.top_p < 1.0) {
        double all = 0.0, sum = 0.0;
        for (const std::int32_t id : left) all += weight(id);
        std::size_t kept = 0;
        // Sums in other orders differ by 1e-12 of the whole: no token is as near to the share.
        while (kept < left.size() && sum < hot.top_p * all) sum += weight(left[kept++]);
        left.resize(kept);
      }
      std::erase_if(left, [&](std::int32_t id) { return weight(id) < hot.min_p; });
      double all = 0.0;
      for (const std::int32_t id : left) all += weight(id);
      for (const int threads : {1, 3}) {
        const auto pool = make_thread_pool(threads);
        set_default_executor(pool.get());
        const auto kept = choices(p, hot);
        // Of equal tokens rounding may leave one more, or one less.
        ASSERT_NEAR(static_cast<double>(kept.size()), static_cast<double>(left.size()), spread == 0.0 ? 1 : 0)
            << spread << ", k " << hot.top_k << ", p " << hot.top_p << ", min p " << hot.min_p;
        double sum = 0.0;
        for (std::size_t rank = 0; rank < std::min(kept.size(), left.size()); ++rank) {
          ASSERT_EQ(kept[rank].id, left[rank]) << spread << ", " << rank;
          // A draw in the middle of a token's share is that token.
          const double share = kept[rank].probability;
          if (spread > 0.0 && rank % (1 + left.size() / 20) == 0)
            ASSERT_EQ(sample(p, hot, sum + 0.5 * share), kept[rank].id) << spread << ", " << rank;
          sum += share;
          ASSERT_NEAR(kept[rank].probability, weight(left[rank]) / all,
                      1e-4 / static_cast<double>(left.size()));
        }
        set_default_executor(nullptr);
      }
    }
  }
}

// Without cuts the vocabulary is not ranked, and pieces of it are weighed by several threads.
TEST(ManyTokens, ADrawWithoutCutsIsTheTokenOfTheRunningSum) {
  constexpr std::size_t count = 70000;  // three pieces
  PhiloxStream random(12);
  for (const double spread : {0.0, 0.1, 3.0, 60.0}) {
    std::vector<float> p;
    for (std::size_t i = 0; i < count; ++i)
      p.push_back(i % 50 == 7 ? never : static_cast<float>(spread * std::log(random.next_uniform() + 1e-3f)));
    const SampleOptions options{.temperature = 1.5};
    const auto ranked = choices(p, options);
    double sum = 0.0;
    std::vector<std::pair<double, std::int32_t>> middles;
    for (std::size_t rank = 0; rank < ranked.size(); ++rank) {
      // A share of 1e-12 is above the rounding of sums of 70,000 terms.
      if ((rank < 100 || rank % 97 == 0) && ranked[rank].probability > 1e-12)
        middles.emplace_back(sum + 0.5 * ranked[rank].probability, ranked[rank].id);
      sum += ranked[rank].probability;
    }
    ASSERT_GT(middles.size(), 90u);
    for (const int threads : {1, 2, 5}) {
      const auto pool = make_thread_pool(threads);
      set_default_executor(pool.get());
      for (std::size_t n = 0; n < middles.size(); n += 1 + middles.size() / 50)
        EXPECT_EQ(sample(p, options, middles[n].first), middles[n].second) << spread << ", " << n;
      set_default_executor(nullptr);
    }
  }
}

// A wide nucleus is drawn from by intervals, whose sums are rounded in another order than those of tokens.
TEST(ManyTokens, ADrawAtTheEndOfANucleusIsItsLastToken) {
  const double last = std::nextafter(1.0, 0.0);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    PhiloxStream random(seed);
    std::vector<float> p;
    for (std::size_t i = 0; i < 4000; ++i) p.push_back(std::log(random.next_uniform() + 0.5f));
    const SampleOptions options{.top_p = 0.3 + 0.002 * static_cast<double>(seed)};
    const auto kept = choices(p, options);
    ASSERT_GT(kept.size(), 512u);
    EXPECT_EQ(sample(p, options, last), kept.back().id) << seed;
    EXPECT_EQ(sample(p, options, 0.0), kept.front().id) << seed;
  }
}

// All of the probability in one token, among others whose weights are 0 or as good as 0.
TEST(ManyTokens, OneTokenWithAllTheProbabilityIsDrawn) {
  for (const float below : {-800.0f, -1e30f, never}) {
    std::vector<float> p(5000, below);
    p[4321] = 3.0f;
    for (const SampleOptions& options :
         {SampleOptions{}, {.top_p = 0.9}, {.min_p = 0.1}, {.top_k = 1}, {.temperature = 1e-300}})
      for (const double uniform : {0.0, 0.5, std::nextafter(1.0, 0.0)})
        EXPECT_EQ(sample(p, options, uniform), 4321) << below << ", " << uniform;
  }
  EXPECT_EQ(sample(std::vector<float>{-7.0f}, {.temperature = 1e300, .top_p = 0.5}, 0.7), 0);
}

}  // namespace
}  // namespace fovea::models::many_tokens

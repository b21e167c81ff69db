// A translator gives the same for any number of threads, and for lines in any order.
#include "fovea/train/translator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"

namespace fovea::train {
namespace {

// Runs on `threads` threads of a pool of its own, until it goes out of scope.
class Threads {
 public:
  explicit Threads(int threads) : pool_(make_thread_pool(threads)) { set_default_executor(pool_.get()); }
  ~Threads() { set_default_executor(nullptr); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  std::unique_ptr<Executor> pool_;
};

std::vector<std::string> lines() {
  const std::vector<std::string> words{"a", "b", "c", "d", "e"};
  std::vector<std::string> result;
  for (std::size_t n = 0; n < 23; ++n) {
    std::string line;
    for (std::size_t i = 0; i < n % 7; ++i) line += (i ? " " : "") + words[(n + 3 * i) % words.size()];
    result.push_back(line);  // some are empty
  }
  return result;
}

void expect_equal(const std::vector<std::vector<Translation>>& a,
                  const std::vector<std::vector<Translation>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size()) << "line " << i;
    for (std::size_t n = 0; n < a[i].size(); ++n) {
      EXPECT_EQ(a[i][n].text, b[i][n].text);
      EXPECT_EQ(a[i][n].score, b[i][n].score);
      EXPECT_EQ(a[i][n].weights.weights, b[i][n].weights.weights);
    }
  }
}

TEST(Translator, TheSameForAnyNumberOfThreads) {
  const std::vector<std::string> text = lines();
  for (const bool transformer : {true, false}) {
    auto tokenizer = text::WhitespaceTokenizer::build(text);
    const std::int64_t vocabulary = tokenizer->size();
    auto model = transformer ? models::make_transformer(
                                   {.vocabulary = vocabulary, .dim = 16, .feed_forward = 32, .heads = 2}, 3)
                             : models::make_rnn({.vocabulary = vocabulary, .embedding = 8, .hidden = 12}, 3);
    model->parameters().pack();
    Translator translator(std::move(model), std::move(tokenizer));
    for (const int beam : {1, 3}) {
      const models::DecodeOptions options{.beam_size = beam, .n_best = beam};
      models::DecodeStats one_stats, many_stats;
      std::vector<std::vector<Translation>> one, many;
      {
        const Threads threads(1);
        one = translator.translate(text, options, 4, &one_stats);
      }
      {
        const Threads threads(5);
        many = translator.translate(text, options, 4, &many_stats);
      }
      expect_equal(one, many);
      EXPECT_EQ(one_stats.tokens, many_stats.tokens);
      EXPECT_EQ(one_stats.steps, many_stats.steps);
      {  // Fewer batches than threads are cut smaller.
        const Threads threads(5);
        const auto cut = translator.translate(text, options, 100);
        for (std::size_t i = 0; i < text.size(); ++i) {
          EXPECT_EQ(cut[i][0].text, one[i][0].text);
          EXPECT_EQ(cut[i][0].score, one[i][0].score);
        }
      }
      EXPECT_EQ(one[0].size(), 1u);  // an empty line
      EXPECT_EQ(one[0][0].text, "");

      std::vector<std::string> reversed(text.rbegin(), text.rend());
      auto back = translator.translate(reversed, options, 100);
      std::reverse(back.begin(), back.end());
      for (std::size_t i = 0; i < text.size(); ++i) EXPECT_EQ(back[i][0].text, one[i][0].text);
    }
  }
}

Translator small_translator(const std::vector<std::string>& text);

// A line that fails leaves the others, but a call that is told to stop ends.
TEST(Translator, EndsWhereItsExecutorIsToldToStop) {
  const std::vector<std::string> text = lines();
  Translator translator = small_translator(text);
  std::atomic<int> looks = 0;
  CancellableExecutor stopping(serial_executor(), [&] { return ++looks > 40; });
  set_default_executor(&stopping);
  int told = 0;
  const auto done = [&](std::size_t, const std::vector<Translation>&, const std::exception_ptr& error) {
    ++told;
    EXPECT_FALSE(error);
  };
  EXPECT_THROW(translator.translate(text, {.batch = 4}, done), Cancelled);
  set_default_executor(nullptr);
  EXPECT_LT(told, std::ssize(text));
}

Translator small_translator(const std::vector<std::string>& text) {
  auto tokenizer = text::WhitespaceTokenizer::build(text);
  auto model = models::make_transformer(
      {.vocabulary = tokenizer->size(), .dim = 16, .feed_forward = 32, .heads = 2}, 3);
  model->parameters().pack();
  return {std::move(model), std::move(tokenizer)};
}

// Batches that run side by side hold their states together: eight alike, on any number of threads.
TEST(Translator, CountsTheStateOfAllBatchesThatRunAtOnce) {
  const std::vector<std::string> text(16, "a b c d");
  Translator translator = small_translator(text);
  std::int64_t of_one = 0;
  for (const int number : {1, 2, 5, 11}) {
    const Threads threads(number);
    models::DecodeStats stats;
    translator.translate(text, {.beam_size = 2}, 2, &stats);
    if (number == 1) of_one = stats.peak_state_bytes;
    EXPECT_GT(of_one, 0);
    EXPECT_EQ(stats.peak_state_bytes, of_one * std::min(number, 8)) << number;
  }
}

// Lines come in their order. One that is too long is an error of its own, and changes no other.
TEST(Translator, LinesAreHandedOnInTheirOrder) {
  const std::vector<std::string> text = lines();
  Translator translator = small_translator(text);
  const auto all = translator.translate(text, {.beam_size = 2});
  for (const int number : {1, 2, 5}) {
    const Threads threads(number);
    std::size_t next = 0;
    models::DecodeStats stats;
    translator.translate(
        text, {.search = {.beam_size = 2}, .batch = 3, .longest = 5},
        [&](std::size_t i, const std::vector<Translation>& texts, const std::exception_ptr& error) {
          EXPECT_EQ(i, next++);
          const bool is_long = i % 7 > 5;
          EXPECT_EQ(error != nullptr, is_long) << i;
          if (is_long)
            EXPECT_TRUE(texts.empty());
          else
            expect_equal({texts}, {all[i]});
        },
        &stats);
    EXPECT_EQ(next, text.size());
    EXPECT_GT(stats.tokens, 0);
  }
  EXPECT_THROW(translator.translate(text, {.batch = 0}, [](auto, const auto&, const auto&) {}),
               InvalidArgument);
  EXPECT_THROW(translator.translate(text, models::DecodeOptions{}, 0), InvalidArgument);
  EXPECT_THROW(translator.translate(text, {.search = {.beam_size = 0}},
                                    [](auto, const auto&, const auto& error) {
                                      if (error) std::rethrow_exception(error);
                                    }),
               InvalidArgument);
}

// What is finished by then is handed on, and nothing behind the first line that is not.
TEST(Translator, EndsWhereItIsCancelled) {
  const std::vector<std::string> text = lines();
  Translator translator = small_translator(text);
  for (const int steps : {0, 5, 60}) {
    std::atomic<int> asked = 0;
    std::size_t next = 0;
    const auto count = [&](std::size_t i, const auto&, const std::exception_ptr& error) {
      EXPECT_EQ(i, next++);
      EXPECT_FALSE(error);
    };
    translator.translate(text, {.search = {.cancelled = [&] { return ++asked > steps; }}, .batch = 1}, count);
    EXPECT_LT(next, text.size());
  }
}

}  // namespace
}  // namespace fovea::train

// Texts that are generated together have the bits of each alone, whatever arrives and leaves beside them.
// FOVEA_BATCHER_SECONDS sets how long random requests arrive, half an hour for a long run; without it a fixed
// number of them does.
#include "fovea/models/batcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <stdexcept>
#include <thread>

#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"

namespace fovea::models {
namespace {

constexpr std::int64_t words = 23;

LanguageModel tiny() {
  LanguageModel model(
      {.vocabulary = words, .dim = 16, .feed_forward = 24, .heads = 2, .layers = 2, .positions = 300}, 5);
  PhiloxStream random(6);
  for (nn::Parameter& parameter : model.parameters().all()) {
    for (std::int64_t i = 0; i < parameter.value.count(); ++i)
      parameter.value.data<float>()[i] += 0.3f * (static_cast<float>(random.next_uniform()) - 0.5f);
  }
  return model;
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_.next_below(static_cast<std::uint32_t>(n)); }
  // Prompts that often begin alike, some of them with whole pages in common.
  Request request() {
    Request request;
    const std::size_t common = below(3) * 64, own = 1 + below(70);
    for (std::size_t i = 0; i < common; ++i) request.prompt.push_back(static_cast<std::int32_t>(i % 7 + 1));
    for (std::size_t i = 0; i < own; ++i) request.prompt.push_back(static_cast<std::int32_t>(below(words)));
    request.sample = {.temperature = below(3) == 0 ? 0.0 : 0.8,
                      .top_k = static_cast<std::int64_t>(below(6)),
                      .seed = below(100),
                      .length = static_cast<std::int64_t>(below(40))};
    if (below(4) == 0) request.stop = {static_cast<std::int32_t>(below(words))};
    return request;
  }

 private:
  PhiloxStream random_;
};

// What `generate` writes alone, up to a stop.
Generated alone(LanguageModel& model, const Request& request) {
  Generated written = generate(model, request.prompt, request.sample);
  for (std::size_t n = 0; n < written.ids.size(); ++n) {
    if (request.stop.empty() || written.ids[n] != request.stop[0]) continue;
    written.ids.resize(n + 1);
    written.log_probabilities.resize(n + 1);
  }
  return written;
}

// Requests with their answers, as they come.
struct Answers {
  std::map<std::uint64_t, Request> asked;
  std::map<std::uint64_t, Answer> got;
  std::map<std::uint64_t, std::vector<std::int32_t>> streamed;

  std::uint64_t submit(Batcher& batcher, Request request) {
    const auto number = std::make_shared<std::uint64_t>(0);
    asked_copy = request;
    request.token = [this, number](std::int32_t id, double) { streamed[*number].push_back(id); };
    request.done = [this](const Answer& answer) { got.emplace(answer.request, answer); };
    *number = batcher.submit(std::move(request));
    asked.emplace(*number, asked_copy);
    return *number;
  }
  void check(LanguageModel& model, std::uint64_t number) {
    const Answer& answer = got.at(number);
    const Request& request = asked.at(number);
    EXPECT_EQ(answer.generated.ids, streamed[number]);
    Generated expected = alone(model, request);
    if (answer.finish == Finish::cancelled) {
      ASSERT_LE(answer.generated.ids.size(), expected.ids.size());
      expected.ids.resize(answer.generated.ids.size());
      expected.log_probabilities.resize(answer.generated.ids.size());
    }
    ASSERT_EQ(answer.generated.ids, expected.ids) << "request " << number;
    ASSERT_EQ(answer.generated.log_probabilities, expected.log_probabilities) << "request " << number;
    if (answer.finish == Finish::stop) EXPECT_EQ(answer.generated.ids.back(), request.stop[0]);
    if (answer.finish == Finish::length) EXPECT_EQ(std::ssize(answer.generated.ids), request.sample.length);
  }
  Request asked_copy;
};

// Bytes of this process that lie in memory; 0 where the system does not say.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return file ? resident * 4096 : 0;
}

// Arrivals and cancels at random, in a limit that holds about four long texts, with prefixes kept.
TEST(Batcher, AnswersHaveTheBitsOfEachRequestAlone) {
  LanguageModel model = tiny();
  KvCache measure({.layers = model.cache_layers(Paged{64})});
  const std::int64_t limit = 4 * measure.bytes_for(256);
  Batcher batcher(model, {.limit_bytes = limit, .prefix_bytes = limit / 4, .step_tokens = 150});
  Answers answers;
  Draw draw(17);
  const char* given = std::getenv("FOVEA_BATCHER_SECONDS");
  const auto begin = std::chrono::steady_clock::now();
  const auto until = begin + std::chrono::seconds(given ? std::atoi(given) : 0);
  std::int64_t submitted = 0, checked = 0, cancelled = 0, settled = 0;
  do {
    if (draw.below(3) != 0 && batcher.waiting() < 30) {
      answers.submit(batcher, draw.request());
      ++submitted;
    }
    // One of the last requests, most of which are still there.
    const std::int64_t last = std::min<std::int64_t>(submitted, 60);
    if (draw.below(12) == 0)
      cancelled += batcher.cancel(static_cast<std::uint64_t>(submitted - last + 1) +
                                  draw.below(static_cast<std::size_t>(last) + 1));
    batcher.step();
    EXPECT_LE(batcher.bytes().used, limit);
    for (auto at = answers.got.begin(); at != answers.got.end(); at = answers.got.erase(at)) {
      answers.check(model, at->first);
      ++checked;
      answers.asked.erase(at->first);
      answers.streamed.erase(at->first);
      if (testing::Test::HasFailure()) return;
    }
    // Memory is level from a tenth of the time on.
    if (settled == 0 && 10 * (std::chrono::steady_clock::now() - begin) > until - begin)
      settled = resident_bytes();
  } while (submitted < 120 || std::chrono::steady_clock::now() < until);
  batcher.run();
  for (const auto& [number, answer] : answers.got) answers.check(model, number);
  EXPECT_EQ(checked + std::ssize(answers.got), submitted);
  EXPECT_EQ(batcher.waiting(), 0);
  EXPECT_EQ(batcher.bytes().used, batcher.bytes().prefixes);
  const Batcher::Stats stats = batcher.stats();
  if (given) {
    const std::int64_t grown = resident_bytes() - settled;
    std::printf(
        "%lld requests, %lld cancelled, %lld steps, %lld tokens; memory %lld KiB, grown by %lld KiB\n",
        static_cast<long long>(submitted), static_cast<long long>(cancelled),
        static_cast<long long>(stats.steps), static_cast<long long>(stats.written),
        static_cast<long long>(settled / 1024), static_cast<long long>(grown / 1024));
    EXPECT_LT(grown, 4 << 20);
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(stats.shared, 0);
  EXPECT_GT(stats.most_texts, 2);
  EXPECT_LT(stats.steps, stats.written);
}

TEST(Batcher, OneTextThatFailsLeavesTheOthers) {
  LanguageModel model = tiny();
  Batcher batcher(model);
  std::map<std::uint64_t, Answer> got;
  const auto submit = [&](std::function<void(std::int32_t, double)> token) {
    return batcher.submit({.prompt = {1, 2, 3},
                           .sample = {.length = 5},
                           .token = std::move(token),
                           .done = [&](const Answer& answer) { got.emplace(answer.request, answer); }});
  };
  int tokens = 0;
  const std::uint64_t failing = submit([&](std::int32_t, double) {
    if (++tokens == 3) throw std::runtime_error("no more");
  });
  const std::uint64_t whole = submit({});
  batcher.run();
  EXPECT_EQ(got.at(failing).finish, Finish::failed);
  EXPECT_EQ(got.at(failing).generated.ids.size(), 3u);
  EXPECT_THROW(std::rethrow_exception(got.at(failing).error), std::runtime_error);
  EXPECT_EQ(got.at(whole).finish, Finish::length);
  EXPECT_EQ(got.at(whole).generated.ids.size(), 5u);
  EXPECT_FALSE(batcher.cancel(whole));
  EXPECT_FALSE(batcher.cancel(99));
}

// Throws Cancelled at one of its calls.
class CancelledAt final : public Executor {
 public:
  explicit CancelledAt(Executor& executor) : executor_(executor) { set_default_executor(this); }
  ~CancelledAt() override { set_default_executor(nullptr); }
  int thread_count() const noexcept override { return executor_.thread_count(); }
  void parallel_for(std::int64_t count, ParallelBody body) override {
    if (++calls == at) throw Cancelled();
    executor_.parallel_for(count, body);
  }
  std::atomic<std::int64_t> calls{0};
  std::int64_t at = 0;

 private:
  Executor& executor_;
};

TEST(Batcher, GoesOnToTheSameAnswersWhereverTheModelThrows) {
  // A vocabulary whose logits are shared out among threads, so that they too may be cancelled.
  LanguageModel model(
      {.vocabulary = 6000, .dim = 64, .feed_forward = 24, .heads = 2, .layers = 1, .positions = 300}, 5);
  std::vector<Request> requests;
  for (std::int32_t n = 0; n < 3; ++n)
    requests.push_back({.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(60 + 30 * n), n + 1),
                        .sample = {.temperature = 0.8, .seed = 3, .length = 4}});
  for (const int threads : {1, 2}) {
    const std::unique_ptr<Executor> pool = make_thread_pool(threads);
    CancelledAt executor(threads == 1 ? serial_executor() : *pool);
    std::vector<Generated> expected;
    for (const Request& request : requests)
      expected.push_back(generate(model, request.prompt, request.sample));
    std::int64_t thrown = 0;
    for (executor.at = 1;; ++executor.at) {
      executor.calls = 0;
      Batcher batcher(model);
      std::map<std::uint64_t, Answer> got;
      for (Request request : requests) {
        request.done = [&](const Answer& answer) { got.emplace(answer.request, answer); };
        batcher.submit(std::move(request));
      }
      std::int64_t thrown_here = 0;
      for (bool more = true; more && thrown_here < 3;) {
        try {
          more = batcher.step();
        } catch (const Cancelled&) {
          ++thrown_here;
        }
      }
      ASSERT_LE(thrown_here, 1) << "at call " << executor.at;
      ASSERT_EQ(got.size(), requests.size()) << "at call " << executor.at;
      for (std::size_t n = 0; n < requests.size(); ++n) {
        const Answer& answer = got.at(n + 1);
        ASSERT_EQ(answer.finish, Finish::length) << "at call " << executor.at;
        ASSERT_EQ(answer.generated.ids, expected[n].ids) << "at call " << executor.at;
        ASSERT_EQ(answer.generated.log_probabilities, expected[n].log_probabilities);
      }
      thrown += thrown_here;
      if (thrown_here == 0) break;
    }
    EXPECT_GT(thrown, 20);
  }
}

TEST(Batcher, APromptThatSeveralBringAtOnceIsReadOnce) {
  LanguageModel model = tiny();
  Batcher batcher(model, {.step_tokens = 512});
  std::map<std::uint64_t, Answer> got;
  std::vector<Request> requests;
  for (std::int32_t n = 0; n < 6; ++n) {
    Request request{.prompt = std::vector<std::int32_t>(200, 3), .sample = {.length = 2}};
    request.prompt.resize(static_cast<std::size_t>(193 + n), n + 4);
    if (n == 5) request.prompt[70] = 9;  // another second piece
    requests.push_back(request);
    request.done = [&](const Answer& answer) { got.emplace(answer.request, answer); };
    batcher.submit(std::move(request));
  }
  batcher.run();
  for (std::size_t n = 0; n < requests.size(); ++n)
    EXPECT_EQ(got.at(n + 1).generated.ids, alone(model, requests[n]).ids);
  // Five share three pieces and the sixth one. Each token that is written, but the last, is read too.
  std::int64_t own = 0;
  for (const Request& request : requests) own += std::ssize(request.prompt) - 192 + 1;
  EXPECT_EQ(batcher.stats().read, 192 + 128 + own);
  EXPECT_EQ(batcher.stats().shared, 4 * 192 + 64);
}

// The pages of a salt are those of its texts alone, also of the first one.
TEST(Batcher, TextsShareThePagesOfTheirSaltAlone) {
  LanguageModel model = tiny();
  Batcher batcher(model, {.prefix_bytes = std::int64_t{1} << 24});
  const std::vector<std::int32_t> prompt(130, 3);
  const auto shared_by = [&](std::uint64_t salt) {
    const std::int64_t before = batcher.stats().shared;
    batcher.submit({.prompt = prompt, .sample = {.length = 2}, .salt = salt});
    batcher.run();
    return batcher.stats().shared - before;
  };
  EXPECT_EQ(shared_by(7), 0);
  EXPECT_EQ(shared_by(0), 0);
  EXPECT_EQ(shared_by(8), 0);
  EXPECT_EQ(shared_by(7), 128);
  EXPECT_EQ(shared_by(0), 128);
  // Several at once read each piece once, with a salt as without.
  const std::int64_t read = batcher.stats().read;
  for (int n = 0; n < 5; ++n) batcher.submit({.prompt = prompt, .sample = {.length = 1}, .salt = 9});
  batcher.run();
  EXPECT_EQ(batcher.stats().read - read, 128 + 5 * 2);
}

TEST(Batcher, RefusesWhatCannotRun) {
  LanguageModel model = tiny();
  const std::int64_t page = KvCache({.layers = model.cache_layers(Paged{64})}).bytes_for(1);
  Batcher batcher(model, {.limit_bytes = 2 * page});
  const auto request = [](std::int64_t prompt, std::int64_t length) {
    return Request{.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(prompt), 1),
                   .sample = {.length = length}};
  };
  EXPECT_THROW(batcher.submit(request(0, 1)), InvalidArgument);
  EXPECT_THROW(batcher.submit(request(1, -1)), InvalidArgument);
  EXPECT_THROW(batcher.submit(request(200, 102)), InvalidArgument);  // 301 rows of 300 positions
  EXPECT_THROW(batcher.submit(request(1, std::numeric_limits<std::int64_t>::max())), InvalidArgument);
  EXPECT_THROW(batcher.submit(request(100, 30)), CacheFull);  // 129 rows in 128
  Request unknown = request(1, 1);
  unknown.prompt[0] = static_cast<std::int32_t>(words);
  EXPECT_THROW(batcher.submit(std::move(unknown)), InvalidArgument);
  Request again = request(1, 1);
  again.sample.reuse = Reuse::off;
  EXPECT_THROW(batcher.submit(std::move(again)), InvalidArgument);
  EXPECT_THROW(Batcher(model, {.step_tokens = 63}), InvalidArgument);
  EXPECT_EQ(batcher.waiting(), 0);
  EXPECT_FALSE(batcher.step());
  batcher.submit(request(100, 29));
  batcher.run();
  EXPECT_EQ(batcher.stats().written, 29);
}

TEST(Batcher, OtherThreadsSubmitAndCancel) {
  LanguageModel model = tiny();
  Batcher batcher(model, {.step_tokens = 100});
  std::atomic<int> ended{0}, submitting{3};
  constexpr int each = 10;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Draw draw(static_cast<std::uint64_t>(t));
      for (int n = 0; n < each; ++n) {
        Request request = draw.request();
        request.done = [&](const Answer&) { ++ended; };
        const std::uint64_t number = batcher.submit(std::move(request));
        if (draw.below(3) == 0) batcher.cancel(number);
      }
      --submitting;
    });
  }
  while (submitting > 0 || batcher.waiting() > 0) batcher.step();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 3 * each);
  EXPECT_EQ(batcher.bytes().used, 0);
}

}  // namespace
}  // namespace fovea::models

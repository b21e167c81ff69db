// Spans of named work: what is inside which, what the totals add up to, and what a trace holds.
#include "fovea/core/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea {
namespace {

constexpr ProfileLabel outer{"outer", ProfilePart::other}, inner{"inner", ProfilePart::products};

void pass(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

const ProfileTotal* total_of(const std::vector<ProfileTotal>& totals, const ProfileLabel& label,
                             bool backward) {
  for (const ProfileTotal& total : totals) {
    if (total.label == &label && total.backward == backward) return &total;
  }
  return nullptr;
}

TEST(Profile, OwnTimeIsWithoutTheSpansInside) {
  Profile profile;
  for (int n = 0; n < 3; ++n) {
    const ProfileSpan a(outer);
    EXPECT_EQ(ProfileSpan::current().label, &outer);
    pass(1);
    const ProfileSpan b(inner, {.multiply_adds = 10.0, .bytes = 4.0}, n == 2);
    EXPECT_EQ(ProfileSpan::current().label, &inner);
    pass(2);
  }
  EXPECT_EQ(ProfileSpan::current().label, nullptr);
  profile.stop();
  const std::vector<ProfileTotal> totals = profile.totals();
  const ProfileTotal *a = total_of(totals, outer, false), *forward = total_of(totals, inner, false),
                     *backward = total_of(totals, inner, true);
  ASSERT_TRUE(a && forward && backward);
  EXPECT_EQ(a->count, 3);
  EXPECT_EQ(forward->count, 2);
  EXPECT_EQ(backward->count, 1);
  EXPECT_EQ(forward->work.multiply_adds, 20.0);
  EXPECT_EQ(backward->work.bytes, 4.0);
  EXPECT_GE(forward->own, 0.004);
  EXPECT_GE(a->own, 0.003);
  // Own times add up to the outermost spans, to the rounding of sums of doubles.
  EXPECT_NEAR(a->own + forward->own + backward->own, a->seconds, 1e-9);
  EXPECT_LE(a->seconds, profile.seconds());
}

TEST(Profile, SpansOutsideAProfileAreNotRecorded) {
  { const ProfileSpan before(outer); }
  Profile profile;
  profile.stop();
  { const ProfileSpan behind(outer); }
  EXPECT_TRUE(profile.totals().empty());
  EXPECT_EQ(ProfileSpan::current().label, nullptr);
}

TEST(Profile, OneRecordsAtATime) {
  Profile profile;
  EXPECT_THROW(Profile(), InvalidArgument);
  profile.stop();
  EXPECT_NO_THROW(Profile());
}

TEST(Profile, EachThreadHasItsOwnSpans) {
  const auto pool = make_thread_pool(3);
  Profile profile;
  pool->parallel_for(64, [](std::int64_t, int) {
    const ProfileSpan span(inner);
    pass(1);
  });
  profile.stop();
  const std::vector<ProfileTotal> totals = profile.totals();
  const ProfileTotal* total = total_of(totals, inner, false);
  ASSERT_TRUE(total);
  EXPECT_EQ(total->count, 64);
  EXPECT_GE(total->seconds, 0.064);
}

double sum_of(const std::vector<std::pair<ProfilePart, double>>& parts) {
  double sum = 0.0;
  for (const auto& [part, seconds] : parts) sum += seconds;
  return sum;
}

double part_of(const std::vector<std::pair<ProfilePart, double>>& parts, ProfilePart wanted) {
  for (const auto& [part, seconds] : parts) {
    if (part == wanted) return seconds;
  }
  return 0.0;
}

// Parts of all threads add up to the time of all threads: calls that are shared inside a span, units with
// spans of their own, and time outside of all spans.
TEST(Profile, PartsAddUpToTheTimeOfAllThreads) {
  for (const int threads : {1, 2, 5}) {
    const auto pool = make_thread_pool(threads);
    Profile profile;
    pass(5);
    {
      const ProfileSpan span(inner);
      pool->parallel_for(8, [](std::int64_t, int) { pass(2); });
    }
    pool->parallel_for(8, [](std::int64_t, int) {
      const ProfileSpan span(outer);
      pass(1);
      const ProfileSpan within(inner);
      pass(1);
    });
    pool->parallel_for(1, [](std::int64_t, int) { pass(10); });
    profile.stop();
    const auto parts = profile.parts(threads);
    EXPECT_NEAR(sum_of(parts), threads * profile.seconds(), 0.05 * threads * profile.seconds()) << threads;
    // A pool's threads do the caller's work: 8 units of 2 ms, and 8 of 1.
    EXPECT_GE(part_of(parts, ProfilePart::products), 0.024) << threads;
    EXPECT_GE(part_of(parts, ProfilePart::other), 0.023) << threads;
    // While one unit runs, the others wait.
    EXPECT_GE(part_of(parts, ProfilePart::waiting), (threads - 1) * 0.015) << threads;
  }
}

// A pool without work waits, though none of its threads has a record.
TEST(Profile, ThreadsWithoutWorkWait) {
  Profile profile;
  pass(4);
  profile.stop();
  const auto parts = profile.parts(3);
  EXPECT_NEAR(part_of(parts, ProfilePart::waiting), 2.0 * profile.seconds(), 1e-9);
  EXPECT_NEAR(part_of(parts, ProfilePart::other), profile.seconds(), 1e-9);
}

TEST(Profile, APoolWorksForTheSpanOfItsCaller) {
  const auto pool = make_thread_pool(3);
  Profile profile;
  {
    const ProfileSpan span(inner, {.multiply_adds = 7.0}, true);
    pool->parallel_for(6, [](std::int64_t, int) { pass(2); });
  }
  profile.stop();
  const std::vector<ProfileTotal> totals = profile.totals();
  const ProfileTotal* total = total_of(totals, inner, true);
  ASSERT_TRUE(total);
  EXPECT_EQ(total->count, 1);
  EXPECT_EQ(total->work.multiply_adds, 7.0);
  EXPECT_GE(total->seconds, 0.012);
}

std::string trace_of(const Profile& profile, const ProfileLimitsOf& limits) {
  const std::string path = ::testing::TempDir() + "trace.json";
  profile.write_chrome_trace(path, limits);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The numbers behind `key` on the lines that name an event.
std::vector<double> numbers_of(const std::string& trace, const std::string& event, const std::string& key) {
  std::vector<double> numbers;
  std::istringstream lines(trace);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find('"' + key + "\":");
    if (line.find(R"("name":")" + event + '"') != std::string::npos && at != std::string::npos)
      numbers.push_back(std::stod(line.substr(at + key.size() + 3)));
  }
  return numbers;
}

TEST(Profile, TheTraceSaysWhatIsMissing) {
  Profile profile(2);
  for (int n = 0; n < 5; ++n) const ProfileSpan span(inner, {.multiply_adds = 1e6}, n == 0);
  profile.stop();
  EXPECT_EQ(profile.dropped(), 3);
  const std::string text =
      trace_of(profile, [](int) { return ProfileLimits{.multiply_adds_per_second = 1e9}; });
  EXPECT_NE(text.find(R"("name":"inner, backward","cat":"products","ph":"X")"), std::string::npos);
  EXPECT_NE(text.find(R"("multiply-adds":1e+06)"), std::string::npos);
  EXPECT_NE(text.find(R"("share of the limit":)"), std::string::npos);
  EXPECT_NE(text.find(R"("count":3)"), std::string::npos);
  EXPECT_NE(text.find(R"("otherData":{"events that were not kept":3)"), std::string::npos);
  EXPECT_EQ(trace_of(profile, {}).find("share of the limit"), std::string::npos);
  EXPECT_THROW(profile.write_chrome_trace("/no/such/folder/trace.json"), FileError);
}

// The share of a span is that of the rate of what it multiplies.
TEST(Profile, EachKindOfProductHasItsOwnLimit) {
  static constexpr ProfileLabel f32{"f32", ProfilePart::products},
      bf16{"bf16", ProfilePart::products, ProfileOperands::bf16},
      int8{"int8", ProfilePart::products, ProfileOperands::int8};
  Profile profile;
  for (const ProfileLabel* label : {&f32, &bf16, &int8}) {
    const ProfileSpan span(*label, {.multiply_adds = 1e9, .bytes = 1.0});
    pass(1);
  }
  profile.stop();
  const auto shared = [&](const ProfileLimits& limits) {
    std::string names;
    const std::string trace = trace_of(profile, [&](int) { return limits; });
    for (const char* name : {"f32", "bf16", "int8"}) {
      if (!numbers_of(trace, name, "share of the limit").empty()) names += std::string(name) + ' ';
    }
    return names;
  };
  EXPECT_EQ(shared({.multiply_adds_per_second = 1e12, .reading = {{1.0, 1e9}}}), "f32 ");
  EXPECT_EQ(shared({.multiply_adds_per_second = 1e12, .bf16_multiply_adds_per_second = 2e12}), "f32 bf16 ");
  EXPECT_EQ(shared({.multiply_adds_per_second = 1e12,
                    .bf16_multiply_adds_per_second = 2e12,
                    .int8_multiply_adds_per_second = 4e12}),
            "f32 bf16 int8 ");
}

// Every event has a share: of the threads that it ran on, with the work inside it, on all threads.
TEST(Profile, SharesCountTheThreadsAndTheWorkInside) {
  static constexpr ProfileLabel shared{"shared", ProfilePart::products},
      alone{"alone", ProfilePart::products}, around{"around", ProfilePart::other};
  const auto pool = make_thread_pool(2);
  std::atomic<int> begun{0};
  const auto both = [&begun](int wanted) {  // so that each thread takes one of two units
    begun.fetch_add(1);
    while (begun.load() < wanted) std::this_thread::yield();
  };
  Profile profile;
  {
    const ProfileSpan span(shared, {.multiply_adds = 2e6});
    pool->parallel_for(2, [&](std::int64_t, int) {
      both(2);
      pass(4);
    });
  }
  {
    const ProfileSpan span(around);
    pool->parallel_for(2, [&](std::int64_t, int) {
      both(4);
      const ProfileSpan own(alone, {.multiply_adds = 1e6});
      pass(4);
    });
  }
  profile.stop();
  std::vector<int> asked;
  const std::string trace = trace_of(profile, [&](int threads) {
    asked.push_back(threads);
    return ProfileLimits{.multiply_adds_per_second = threads * 1e9};
  });
  EXPECT_EQ(asked.size(), 2u);  // once for one thread, once for two
  const auto close_to = [&](const char* event, double least_ms) {
    const std::vector<double> shares = numbers_of(trace, event, "share of the limit"),
                              durations = numbers_of(trace, event, "dur");
    ASSERT_EQ(shares.size(), durations.size()) << event;
    ASSERT_FALSE(shares.empty()) << event;
    for (std::size_t n = 0; n < shares.size(); ++n) EXPECT_GT(shares[n], 0.0) << event;
    // The longest is the caller's own, where a thread of the pool has another event of this name.
    const auto longest = std::max_element(durations.begin(), durations.end()) - durations.begin();
    const auto n = static_cast<std::size_t>(longest);
    EXPECT_NEAR(shares[n] * durations[n] * 1e-3, least_ms, 1e-3) << event;
  };
  close_to("shared", 1.0);  // 2e6 at 2e9 a second
  close_to("alone", 1.0);   // 1e6 at 1e9, for one thread
  close_to("around", 1.0);  // both of those on two threads
  EXPECT_EQ(numbers_of(trace, "shared", "threads").size(), 2u);
}

// Bytes have the rate of the cache that they fit in.
TEST(Profile, BytesHaveTheRateOfTheirSize) {
  const ProfileLimits limits{.reading = {{1e3, 1e12}, {1e6, 1e9}}};
  Profile profile;
  for (const double bytes : {10.0, 1e5, 1e7}) {
    const ProfileSpan span(inner, {.bytes = bytes});
    pass(1);
  }
  profile.stop();
  const std::string trace = trace_of(profile, [&](int) { return limits; });
  const std::vector<double> shares = numbers_of(trace, "inner", "share of the limit"),
                            durations = numbers_of(trace, "inner", "dur");
  ASSERT_EQ(shares.size(), 3u);
  for (const auto& [n, seconds] : {std::pair{0u, 1e-11}, {1u, 1e-7}, {2u, 1e-2}})
    EXPECT_NEAR(shares[n] * durations[n] * 1e-6, seconds, 1e-4 * seconds) << n;
}

TEST(Profile, WorkIsAddedToTheInnermostSpan) {
  ProfileSpan::add({.multiply_adds = 1.0});
  EXPECT_FALSE(ProfileSpan::recording());
  Profile profile;
  EXPECT_TRUE(ProfileSpan::recording());
  ProfileSpan::add({.multiply_adds = 1.0});
  {
    const ProfileSpan a(outer);
    const ProfileSpan b(inner, {.bytes = 2.0});
    ProfileSpan::add({.multiply_adds = 3.0, .bytes = 4.0});
    EXPECT_EQ(ProfileSpan::current().work.bytes, 6.0);
  }
  profile.stop();
  const std::vector<ProfileTotal> totals = profile.totals();
  EXPECT_EQ(total_of(totals, inner, false)->work.multiply_adds, 3.0);
  EXPECT_EQ(total_of(totals, outer, false)->work.bytes, 0.0);
}

}  // namespace
}  // namespace fovea

// When a worker leaves the core of its caller, and that it may then use the cores that it might use before.
#include "core/thread_places.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace fovea {
namespace {

using std::chrono::milliseconds;

const MovingRule::Time start = MovingRule::Time() + std::chrono::hours(1);

PairTime after(std::int64_t run_ms, std::int64_t wait_ms, int caller = 7) {
  return {caller, {run_ms * 1'000'000, wait_ms * 1'000'000}};
}

TEST(MovingRule, AWorkerThatGetsItsNewCoreStays) {
  MovingRule rule;
  ASSERT_TRUE(rule.may_move(start));
  ASSERT_TRUE(rule.should_move(start, after(0, 0)));
  rule.begin_trial(start, after(100, 50));
  EXPECT_FALSE(rule.trial_is_over(start + milliseconds(11)));
  ASSERT_TRUE(rule.trial_is_over(start + milliseconds(12)));
  EXPECT_FALSE(rule.trial_failed(start + milliseconds(12), after(115, 55)));  // a quarter
  EXPECT_FALSE(rule.tries());
  // It may move again soon, if it shares a core again.
  EXPECT_FALSE(rule.may_move(start + milliseconds(12)));
  EXPECT_TRUE(rule.may_move(start + milliseconds(13)));
}

TEST(MovingRule, AWorkerThatWaitsForItsNewCoreGoesBackAndPauses) {
  MovingRule rule;
  rule.begin_trial(start, after(100, 50));
  EXPECT_TRUE(rule.trial_failed(start + milliseconds(20), after(115, 56)));
  EXPECT_FALSE(rule.may_move(start + milliseconds(20 + 16 * 12 - 1)));
  EXPECT_TRUE(rule.may_move(start + milliseconds(20 + 16 * 12)));
}

TEST(MovingRule, PausesDoubleWhileTrialsFail) {
  MovingRule rule;
  MovingRule::Time now = start;
  const auto try_once = [&](std::int64_t wait_ms) {
    rule.begin_trial(now, after(0, 0));
    now += milliseconds(20);
    return rule.trial_failed(now, after(20 - wait_ms, wait_ms));
  };
  const auto expect_pause = [&](int pause_ms) {
    EXPECT_FALSE(rule.may_move(now + milliseconds(pause_ms - 1))) << pause_ms;
    EXPECT_TRUE(rule.may_move(now + milliseconds(pause_ms))) << pause_ms;
  };
  for (const int pauses : {16, 32, 64, 128, 256, 512, 512}) {
    EXPECT_TRUE(try_once(10));
    expect_pause(12 * pauses);
  }
  EXPECT_FALSE(try_once(0));  // halves the next pause
  expect_pause(1);
  EXPECT_TRUE(try_once(10));
  expect_pause(12 * 256);
}

TEST(MovingRule, ATrialEndsWhereTheWorkerSharesACoreAgain) {
  MovingRule rule;
  rule.begin_trial(start, after(0, 0));
  ASSERT_TRUE(rule.may_move(start + milliseconds(3)));
  EXPECT_FALSE(rule.should_move(start + milliseconds(3), after(1, 3)));  // too short for a verdict
  EXPECT_TRUE(rule.should_move(start + milliseconds(4), after(1, 3)));
  rule.begin_trial(start + milliseconds(4), after(1, 3));
  EXPECT_FALSE(rule.should_move(start + milliseconds(24), after(2, 20)));
  EXPECT_FALSE(rule.should_move(start + milliseconds(24 + 16 * 12 - 1), after(2, 20)));
}

TEST(MovingRule, WithoutTimesNothingMovesAndNoTrialFails) {
  MovingRule rule;
  EXPECT_FALSE(rule.should_move(start, std::nullopt));
  EXPECT_FALSE(rule.may_move(start + milliseconds(999)));
  rule.begin_trial(start, after(0, 0));
  EXPECT_FALSE(rule.trial_failed(start + milliseconds(20), std::nullopt));
  rule.begin_trial(start, after(0, 0, 7));
  EXPECT_FALSE(rule.trial_failed(start + milliseconds(20), after(0, 1000, 8)));  // another caller
}

#ifdef __linux__
cpu_set_t usable() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

bool same(const cpu_set_t& a, const cpu_set_t& b) {
  return CPU_EQUAL(&a, &b) != 0;
}

// Notes both threads of a pool on the core of the calling thread. The system may move it between the two.
void share_core(ThreadPlaces& places) {
  do {
    places.arrive(0);
    places.arrive(1);
  } while (!places.shares_core(1));
}

TEST(ThreadPlaces, AThreadMovesAwayAndBackAndMayUseTheSameCores) {
  const cpu_set_t before = usable();
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this process may use one core";
  ThreadPlaces places(2);
  bool apart = false, together = false;
  // The system may move the thread again at once, though not each time.
  for (int tries = 0; tries < 100 && !(apart && together); ++tries) {
    share_core(places);
    ASSERT_TRUE(places.move_away(1));
    EXPECT_TRUE(same(usable(), before));
    apart |= !places.shares_core(1);
    ASSERT_TRUE(places.move_to(1, 0));
    EXPECT_TRUE(same(usable(), before));
    together |= places.shares_core(1);
  }
  EXPECT_TRUE(apart);
  EXPECT_TRUE(together);
}

TEST(ThreadPlaces, AThreadOfOneCoreStays) {
  std::thread([] {
    ThreadPlaces places(2);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    share_core(places);
    EXPECT_FALSE(places.move_away(1));
    EXPECT_TRUE(same(usable(), one));
  }).join();
}

TEST(ThreadPlaces, AThreadNeverGoesToACoreThatItMayNotUse) {
  const cpu_set_t before = usable();
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "this process may use one core";
  ThreadPlaces places(2);
  places.arrive(0);
  std::thread([&] {
    share_core(places);
    ASSERT_TRUE(places.move_away(1));
    // Now thread 0 is noted on a core that this thread gives up.
    cpu_set_t rest = before;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(core, &one);
      if (!CPU_ISSET(core, &before) || sched_setaffinity(0, sizeof one, &one) != 0) continue;
      places.arrive(0);
      CPU_CLR(core, &rest);
      break;
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof rest, &rest), 0);
    EXPECT_FALSE(places.move_to(1, 0));
    EXPECT_TRUE(same(usable(), rest));
  }).join();
}

TEST(ThreadPlaces, OnlyTheLaterOfTwoThreadsShares) {
  ThreadPlaces places(2);
  EXPECT_FALSE(places.shares_core(1));  // neither has come
  share_core(places);
  EXPECT_FALSE(places.shares_core(0));
  places.leave(0);
  EXPECT_FALSE(places.shares_core(1));
}

TEST(CoreTime, GrowsWhileAThreadRuns) {
  const std::optional<CoreTime> begin = core_time(system_thread());
  if (!begin) GTEST_SKIP() << "this system does not tell the times of threads in /proc";
  // 10 ms: the system may count by ticks, of which one has 4 ms.
  const auto enough = [&] { return core_time(system_thread())->run >= begin->run + 10'000'000; };
  while (!enough()) {
  }
  EXPECT_GE(core_time(system_thread())->wait, begin->wait);
  EXPECT_FALSE(core_time(0));
}
#endif

}  // namespace
}  // namespace fovea

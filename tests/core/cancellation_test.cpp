// Calls that are told to stop: which units run, which do not, and what continues unaffected.
#include "fovea/core/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "fovea/core/executor.h"

namespace fovea {
namespace {

// Call number `last` stops, and later ones wait for the stop. Otherwise they could be many, because the
// thread of call `last` may be suspended between counting and stopping.
void stop_at(int last, std::atomic<int>& calls, std::stop_source& stop) {
  const int call = ++calls;
  if (call == last) stop.request_stop();
  while (call > last && !stop.stop_requested()) std::this_thread::yield();
}

TEST(Cancellation, StopsAfterTheUnitsThatRan) {
  constexpr int count = 1000, last = 40;
  for (const int threads : {1, 2, 5}) {
    const auto pool = make_thread_pool(threads);
    std::stop_source stop;
    CancellableExecutor executor(*pool, stop.get_token());
    EXPECT_EQ(executor.thread_count(), threads);
    std::atomic<int> begun{0};
    const auto body = [&](std::int64_t, int worker) {
      EXPECT_LT(worker, threads);
      stop_at(last, begun, stop);
    };
    EXPECT_THROW(executor.parallel_for(count, body), Cancelled);
    // Each other thread may have begun one more unit before it could see the stop.
    EXPECT_GE(begun, last);
    EXPECT_LT(begun, last + threads);
    const int before = begun;
    EXPECT_THROW(executor.parallel_for(count, body), Cancelled);
    EXPECT_EQ(begun, before);
    // The pool itself has not been stopped.
    std::atomic<int> ran{0};
    pool->parallel_for(count, [&](std::int64_t, int) { ++ran; });
    CancellableExecutor other(*pool, std::stop_token());
    other.parallel_for(count, [&](std::int64_t, int) { ++ran; });
    EXPECT_EQ(ran, 2 * count);
  }
}

TEST(Cancellation, StopsInsideAUnit) {
  EXPECT_NO_THROW(throw_if_cancelled());
  const auto pool = make_thread_pool(3);
  std::stop_source stop;
  CancellableExecutor executor(*pool, stop.get_token());
  std::atomic<int> left{0};
  EXPECT_THROW(executor.parallel_for(3,
                                     [&](std::int64_t, int) {
                                       stop.request_stop();
                                       throw_if_cancelled();
                                       ++left;
                                     }),
               Cancelled);
  EXPECT_EQ(left, 0);
  EXPECT_NO_THROW(throw_if_cancelled());
  // A thread of the pool does not remember the executor for which it worked.
  pool->parallel_for(100, [](std::int64_t, int) { throw_if_cancelled(); });
}

TEST(Cancellation, ReachesLoopsWithinLoops) {
  const auto pool = make_thread_pool(2);
  std::stop_source stop;
  CancellableExecutor executor(*pool, stop.get_token());
  std::atomic<int> inner{0}, left{0};
  EXPECT_THROW(executor.parallel_for(2,
                                     [&](std::int64_t, int) {
                                       executor.parallel_for(
                                           1000, [&](std::int64_t, int) { stop_at(10, inner, stop); });
                                       ++left;
                                     }),
               Cancelled);
  EXPECT_LE(inner, 11);
  EXPECT_EQ(left, 0);
}

// One caller waits for the pool while another caller's loop holds it.
TEST(Cancellation, ReachesACallerThatWaitsItsTurn) {
  const auto pool = make_thread_pool(2);
  std::promise<void> holds, may_end;
  const std::shared_future<void> end = may_end.get_future().share();
  std::atomic<int> ran{0};
  auto holder = std::async(std::launch::async, [&] {
    pool->parallel_for(2, [&](std::int64_t unit, int) {
      if (unit == 0) holds.set_value();
      end.wait();
      ++ran;
    });
  });
  holds.get_future().wait();
  std::atomic<int> asked{0};
  CancellableExecutor executor(*pool, [&] { return ++asked > 3; });
  EXPECT_THROW(executor.parallel_for(2, [](std::int64_t, int) { ADD_FAILURE(); }), Cancelled);
  EXPECT_EQ(ran, 0);
  may_end.set_value();
  holder.get();
  EXPECT_EQ(ran, 2);
}

TEST(Cancellation, AUnitsOwnErrorStays) {
  std::stop_source stop;
  CancellableExecutor executor(serial_executor(), stop.get_token());
  const auto fail = [](std::int64_t, int) { throw InvalidArgument("f", "a", "b", "c"); };
  EXPECT_THROW(executor.parallel_for(1, fail), InvalidArgument);
}

}  // namespace
}  // namespace fovea

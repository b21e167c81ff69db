// Executors in a forked child (Python's multiprocessing, a data loader). The pool's object exists there, but
// its threads do not.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "fovea/core/executor.h"

namespace fovea {
namespace {

// Runs `body` in a child, which leaves by exit and so destroys static objects. Returns "" if all went well.
// An alarm ends a child that hangs.
template <class Body>
std::string in_child(Body&& body) {
  std::fflush(nullptr);  // otherwise the child prints again what the parent has buffered
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool well = false;
    try {
      well = body();
    } catch (...) {
    }
    std::exit(well ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return "no child";
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
}

bool every_unit_once(Executor& executor) {
  std::atomic<std::int64_t> units{0}, sum{0};
  executor.parallel_for(1000, [&](std::int64_t unit, int worker) {
    ++units;
    sum += unit;
    if (worker < 0 || worker >= executor.thread_count()) units += 1000;
  });
  return units == 1000 && sum == 499500;
}

// Runs as many units as threads. No unit ends before the last has begun.
bool threads_are_real(Executor& executor) {
  const int threads = executor.thread_count();
  std::atomic<int> begun{0};
  executor.parallel_for(threads, [&](std::int64_t, int) {
    ++begun;
    while (begun < threads) std::this_thread::yield();
  });
  return begun == threads;
}

class Fork : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the thread sanitizer lets no child of a process with threads start its own";
#endif
  }
};

TEST_F(Fork, PoolsWorkInAChildAndInItsChild) {
  auto pool = make_thread_pool(3);
  ASSERT_TRUE(every_unit_once(*pool) && every_unit_once(default_executor()));
  const int width = default_executor().thread_count();
  const auto work = [&] {
    return default_executor().thread_count() == width && pool->thread_count() == 3 &&
           every_unit_once(default_executor()) && every_unit_once(*pool) && threads_are_real(*pool) &&
           threads_are_real(default_executor());
  };
  EXPECT_EQ(in_child([&] {
              const bool well = work() && in_child([&] {
                                            const bool there = work();
                                            pool.reset();
                                            return there;
                                          }).empty();
              pool.reset();
              return well && every_unit_once(default_executor());
            }),
            "");
  EXPECT_TRUE(work());  // the parent's pools still work
}

TEST_F(Fork, APoolThatTheChildNeverUsedIsDestroyed) {
  auto pool = make_thread_pool(3);
  ASSERT_TRUE(every_unit_once(*pool));
  EXPECT_EQ(in_child([&] {
              pool.reset();
              return true;
            }),
            "");
}

// At the moment of the fork another thread is inside the pool and holds its locks.
TEST_F(Fork, LocksOfOtherThreadsDoNotBlockTheChild) {
  const auto pool = make_thread_pool(3);
  std::promise<void> inside, leave;
  std::shared_future<void> left = leave.get_future().share();
  std::atomic<bool> told{false};
  std::thread other([&] {
    pool->parallel_for(3, [&](std::int64_t, int) {
      if (!told.exchange(true)) inside.set_value();
      left.wait();
    });
  });
  inside.get_future().wait();
  const std::string child = in_child([&] { return every_unit_once(*pool) && threads_are_real(*pool); });
  leave.set_value();
  other.join();
  EXPECT_EQ(child, "");
  EXPECT_TRUE(every_unit_once(*pool));
}

// Forks at arbitrary moments. At some of them the threads that give and take work hold the pool's locks.
TEST_F(Fork, AtAnyMoment) {
  const auto pool = make_thread_pool(3);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) pool->parallel_for(8, [](std::int64_t, int) {});
  });
  std::string first_failure;
  for (int n = 0; n < 50 && first_failure.empty(); ++n)
    first_failure = in_child([&] { return every_unit_once(*pool); });
  stop = true;
  busy.join();
  EXPECT_EQ(first_failure, "");
}

}  // namespace
}  // namespace fovea

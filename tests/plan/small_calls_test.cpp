// Which threads run a call: small ones stay on the calling thread unless their caller gives an executor.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "core/awake_threads.h"
#include "core/cpu.h"
#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
#include "fovea/core/profile.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/recurrence.h"

namespace fovea {
namespace {

class Counting final : public Executor {
 public:
  int thread_count() const noexcept override { return 2; }
  void parallel_for(std::int64_t count, ParallelBody body) override {
    ++loops;
    for (std::int64_t unit = 0; unit < count; ++unit) body(unit, static_cast<int>(unit % 2));
  }
  int loops = 0;
};

// The default executor of the process while the object lives.
struct Default {
  explicit Default(Executor& executor) { set_default_executor(&executor); }
  ~Default() { set_default_executor(nullptr); }
};

int loops_of_attend(Counting& counting, std::int64_t len, Executor* given) {
  const Tensor x = Tensor::normal({1, 2, len, 16}, 1);
  Tensor output(DType::f32, x.shape());
  const AttentionPlan plan = make_plan(
      {}, {.num_query_heads = 2, .num_kv_heads = 2, .query_len = len, .key_len = len, .head_dim = 16});
  counting.loops = 0;
  attend(plan, {.query = x, .key = x, .value = x}, {.output = output}, {.executor = given});
  return counting.loops;
}

int loops_of_recur(Counting& counting, std::int64_t len, Executor* given) {
  const Tensor x = Tensor::normal({1, 2, len, 16}, 1);
  Tensor output(DType::f32, x.shape());
  const RecurrencePlan plan = make_recurrence_plan(
      {}, {.num_query_heads = 2, .num_key_heads = 2, .num_heads = 2, .len = len, .key_dim = 16});
  counting.loops = 0;
  recur(plan, {.query = x, .key = x, .value = x}, {.output = output}, {.executor = given});
  return counting.loops;
}

TEST(SmallCalls, StayOnTheCallingThread) {
  Counting counting;
  const Default now(counting);
  EXPECT_EQ(loops_of_attend(counting, 32, nullptr), 0);  // 2 heads x 32 x 32 pairs x 32: 2^16
  EXPECT_GT(loops_of_attend(counting, 128, nullptr), 0);
  EXPECT_EQ(loops_of_recur(counting, 64, nullptr), 0);
  EXPECT_GT(loops_of_recur(counting, 1024, nullptr), 0);
}

// The matrices of a score are products too: few queries of wide rows may take more of them than of pairs.
TEST(SmallCalls, CountTheProductsOfTheScoresMatrices) {
  Counting counting;
  const Default now(counting);
  const std::int64_t dim = 256, rank = 64;
  const Tensor query = Tensor::normal({1, 1, 1, dim}, 1), key = Tensor::normal({1, 1, 64, dim}, 2),
               W = Tensor::normal({rank, dim}, 3), U = Tensor::normal({rank, dim}, 4);
  const Tensor output(DType::f32, {1, 1, 1, dim});
  const AttentionPlan plan = make_plan({.score = LowRankBilinear{}},
                                       {.query_len = 1, .key_len = 64, .head_dim = dim, .hidden = rank});
  attend(plan, {.query = query, .key = key, .value = key, .arguments = {{"score.W", W}, {"score.U", U}}},
         {.output = output});
  EXPECT_GT(counting.loops, 0);  // 64 keys x 256 x 64: 2^20, beside 2^15 for the pairs
}

TEST(SmallCalls, BackwardAndPackedCallsToo) {
  Counting counting;
  const Default now(counting);
  const auto loops_of = [&](std::int64_t len) {
    const Tensor x = Tensor::normal({1, 2, len, 16}, 1), lse(DType::f32, {1, 2, len});
    const Tensor output(DType::f32, x.shape()), gradient(DType::f32, x.shape());
    const AttentionPlan plan = make_plan({}, {.batch = 2,
                                              .num_query_heads = 2,
                                              .num_kv_heads = 2,
                                              .query_len = len,
                                              .key_len = len,
                                              .head_dim = 16});
    const std::int64_t starts[] = {0, len / 2, len};
    const AttentionInputs in{.query = x, .key = x, .value = x, .query_starts = starts, .key_starts = starts};
    attend(plan, in, {.output = output, .log_sum_exp = lse});
    const int forward = std::exchange(counting.loops, 0);
    attend_backward(plan, in, {.output = output, .log_sum_exp = lse, .d_output = x}, {.query = gradient});
    return std::pair(forward, std::exchange(counting.loops, 0));
  };
  EXPECT_EQ(loops_of(32), std::pair(0, 0));
  const auto [forward, backward] = loops_of(512);
  EXPECT_GT(forward, 0);
  EXPECT_GT(backward, 0);
}

TEST(SmallCalls, RunOnTheExecutorThatIsGiven) {
  Counting counting;
  EXPECT_GT(loops_of_attend(counting, 32, &counting), 0);
  EXPECT_GT(loops_of_recur(counting, 64, &counting), 0);
  CancellableExecutor stoppable(counting, std::stop_token());
  EXPECT_GT(loops_of_attend(counting, 32, &stoppable), 0);
  stoppable.run_small_calls_alone();
  EXPECT_EQ(loops_of_attend(counting, 32, &stoppable), 0);
  EXPECT_GT(loops_of_attend(counting, 128, &stoppable), 0);
  stoppable.run_small_calls_alone(1.0);
  EXPECT_GT(loops_of_attend(counting, 32, &stoppable), 0);
}

// Waits inside a loop until both threads of the pool have begun, so that both are awake behind it.
void wake(Executor& pool) {
  std::atomic<int> begun{0};
  pool.parallel_for(2, [&](std::int64_t, int) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
}

// Whether the pool ran a loop of its own: its caller waits for the other thread at the end.
bool is_shared(const std::function<void()>& call) {
  Profile profile(0);
  call();
  profile.stop();
  for (const ProfileTotal& total : profile.totals()) {
    if (total.label->part == ProfilePart::waiting && total.count > 0) return true;
  }
  return false;
}

// Whether the default pool shares out a call of 2^16 multiply-adds, asleep and at some time awake.
TEST(SmallCalls, AreSharedByThreadsThatAreAwake) {
  if (usable_cores() < 2) GTEST_SKIP() << "threads that share a core do not wait awake";
  const std::unique_ptr<Executor> pool = make_thread_pool(2);
  const Default now(*pool);
  const Tensor x = Tensor::normal({1, 2, 32, 16}, 1);
  Tensor asleep(DType::f32, x.shape()), awake(DType::f32, x.shape());
  const AttentionPlan plan = make_plan(
      {}, {.num_query_heads = 2, .num_kv_heads = 2, .query_len = 32, .key_len = 32, .head_dim = 16});
  while (default_threads_are_awake()) std::this_thread::yield();
  EXPECT_FALSE(is_shared([&] { attend(plan, x, x, x, asleep); }));
  bool shared = false;
  // Other programs may keep a thread from its core for a while.
  for (int n = 0; n < 10000 && !shared; ++n) {
    wake(*pool);
    shared = is_shared([&] { attend(plan, x, x, x, awake); });
  }
  EXPECT_TRUE(shared);
  EXPECT_EQ(std::memcmp(asleep.raw(), awake.raw(), static_cast<std::size_t>(x.count()) * sizeof(float)), 0);
  // Next to nothing to compute is never shared.
  const Tensor one = Tensor::normal({1, 2, 1, 16}, 1);
  Tensor result(DType::f32, one.shape());
  const AttentionPlan tiny =
      make_plan({}, {.num_query_heads = 2, .num_kv_heads = 2, .query_len = 1, .key_len = 1, .head_dim = 16});
  wake(*pool);
  EXPECT_FALSE(is_shared([&] { attend(tiny, one, one, one, result); }));
}

}  // namespace
}  // namespace fovea

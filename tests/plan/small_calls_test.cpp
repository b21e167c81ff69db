// Which threads run a call: small ones stay on the calling thread unless their caller gives an executor.
#include <gtest/gtest.h>

#include <utility>

#include "fovea/core/cancellation.h"
#include "fovea/core/executor.h"
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

}  // namespace
}  // namespace fovea

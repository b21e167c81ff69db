// Parameters, the context of a forward, and the threads of a program.
#include "fovea/nn/module.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "fovea/core/executor.h"

namespace fovea::nn {
namespace {

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.count()};
}

// Bounds of the means: five standard deviations.
TEST(InitialValues, HaveTheirMoments) {
  ParameterSet set(1);
  const Tensor uniform = set.xavier("uniform", {200, 300}, 2.0f).value;
  const Tensor normal = set.normal("normal", {60000}, 0.5f).value;
  const double bound = 2.0 * std::sqrt(6.0 / 500.0), n = 60000.0;
  double mean_u = 0.0, square_u = 0.0, mean_n = 0.0, square_n = 0.0;
  for (std::int64_t i = 0; i < 60000; ++i) {
    const double u = uniform.data<float>()[i], g = normal.data<float>()[i];
    ASSERT_LE(std::abs(u), bound * 1.000001);
    mean_u += u / n;
    square_u += u * u / n;
    mean_n += g / n;
    square_n += g * g / n;
  }
  const double variance_u = bound * bound / 3.0, variance_n = 0.25;
  EXPECT_NEAR(mean_u, 0.0, 5.0 * std::sqrt(variance_u / n));
  EXPECT_NEAR(mean_n, 0.0, 5.0 * std::sqrt(variance_n / n));
  // Var(u²) = 4/5 σ⁴ for the uniform, 2 σ⁴ for the normal distribution.
  EXPECT_NEAR(square_u, variance_u, 5.0 * variance_u * std::sqrt(0.8 / n));
  EXPECT_NEAR(square_n, variance_n, 5.0 * variance_n * std::sqrt(2.0 / n));
}

TEST(Context, DropsOutInTrainingOnlyAndEachTimeDifferently) {
  Tensor ones(DType::f32, {1000});
  ones.fill(1.0);
  Context inference;
  EXPECT_EQ(inference.dropout(ones, 0.5f).value().raw(), ones.raw());  // the very same elements
  autograd::Tape tape;
  Context training{.tape = &tape, .dropout_seed = 5};
  const auto first = values_of(training.dropout(ones, 0.5f).value());
  const auto second = values_of(training.dropout(ones, 0.5f).value());
  EXPECT_NE(first, second);
  Context again{.tape = &tape, .dropout_seed = 5};
  EXPECT_EQ(first, values_of(again.dropout(ones, 0.5f).value()));
  Context next_step{.tape = &tape, .dropout_seed = 6};
  EXPECT_NE(first, values_of(next_step.dropout(ones, 0.5f).value()));
}

class UseThreads : public ::testing::Test {
 protected:
  void TearDown() override {
    use_threads(1);
    set_default_executor(nullptr);
  }
};

TEST_F(UseThreads, RunsEveryUnitOnceWithWorkersInRange) {
  for (const int threads : {1, 3}) {
    use_threads(threads);
    EXPECT_EQ(default_executor().thread_count(), threads);
    std::vector<std::atomic<int>> runs(1000);
    std::atomic<bool> in_range{true};
    default_executor().parallel_for(1000, [&](std::int64_t unit, int worker) {
      ++runs[static_cast<std::size_t>(unit)];
      if (worker < 0 || worker >= threads) in_range = false;
    });
    EXPECT_TRUE(in_range);
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST_F(UseThreads, NestsAndPassesExceptionsOn) {
  use_threads(3);
  std::atomic<int> inner{0};
  default_executor().parallel_for(
      8, [&](std::int64_t, int) { default_executor().parallel_for(5, [&](std::int64_t, int) { ++inner; }); });
  EXPECT_EQ(inner, 40);
  const auto fail = [](std::int64_t unit, int) {
    if (unit == 37) throw std::runtime_error("unit 37");
  };
  EXPECT_THROW(default_executor().parallel_for(100, fail), std::runtime_error);
  std::atomic<int> after{0};
  default_executor().parallel_for(10, [&](std::int64_t, int) { ++after; });
  EXPECT_EQ(after, 10);
}

}  // namespace
}  // namespace fovea::nn

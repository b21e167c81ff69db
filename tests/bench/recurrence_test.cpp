#include "bench/recurrence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fovea::bench {
namespace {

TEST(RecurrenceBench, EveryRecurrenceHasTimesAndLimits) {
  std::vector<std::string> names;
  const RecurrenceBench bench{.heads = 1, .len = 40, .dims = {8}, .repeat = 1};
  measure_recurrences(bench, [&](const RecurrenceRow& row) {
    names.push_back(row.name);
    for (const double seconds : {row.forward, row.backward, row.forward_limit, row.backward_limit})
      EXPECT_TRUE(seconds > 0 && std::isfinite(seconds)) << row.name;
  });
  EXPECT_EQ(names.size(), measured_recurrences().size());
}

TEST(RecurrenceBench, EveryRecurrenceHasTimesOfOneToken) {
  std::size_t rows = 0;
  const RecurrenceBench bench{.dims = {8}, .repeat = 1, .step_heads = 2, .step_layers = 3};
  measure_recurrence_steps(bench, [&](const RecurrenceStepRow& row) {
    ++rows;
    for (const double seconds : {row.seconds, row.limit})
      EXPECT_TRUE(seconds > 0 && std::isfinite(seconds)) << row.name;
  });
  EXPECT_EQ(rows, measured_recurrences().size());
  measure_recurrence_steps({.step_layers = 0}, [](const RecurrenceStepRow&) { ADD_FAILURE(); });
}

TEST(RecurrenceBench, TheSelectiveScanHasTimesAndLimits) {
  const RecurrenceRow row =
      measure_selective_scan({.len = 40, .repeat = 1}, {.channels = 24, .state_dim = 5});
  for (const double seconds : {row.forward, row.backward, row.forward_limit, row.backward_limit})
    EXPECT_TRUE(seconds > 0 && std::isfinite(seconds));
}

TEST(RecurrenceBench, LimitsCountProductsWithTheState) {
  EXPECT_EQ(least_flops({}, 64, 128), 4 * 64 * 128);
  EXPECT_EQ(least_flops({.write = DeltaWrite{}}, 64, 128), 6 * 64 * 128);
  EXPECT_EQ(least_flops({.write = DiagonalPlusLowRankWrite{}}, 64, 128), 8 * 64 * 128);
}

}  // namespace
}  // namespace fovea::bench

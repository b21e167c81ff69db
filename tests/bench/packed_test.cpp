// The rows of `fovea bench packed`.
#include "bench/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fovea::bench {
namespace {

TEST(PackedBench, HasARowForEachMixAndThreadCount) {
  std::vector<PackedRow> rows;
  measure_packed({.longest = 4, .heads = 2, .kv_heads = 1, .head_dim = 8, .repeat = 1, .threads = 2},
                 [&](const PackedRow& row) { rows.push_back(row); });
  // Lengths 1, 2 and 4: three prompts, three steps, both, 64 of either, 64 sentences; f32 and bf16, one
  // thread and two.
  const std::int64_t sequences[] = {3, 3, 6, 64, 64};
  ASSERT_EQ(rows.size(), 2 * 5 * 2);
  for (std::size_t n = 0; n < rows.size(); ++n) {
    EXPECT_EQ(rows[n].sequences, sequences[n / 2 % 5]) << n;
    EXPECT_EQ(rows[n].threads, n % 2 == 0 ? 1 : 2) << n;
    EXPECT_EQ(rows[n].dtype, n < 10 ? DType::f32 : DType::bf16) << n;
    for (const double ratio : {rows[n].forward_ratio, rows[n].backward_ratio})
      EXPECT_TRUE(std::isfinite(ratio) && ratio > 0.0) << n;
  }
}

}  // namespace
}  // namespace fovea::bench

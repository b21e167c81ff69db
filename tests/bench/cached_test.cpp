// The rows of `fovea bench cache`.
#include "bench/cached.h"

#include <gtest/gtest.h>

namespace fovea::bench {
namespace {

TEST(CachedBench, MeasuresEveryRow) {
  std::vector<CachedRow> rows;
  measure_cached({.heads = 2,
                  .kv_heads = 1,
                  .head_dim = 8,
                  .lengths = {600},
                  .batches = {1, 2},
                  .repeat = 1,
                  .threads = 2},
                 [&](const CachedRow& row) { rows.push_back(row); });
  ASSERT_EQ(rows.size(), 8u);  // two batches, a piece of a prompt and the mixed batch, in f32 and in bf16
  for (const CachedRow& row : rows) {
    EXPECT_GT(row.tensors, 0.0) << row.name;
    EXPECT_GT(row.pages_64, 0.0) << row.name;
    EXPECT_EQ(row.threads, 2);
  }
}

TEST(CachedBench, LeavesOutRowsThatNeedMoreMemory) {
  std::int64_t rows = 0;
  measure_cached({.heads = 1,
                  .kv_heads = 1,
                  .head_dim = 64,
                  .lengths = {64, 100000},
                  .batches = {1},
                  .most_megabytes = 10,
                  .repeat = 1},
                 [&](const CachedRow&) { ++rows; });
  EXPECT_EQ(rows, 6);  // of two lengths one, the piece and the mixed batch, in two types
}

TEST(CachedBench, MeasuresOnlyTheRowsThatAreAskedFor) {
  std::vector<CachedRow> rows;
  measure_cached({.heads = 1,
                  .kv_heads = 1,
                  .head_dim = 8,
                  .lengths = {64},
                  .batches = {1, 2},
                  .repeat = 1,
                  .only = "batch 2"},
                 [&](const CachedRow& row) { rows.push_back(row); });
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "decode, batch 2, 64 keys");
  EXPECT_GT(rows[0].price, 0.0);
  EXPECT_GT(rows[0].speed_64, 0.0);
  EXPECT_GT(rows[0].speed_16, 0.0);
}

}  // namespace
}  // namespace fovea::bench

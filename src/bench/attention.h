// Time, arithmetic and memory of the engine for several masks. Machines are shared and noisy, so each number
// is given beside a limit that is measured in the same run: a large f32 matrix product on the same threads.
// Each row is measured in a process of its own, whose memory no other row has touched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "fovea/attention/spec.h"
#include "fovea/plan/plan.h"

namespace fovea::bench {

struct AttentionSizes {
  std::int64_t batch = 1, heads = 16, kv_heads = 16, head_dim = 64;
};

struct AttentionBench {
  Score score = ScaledDot{};
  AttentionSizes sizes;
  std::string kernel;  ///< a kernel to force; empty: the best
  Clock clock = Clock::wall;
  std::int64_t repeat = 3;  ///< runs, of which the best counts
  std::int64_t rounds = 1;  ///< times that all rows are measured; the best of each counts
};

struct PassCost {
  double seconds = 0.0;
  double megabytes = 0.0;  ///< growth of the row's process: operands, results, workspace
  double gflops = 0.0;     ///< counts only the pairs that the mask keeps
  double share_of_limit = 0.0;
  /// The time for each kept pair, divided by that of the mask `everything`; absent without that mask.
  std::optional<double> per_pair = {};
};

struct AttentionRow {
  double kept = 0.0;  ///< share of all pairs
  PassCost forward, backward;
};

/// GFLOP/s of a 1536³ f32 product, measured in a process of its own.
double product_limit(Clock clock);

/// A plan for `length` queries and `length` keys.
AttentionPlan plan_for(const AttentionBench& bench, const Mask& mask, std::int64_t length);

/// Measures a row for each mask. `limit` is the result of product_limit. The caller must not have run
/// anything in parallel before, since each row is a forked process.
std::vector<AttentionRow> measure_masks(const AttentionBench& bench, const std::vector<Mask>& masks,
                                        std::int64_t length, double limit);

}  // namespace fovea::bench

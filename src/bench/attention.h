// Time, arithmetic and memory of the engine, mask by mask. Machines are shared and noisy, so every number
// stands beside a limit measured in the same run: a large f32 matrix product on the same threads. Each row is
// measured in a process of its own, whose memory no other row has seen.
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
  std::string kernel;  ///< forced; empty: the best
  Clock clock = Clock::wall;
  std::int64_t repeat = 3;  ///< the best of so many runs counts
  std::int64_t rounds = 1;  ///< all rows so many times over, the best of each counts
};

struct PassCost {
  double seconds = 0.0;
  double megabytes = 0.0;  ///< what the process of the row grew by: operands, results, workspace
  double gflops = 0.0;     ///< of the pairs that the mask keeps
  double share_of_limit = 0.0;
  /// Time a pair kept over that of `everything`, where it is among the masks.
  std::optional<double> per_pair = {};
};

struct AttentionRow {
  double kept = 0.0;  ///< share of all pairs
  PassCost forward, backward;
};

/// GFLOP/s of a 1536³ f32 product, in a process of its own.
double product_limit(Clock clock);

/// With as many queries as keys.
AttentionPlan plan_for(const AttentionBench& bench, const Mask& mask, std::int64_t length);

/// A row a mask. `limit` is product_limit's. The caller must not have run anything in parallel before.
std::vector<AttentionRow> measure_masks(const AttentionBench& bench, const std::vector<Mask>& masks,
                                        std::int64_t length, double limit);

}  // namespace fovea::bench

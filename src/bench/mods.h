// What mods of scores and weights and normalisers cost beside plain attention, built-in mods beside a lambda
// of one's own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fovea::bench {

struct ModsBench {
  std::int64_t length = 2048, heads = 4, head_dim = 64;
  std::int64_t repeat = 5;  ///< the best of so many runs counts
  std::string kernel;       ///< forced; empty: the best
};

/// Gradients of arguments included; ratios to softmax alone, which is the first row.
struct ModsRow {
  std::string name;
  double forward_seconds = 0.0, forward_ratio = 0.0, backward_seconds = 0.0, backward_ratio = 0.0;
};

/// Each row is told as soon as it is measured.
void measure_mods(const ModsBench& bench, const std::function<void(const ModsRow&)>& tell);

}  // namespace fovea::bench

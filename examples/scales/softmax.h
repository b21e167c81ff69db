// The effect of the key's width on the softmax, and the cost of each score.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention/score.h"

namespace scales {

struct Saturation {
  double gradient = 0.0;  ///< mean over rows of |∂loss/∂scores|, for a derivative of length 1 by the weights
  double largest = 0.0;  ///< mean over rows of the largest weight
};

/// Queries and keys of `dim` standard normal numbers, 64 keys for each query, for one seed.
Saturation saturation(const fovea::Score& score, std::int64_t dim, std::uint64_t seed);

struct Cost {
  double forward = 0.0, backward = 0.0;  ///< seconds a pair of query and key: medians over interleaved runs
};

/// The cost of each score on one shape: a batch of 16 sentences, 32 queries, 32 keys, width 128 (the low rank
/// is 32).
std::vector<Cost> costs(const std::vector<fovea::Score>& scores, std::int64_t repeats, std::uint64_t seed);

}  // namespace scales

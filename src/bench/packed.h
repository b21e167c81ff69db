// The cost of packed batches, compared with their sequences run alone, each in a call with a plan of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fovea/core/dtype.h"

namespace fovea::bench {

struct PackedBench {
  std::int64_t longest = 4096;  ///< the longest sequence; the lengths are 1, 2, 4 and so on up to it
  std::int64_t heads = 8, kv_heads = 2, head_dim = 64;
  std::int64_t repeat = 5;  ///< runs, of which the best counts
  std::string kernel;       ///< a kernel to force; empty: the best
  int threads = 1;          ///< the threads of the rows that use several
};

/// Ratios are to the sum of the times of the sequences alone, with the same threads.
struct PackedRow {
  std::string name;
  std::int64_t sequences = 0;
  DType dtype = DType::f32;
  int threads = 1;
  double forward_seconds = 0.0, forward_ratio = 0.0, backward_seconds = 0.0, backward_ratio = 0.0;
};

/// Measures prompts, single steps of decoding, and both together, with one thread and with several. Calls
/// `tell` as soon as a row is measured.
void measure_packed(const PackedBench& bench, const std::function<void(const PackedRow&)>& tell);

}  // namespace fovea::bench

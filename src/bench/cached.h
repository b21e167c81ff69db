// The speed of attention over a cache (AttentionInputs::cache), compared with the same keys and values as
// tensors, and the time that operations on the cache itself take.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fovea/core/dtype.h"

namespace fovea::bench {

struct CachedBench {
  std::int64_t heads = 8, kv_heads = 2, head_dim = 128;
  std::vector<std::int64_t> lengths = {4096, 32768};  ///< keys of a sequence
  std::vector<std::int64_t> batches = {1, 16};        ///< sequences that decode together
  std::int64_t most_megabytes = 9000;  ///< rows whose keys and values, held twice, are more are left out
  std::int64_t repeat = 5;             ///< turns
  std::string only;                    ///< measure_cached: the rows whose names contain this
  std::string kernel;                  ///< a kernel to force; empty: the best
  int threads = 1;
  std::int64_t texts = 16, prefix = 8192;  ///< of measure_shared
};

/// Medians of the seconds of one call, and of ratios. A ratio is taken in each turn, of two calls right after
/// each other. 0: not measured.
struct CachedRow {
  std::string name;
  DType dtype = DType::f32;
  int threads = 1;
  double tensors = 0.0;     ///< keys and values as tensors
  double contiguous = 0.0;  ///< in a cache whose store is Contiguous
  double pages_64 = 0.0, pages_16 = 0.0;
  double price = 0.0;                     ///< contiguous / tensors; of the mixed row pages_64 / tensors
  double speed_64 = 0.0, speed_16 = 0.0;  ///< contiguous / pages
};

/// One row for a step of decoding of each batch and length. One row for 512 queries behind the first 3,584 of
/// 4,096 keys; and a batch of 512 queries and 15 single steps. Of the last, `tensors` is the sum of its
/// entries run alone over the same cache.
void measure_cached(const CachedBench& bench, const std::function<void(const CachedRow&)>& tell);

/// Medians of the seconds of a step of decoding of bench.texts sequences, which have bench.prefix keys in
/// common and one row of their own.
struct SharedRow {
  std::int64_t heads = 0, kv_heads = 0;
  DType dtype = DType::f32;
  double apart = 0.0;     ///< each has its own copy of the prefix
  double together = 0.0;  ///< forks of one sequence
  double gain = 0.0;      ///< the median of apart / together over the turns
};
/// For 32 heads with 8 heads of keys, and with 32.
void measure_shared(const CachedBench& bench, const std::function<void(const SharedRow&)>& tell);

/// Seconds of operations on a sequence of `rows` rows in pages of 64.
struct OperationRow {
  std::int64_t rows = 0;
  double fork = 0.0;             ///< and its release
  double fork_and_append = 0.0;  ///< a fork, one row reserved, appended and committed, and its release
  double step = 0.0;             ///< one row reserved, appended, committed
  double truncate = 0.0;         ///< by one row, which is then appended again: the time of both
};
void measure_operations(const std::function<void(const OperationRow&)>& tell);

}  // namespace fovea::bench

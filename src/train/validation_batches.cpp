#include "train/validation_batches.h"

#include <vector>

#include "fovea/core/executor.h"

namespace fovea::train {

autograd::CrossEntropyStats sum_over_batches(
    std::int64_t count, const std::function<void()>& between,
    const std::function<void(std::int64_t n, autograd::CrossEntropyStats* stats)>& batch) {
  std::vector<autograd::CrossEntropyStats> all(static_cast<std::size_t>(count));
  const BetweenBatches stop(between);
  const auto run = [&](std::int64_t n, int) {
    stop();
    batch(n, &all[static_cast<std::size_t>(n)]);
  };
  stop();
  Executor& executor = default_executor();
  const std::int64_t threads = executor.thread_count(),
                     side_by_side = threads > 1 ? count / threads * threads : 0;
  executor.parallel_for(side_by_side, run);
  for (std::int64_t n = side_by_side; n < count; ++n) run(n, 0);
  autograd::CrossEntropyStats total;
  for (const autograd::CrossEntropyStats& one : all) total += one;
  return total;
}

}  // namespace fovea::train

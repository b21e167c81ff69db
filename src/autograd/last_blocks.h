/// Blocks of a product on an executor, the last ones in parts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/core/executor.h"

namespace fovea::autograd {

/// Some rows of a block: part `number` of `count`.
struct Part {
  std::int64_t number = 0, count = 1;
};

/// Calls body(block, part) for all of `blocks` blocks. Executors give each thread a stretch of units
/// (core/executor.cpp). A stretch ends with a block in `parts` parts, so that a thread that is behind leaves
/// one to others. Quarters gained no more than halves: each part reads its panels again.
template <class Body>
void for_blocks_in_stretches(std::int64_t blocks, std::int64_t parts, Executor& executor, const Body& body) {
  const std::int64_t threads = executor.thread_count();
  if (parts == 1 || threads == 1 || blocks < threads) {
    executor.parallel_for(blocks, [&](std::int64_t block, int) { body(block, Part{}); });
    return;
  }
  const std::int64_t whole = blocks / threads, more = blocks % threads, units = whole - 1 + parts;
  executor.parallel_for(blocks + threads * (parts - 1), [&](std::int64_t unit, int) {
    const bool longer = unit < more * (units + 1);  // the first stretches have a block more
    const std::int64_t behind = longer ? unit : unit - more * (units + 1), size = units + (longer ? 1 : 0),
                       stretch = (longer ? 0 : more) + behind / size, at = behind % size,
                       begin = stretch * whole + std::min(stretch, more), last = whole - 1 + (longer ? 1 : 0);
    body(begin + std::min(at, last), at < last ? Part{} : Part{at - last, parts});
  });
}

}  // namespace fovea::autograd

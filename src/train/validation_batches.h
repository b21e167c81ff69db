// Batches of a validation side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

#include "fovea/autograd/ops.h"

namespace fovea::train {

/// Calls a caller's function between batches that run side by side. It does so in the caller's own thread
/// alone, which works too: the function may be one that no other thread may call.
class BetweenBatches {
 public:
  explicit BetweenBatches(const std::function<void()>& function)
      : function_(function), caller_(std::this_thread::get_id()) {}
  void operator()() const {
    if (function_ && std::this_thread::get_id() == caller_) function_();
  }

 private:
  const std::function<void()>& function_;
  std::thread::id caller_;
};

/// The sums over `count` batches of what `batch(n, stats)` writes, in order. As many batches run side by side
/// as leave no thread idle, and those that are left one after the other, each shared by all threads. Neither
/// changes a bit.
autograd::CrossEntropyStats sum_over_batches(
    std::int64_t count, const std::function<void()>& between,
    const std::function<void(std::int64_t n, autograd::CrossEntropyStats* stats)>& batch);

}  // namespace fovea::train

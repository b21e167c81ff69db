// Which threads run a call whose caller gives no executor.
#pragma once

#include <cstdint>

#include "fovea/core/executor.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// Calls of fewer multiply-adds run on the calling thread. They take 4 to 10 us, and every loop of a pool
/// waits until its threads have woken, 18 to 30 us where they sleep.
inline constexpr double least_shared_work = 1 << 18;

/// Returns the caller's executor, or for a small call that executor's `for_small_calls()`. Without one: the
/// default executor, or for a small call the calling thread alone.
inline Executor& executor_of(const CallResources& resources, double multiply_adds) {
  const bool small = multiply_adds < least_shared_work;
  if (resources.executor) return small ? resources.executor->for_small_calls() : *resources.executor;
  return small ? serial_executor() : default_executor();
}

}  // namespace fovea

// Which threads run a call whose caller gives no executor.
#pragma once

#include <cstdint>

#include "core/awake_threads.h"
#include "fovea/core/executor.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// The caller's executor, or the default one.
inline Executor& executor_of(const CallResources& resources) {
  return resources.executor ? *resources.executor : default_executor();
}
/// The same; for a small call the calling thread alone.
inline Executor& executor_of(const CallResources& resources, double multiply_adds) {
  if (resources.executor)
    return multiply_adds < resources.executor->least_shared_work() ? serial_executor() : *resources.executor;
  // Between the products of a token of a larger model the threads are awake, and keys come from memory. 12
  // heads over 48 keys of 64 numbers, 2^16 multiply-adds, took 22 us on one thread of a Zen 5.
  const bool is_small = multiply_adds < least_work_of_pools &&
                        (multiply_adds < least_work_of_pools / 8 || !default_threads_are_awake());
  return is_small ? serial_executor() : default_executor();
}

}  // namespace fovea

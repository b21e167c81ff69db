// Which threads run a call whose caller gives no executor.
#pragma once

#include <cstdint>

#include "fovea/core/executor.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// The caller's executor, or the default one; for a small call the calling thread alone.
inline Executor& executor_of(const CallResources& resources, double multiply_adds) {
  const double least = resources.executor ? resources.executor->least_shared_work() : least_work_of_pools;
  if (multiply_adds < least) return serial_executor();
  return resources.executor ? *resources.executor : default_executor();
}

}  // namespace fovea

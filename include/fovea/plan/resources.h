// What the calls of both families borrow from their caller.
#pragma once

#include <cstddef>
#include <span>

namespace fovea {

class Executor;  // core/executor.h

/// Resources that a call borrows. If `executor` is nullptr, the default one is used. A call of attend or
/// recur with fewer than 2^18 multiply-adds then runs on the calling thread, because a sleeping thread takes
/// longer to wake. If `workspace` is empty, a buffer of this thread is used. With a workspace, a call of a
/// fused kernel allocates nothing once its threads have met blocks of this size. A mask that leaves more than
/// six spans of keys to a block of queries still allocates.
struct CallResources {
  Executor* executor = nullptr;
  std::span<std::byte> workspace = {};
};

}  // namespace fovea

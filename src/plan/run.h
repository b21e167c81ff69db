// One call whose views are checked, whole or one entry of a packed batch: its bytes, and the run.
#pragma once

#include <cstddef>
#include <span>

#include "plan/call.h"

namespace fovea {

/// Bytes that serve every call of at most these sizes. `outputs`: what the calls write; null: anything.
std::size_t most_forward_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads,
                               const AttentionOutputs* outputs);
/// Of a call without keys every row is fully masked.
void leave_nothing_seen(const AttentionPlan::Impl& plan, const AttentionOutputs& outputs);
/// Of a call with queries and keys.
void run_forward(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
                 const CallSizes& sizes, Executor& executor, std::span<std::byte> memory);

std::size_t most_backward_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads,
                                LossOf loss_of);
void run_backward(const AttentionPlan::Impl& plan, const Call& call, const AttentionLoss& loss,
                  const AttentionGradients& gradients, const CallSizes& sizes, Executor& executor,
                  std::span<std::byte> memory);

inline LossOf loss_of(const AttentionLoss& loss) {
  return loss.d_weights ? LossOf::weights : LossOf::output;
}

}  // namespace fovea

// Here is the code of plans and calls: choosing kernels, checking calls, preparing operands, packed batches,
// merging, rotary embeddings. Kernels are in kernels/, mechanisms composed of calls in mechanisms/. Open
// plan.cpp first, then call.cpp.
//
// This header declares what backward.cpp and backward_check.cpp share.
#pragma once

#include "plan/call.h"

namespace fovea {

/// Whether a backward call needs whole rows of scores (kernels/problem.h).
bool whole_row(const AttentionPlan::Impl& plan, LossOf loss_of);

/// Checks a loss and the wanted gradients against the plan and against inputs that were checked before.
/// Throws InvalidArgument.
void check_backward(const AttentionPlan::Impl& plan, const CallSizes& sizes, const Call& call,
                    const AttentionLoss& loss, const AttentionGradients& gradients);

}  // namespace fovea

// What attend_backward's two files share.
#pragma once

#include "plan/call.h"

namespace fovea {

/// Does a backward call need whole rows of scores (kernels/problem.h)?
bool whole_row(const AttentionPlan::Impl& plan, LossOf loss_of);

/// Checks a loss and the gradients wanted against the plan and checked inputs. Throws InvalidArgument.
void check_backward(const AttentionPlan::Impl& plan, const CallSizes& sizes, const Call& call,
                    const AttentionLoss& loss, const AttentionGradients& gradients);

}  // namespace fovea

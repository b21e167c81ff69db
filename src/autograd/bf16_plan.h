// Attention inside a training whose products multiply bf16.
#pragma once

#include <optional>

#include "fovea/autograd/plan_cache.h"
#include "fovea/autograd/var.h"

namespace fovea::autograd {

/// A plan of bf16, if the tape's products have such operands and it is faster: with kernels that multiply
/// bf16 forward and backward, and enough keys. Without `plans` it is made anew.
std::optional<AttentionPlan> bf16_plan(const Tape* tape, const AttentionSpec& spec,
                                       const AttentionShape& shape, PlanCache* plans);

}  // namespace fovea::autograd

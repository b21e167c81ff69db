// Attention inside a model whose products multiply bf16.
#pragma once

#include <optional>

#include "fovea/autograd/plan_cache.h"
#include "fovea/autograd/var.h"

namespace fovea::autograd {

/// A plan of bf16, if `operands` are bf16 and this CPU has kernels that multiply them. Without `plans` it is
/// made anew.
std::optional<AttentionPlan> bf16_plan(Operands operands, const AttentionSpec& spec,
                                       const AttentionShape& shape, PlanCache* plans);

/// The operands of attention in a training: those of its products, if that is faster, with enough keys.
Operands attention_operands(Operands products, const AttentionShape& shape);

}  // namespace fovea::autograd

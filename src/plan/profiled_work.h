// What calls take at least, for profiles.
#pragma once

#include "fovea/core/profile.h"
#include "plan/call.h"

namespace fovea {

/// Adds the least work of a call to the caller's span, while a profile records: the products of the pairs
/// that the mask leaves, and each operand and result once. More than 16 blocks of queries are counted by a
/// sample.
void add_attention_work(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                        const CallSizes& sizes);
/// Likewise of the gradients: five products for two, and twice the bytes.
void add_backward_work(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                       const CallSizes& sizes);

}  // namespace fovea

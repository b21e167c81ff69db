// The sizes of a call, read from its tensors.
#pragma once

#include "fovea/attention/spec.h"
#include "fovea/plan/plan.h"

namespace fovea {

/// The shape of a plan for exactly this call: every size as the tensors of `inputs` have it.
///
/// - Keys and values come from `key` and `value`, or from `cache`, whose longest view gives key_len.
/// - A packed batch has the number of its entries and the rows of the longest entry.
/// - Without `value`, value_dim is AttentionShape::no_values: the call computes weights alone.
/// - A score that reads no keys (Location) takes key_len from the values, or from the rows that replace keys.
///
/// Throws InvalidArgument of `function` for a query, key or value that is not [batch, heads, length, dim],
/// and for a missing query, or key where the score reads keys. Whether the sizes fit each other is checked by
/// make_plan and attend.
AttentionShape shape_of(const AttentionSpec& spec, const AttentionInputs& inputs,
                        const char* function = "attention");

}  // namespace fovea

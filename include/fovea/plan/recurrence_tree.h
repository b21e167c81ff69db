// A recurrence over a tree of tokens. Speculative decoding drafts several continuations of a text that have
// their beginnings in common, reads all of them in one call, and keeps one path.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/core/tensor.h"
#include "fovea/plan/recurrence.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// output ← the recurrence, where token i follows token parents[i] in the place of token i - 1. A parent of
/// -1 is the initial state. All entries of the batch have the same tree.
///
/// A token has the bits that it has if the tokens of its path are read one by one, by a plan for one token.
/// Of the kernel that `plan` forces, only the instruction set counts. Every token is read once; a state is
/// kept for each token that has a child other than the next one, until the last of its children is read.
/// Where children stand right behind their parents (depth first), most tokens need no state of their own.
///
/// `inputs` are those of recur. `output` is [batch, num_output_heads, len, value_dim]. Throws InvalidArgument
/// as recur; where `parents` has not len numbers, each at least -1 and below its own place; and for
/// sequence_starts and present, which must be empty. Nothing is written then.
void recur_tree(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                std::span<const std::int64_t> parents, const TensorView& output,
                const CallResources& resources = {});

/// final_state ← the state behind the tokens of `path` alone, which ascend: where decoding goes on once a
/// path of a tree has been chosen. It may be the memory of initial_state. The bits are those of the tokens
/// one by one. For an empty path it is the initial state. Throws InvalidArgument as recur_tree, and where
/// `path` does not ascend or leaves [0, len). Nothing is written then.
void advance_along(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                   std::span<const std::int64_t> path, const TensorView& final_state,
                   const CallResources& resources = {});

}  // namespace fovea

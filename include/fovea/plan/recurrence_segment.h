// A stretch of tokens as one map of states. Whatever the state before the stretch is, the state behind it is
//
//   S ↦ M S + B
//
// with M the transition and B the contribution, which the tokens alone determine. Maps of stretches that
// follow one another compose, (M2, B2) after (M1, B1) = (M2 M1, M2 B1 + B2), which is associative. So the
// parts of a long sequence may be computed at the same time, by several threads or machines.
#pragma once

#include <cstdint>

#include "fovea/core/tensor.h"
#include "fovea/plan/recurrence.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// One map a sequence and head, contiguous, f32 (f64 for f64).
struct RecurrenceSegment {
  /// Additive writes: [sequences, num_heads, key_dim], the diagonal of M, the product of all decays. Other
  /// writes: [sequences, num_heads, key_dim, key_dim].
  Tensor transition;
  Tensor contribution;  ///< state_shape: the final state of the tokens behind a state of zeros
};

/// The shape of a transition for `sequences` sequences.
Shape transition_shape(const RecurrencePlan& plan, std::int64_t sequences);

/// The map of no token: 1 and 0.
RecurrenceSegment identity_segment(const RecurrencePlan& plan, std::int64_t sequences);

/// The map of the tokens of every sequence. `inputs` are those of recur without an initial state; queries are
/// not read. A dense transition costs as much as a state of key_dim columns. Throws InvalidArgument as recur.
RecurrenceSegment summarize(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                            const CallResources& resources = {});

/// The map of the stretch `earlier` with the stretch `later` behind it. Throws InvalidArgument for tensors
/// that are not maps of this plan.
RecurrenceSegment compose(const RecurrencePlan& plan, const RecurrenceSegment& later,
                          const RecurrenceSegment& earlier, const CallResources& resources = {});

/// The states behind a stretch, from those before it: M S + B. Both have state_shape; the result is new.
Tensor advance(const RecurrencePlan& plan, const RecurrenceSegment& segment, const ConstTensorView& states,
               const CallResources& resources = {});

/// recur for one long sequence with fewer heads than threads. It is cut every `piece` tokens, a multiple of
/// plan.chunk(). The pieces are summarised at the same time, their states composed one after the other, and
/// then all are computed at the same time. The summaries cost half as much as recur for additive writes, and
/// more than recur for others: that pays from about two threads on, or from three.
///
/// The bits depend on `piece`, not on the threads. Tensors have a batch of 1, without sequence_starts. Throws
/// InvalidArgument as recur, for a piece that is no positive multiple of the chunk, and for saved_states.
void recur_in_pieces(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                     const RecurrenceOutputs& outputs, std::int64_t piece,
                     const CallResources& resources = {});

}  // namespace fovea

// The checks of a call of a recurrence. They read shapes and, of the numbers, the gates alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/recurrence/problem.h"
#include "plan/checks.h"
#include "plan/recurrence/plan_impl.h"
#include "plan/recurrence/sequences.h"

namespace fovea {

inline SequenceLists lists_of(const RecurrenceInputs& inputs) {
  return {inputs.sequence_starts, inputs.present};
}

/// An input, its gradient and their names in errors.
struct RecurrenceField {
  const char* name;
  const char* gradient_name;
  ConstTensorView RecurrenceInputs::*input;
  TensorView RecurrenceGradients::*gradient;
};
extern const std::array<RecurrenceField, 11> recurrence_fields;

/// Tokens [begin, begin + count) of a call with one entry.
RecurrenceInputs tokens_of(const RecurrenceInputs& inputs, std::int64_t begin, std::int64_t count);

/// The shape and dtype that a field has in a call of these sizes.
Shape field_shape(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes,
                  const RecurrenceField& field);
DType field_dtype(const RecurrencePlan::Impl& plan, const RecurrenceField& field);

/// Whether a function takes states that lie apart. Those it takes are checked with its outputs.
enum class StateLists : std::uint8_t { refused, taken };

/// Checks the inputs and gives the sizes. `reads` is false where no output is wanted, and no query needed.
RecurrenceSizes check_recurrence_inputs(const char* function, const RecurrencePlan::Impl& plan,
                                        const RecurrenceInputs& inputs, bool reads,
                                        StateLists lists = StateLists::refused);
void check_recurrence_outputs(const char* function, const RecurrencePlan::Impl& plan,
                              const RecurrenceInputs& inputs, const RecurrenceOutputs& outputs,
                              const RecurrenceSizes& sizes);
void check_recurrence_gradients(const char* function, const RecurrencePlan::Impl& plan,
                                const RecurrenceInputs& inputs, const RecurrenceLoss& loss,
                                const RecurrenceGradients& gradients, const RecurrenceSizes& sizes);

/// Refuses gates above 0. NaN passes: it reaches the output.
void check_gates(const char* function, const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs,
                 std::span<const kernels::TokenSequence> sequences, Executor& executor);

}  // namespace fovea

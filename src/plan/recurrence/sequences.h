// The sequences of a call whose tensors are [entries, ..., len, ...]: one an entry, or packed one behind the
// other, with or without padding.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/core/tensor.h"
#include "kernels/recurrence/problem.h"
#include "plan/checks.h"
#include "plan/workspace.h"

namespace fovea {

/// The sizes of one call: its tensors are [entries, heads, len, dim], its states [sequences, ...].
struct RecurrenceSizes {
  std::int64_t entries = 0, len = 0, sequences = 0;
};

/// What a plan holds: sequences, and tokens of one of them.
struct SequenceCapacity {
  std::int64_t batch = 0, len = 0;
};

/// The lists that a call brings, as in RecurrenceInputs.
struct SequenceLists {
  std::span<const std::int64_t> starts = {};
  std::span<const std::uint8_t> present = {};
};

/// The sizes of a call whose tensor `argument` has these entries and this length.
RecurrenceSizes check_sequences(const char* function, const char* argument, const ConstTensorView& tokens,
                                std::int64_t len, const SequenceLists& lists,
                                const SequenceCapacity& capacity);

/// The sequences of a call, in the workspace. With a counting carver the result is empty.
std::span<const kernels::TokenSequence> make_sequences(const SequenceLists& lists,
                                                       const RecurrenceSizes& sizes, Carver& carver);

}  // namespace fovea

// The specification of recurrences: token by token in double, and no code in common with the other kernels.
// The tests compare every other kernel with these results.
#pragma once

#include "kernels/recurrence/candidate.h"

namespace fovea::kernels {

RecurrenceCandidate recurrence_reference_candidate();

template <class T>
void reference_recur_backward(const RecurrenceProblem<T>& p, const RecurrenceGradientProblem<T>& g);

}  // namespace fovea::kernels

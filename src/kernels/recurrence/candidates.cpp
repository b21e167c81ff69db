#include <vector>

#include "kernels/recurrence/reference.h"

namespace fovea::kernels {

std::span<const RecurrenceCandidate> recurrence_candidates() {
  static const std::vector<RecurrenceCandidate> list{recurrence_reference_candidate()};
  return list;
}

}  // namespace fovea::kernels

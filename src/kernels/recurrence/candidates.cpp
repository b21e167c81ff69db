#include <vector>

#include "kernels/recurrence/chunked.h"
#include "kernels/recurrence/reference.h"

namespace fovea::kernels {

std::span<const RecurrenceCandidate> recurrence_candidates() {
  static const std::vector<RecurrenceCandidate> list = [] {
    std::vector<RecurrenceCandidate> all = chunked_recurrence_candidates();
    all.push_back(recurrence_reference_candidate());
    return all;
  }();
  return list;
}

}  // namespace fovea::kernels
